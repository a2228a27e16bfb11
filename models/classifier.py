"""From features of an incident to the probability of each cause: multinomial logistic regression, calibrated by run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from features.errors import InputError
from models.arrays import Flags, Labels, Matrix, Vector, filled
from models.detectors.contract import required
from models.folds import held_out, is_grouped
from models.training import FOLDS, one_thread

INVERSE_PENALTY = 10.0
"""scikit-learn's C. Evidence lies within [-1, 1], so weights of several units are wanted; 1 leaves every answer
lukewarm."""

STEPS = 2000
"""Bound on the solver's steps; a few dozen suffice for a few hundred incidents."""

ENOUGH = 20
"""Held-out incidents. With fewer a fitted temperature follows chance, and the probabilities stay as they are."""

TEMPERATURES = np.geomspace(0.25, 4.0, 121)
"""Candidates for the temperature: below 1 sharpens, above 1 softens. Finer steps change no probability visibly."""


@dataclass(frozen=True, eq=False)
class FittedClassifier:
    """weights (n_features, n_classes) and biases (n_classes,) with the temperature already divided into them.

    `heldout`: (n_rows, n_classes), what a classifier that had not seen a row's run says of it. `calibrated_on`: how
    many of those the temperature rests on, 0 = too few, temperature 1.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    weights: Matrix
    biases: Vector
    temperature: float
    calibrated_on: int
    heldout: Matrix

    def probabilities(self, x: ArrayLike) -> Matrix:
        """Probability of each class, shape (n_rows, n_classes); rows sum to 1. NaN counts as 0, no evidence."""
        return _softmax(filled(x) @ self.weights + self.biases)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Incidents with known cause.

    `x`: (n_rows, n_features) evidence within about [-1, 1], 0 = none. `causes`: (n_rows,). `groups`: (n_rows,), the
    run of each. `weights`: (n_rows,), how much each counts; None counts all alike.
    """

    x: Matrix
    causes: Sequence[str]
    names: Sequence[str]
    groups: Labels
    weights: Vector | None = None


def train_classifier(rows: LabelledRows, *, inverse_penalty: float = INVERSE_PENALTY, folds: int = FOLDS) -> FittedClassifier:
    """Fit on all incidents; fit the temperature on predictions for incidents of runs held out.

    There is no intercept: a row of zeros, no evidence, makes every cause as likely as any other, however often each
    was labelled. Whoever wants the frequencies to count adds a feature that is always 1. The answer has no class
    "unknown": whoever asks compares the highest probability with the confidence that they require. Same rows and
    library versions give the same result to the bit. Needs the `train` extra.
    """
    x, classes, labels = filled(rows.x), *_numbered(rows)
    weights = np.ones(len(x)) if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
    with one_thread():
        logits = _held_out_logits(x, labels, weights, (rows.groups, folds, inverse_penalty))
        temperature, calibrated_on = _temperature(logits, labels, weights)
        coefficients, biases = _fit(x, labels, weights, (len(classes), inverse_penalty))
    return FittedClassifier(
        names=tuple(rows.names),
        classes=classes,
        weights=coefficients / temperature,
        biases=biases / temperature,
        temperature=temperature,
        calibrated_on=calibrated_on,
        heldout=_softmax(logits / temperature),
    )


def _numbered(rows: LabelledRows) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    names, labels = np.unique(np.asarray(rows.causes, dtype=str), return_inverse=True)
    shape, n_weights = rows.x.shape, len(labels) if rows.weights is None else len(rows.weights)
    lengths = {len(labels), len(rows.groups), n_weights}
    if lengths != {shape[0]} or len(set(rows.names)) != shape[1]:
        raise ValueError(
            f"x has shape {shape}; {len(labels)} causes, {len(rows.groups)} groups, {n_weights} weights, "
            f"{len(set(rows.names))} different names"
        )
    if len(names) < 2:
        raise InputError(
            "labelled incidents",
            expected="at least two different causes",
            found=f"{len(labels)} incident(s) of {names.tolist()}",
            remedy="label incidents of another cause, or train the detectors alone",
        )
    return tuple(names.tolist()), labels.astype(np.int64)


def _fit(x: Matrix, labels: NDArray[np.int64], weights: Vector, how: tuple[int, float]) -> tuple[Matrix, Vector]:
    """(weights (n_features, n_classes), biases (n_classes,)); a class without a row gets -inf as its bias."""
    n_classes, inverse_penalty = how
    coefficients, biases = np.zeros((x.shape[1], n_classes)), np.full(n_classes, -np.inf)
    present = np.unique(labels)
    biases[present] = 0.0
    if len(present) == 1:
        return coefficients, biases
    linear_model = required("sklearn.linear_model")
    model = linear_model.LogisticRegression(C=inverse_penalty, fit_intercept=False, max_iter=STEPS)
    with warnings.catch_warnings():
        # Stopped at STEPS the weights are merely a little rounder; held-out calibration sees them as they are.
        warnings.simplefilter("ignore", required("sklearn.exceptions").ConvergenceWarning)
        model.fit(x, labels, sample_weight=weights)
    # Of two classes scikit-learn keeps one column: the logit of the second against the first.
    coefficients[:, present[1:] if len(present) == 2 else present] = model.coef_.T
    return coefficients, biases


def _held_out_logits(x: Matrix, labels: NDArray[np.int64], weights: Vector, how: tuple[Labels, int, float]) -> Matrix:
    """Logits of each row, shape (n_rows, n_classes), by a fit without its run; all 0 (no opinion) with a single run."""
    groups, folds, inverse_penalty = how
    logits = np.zeros((len(x), int(labels.max()) + 1))
    if not is_grouped(groups):
        return logits
    for learn, hold in held_out(groups, folds):
        coefficients, biases = _fit(x[learn], labels[learn], weights[learn], (logits.shape[1], inverse_penalty))
        logits[hold] = x[hold] @ coefficients + biases
    return logits


def _temperature(logits: Matrix, labels: NDArray[np.int64], weights: Vector) -> tuple[float, int]:
    """(temperature, rows it rests on): the candidate with the smallest held-out log loss.

    A row whose cause occurs in no other run cannot be predicted held out, so it tells nothing of the temperature. As in
    Platt's scaling the target for the right cause is (n + 1) / (n + 2), not 1: n right answers out of n do not prove
    that the next one is certain.
    """
    own = logits[np.arange(len(labels)), labels]
    known: Flags = np.isfinite(own) & (logits.max(axis=1) > logits.min(axis=1))
    if int(known.sum()) < ENOUGH:
        return 1.0, 0
    losses = [_loss(logits[known] / t, labels[known], weights[known]) for t in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))]), int(known.sum())


def _loss(logits: Matrix, labels: NDArray[np.int64], weights: Vector) -> float:
    right = _softmax(logits)[np.arange(len(labels)), labels]
    target, tiny = (len(labels) + 1) / (len(labels) + 2), float(np.finfo(np.float64).tiny)
    losses = target * np.log(np.maximum(right, tiny)) + (1.0 - target) * np.log(np.maximum(1.0 - right, tiny))
    return -float((weights * losses).sum())


def _softmax(logits: Matrix) -> Matrix:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Matrix = powers / powers.sum(axis=1, keepdims=True)
    return shares
