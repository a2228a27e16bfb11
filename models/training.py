"""Training of the judges: scaling, grouped held-out calibration, and the final fit on all healthy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from features.errors import InputError
from models.arrays import Labels, Matrix, Vector, as_matrix
from models.calibration import SurpriseScale, combine
from models.detectors import DETECTORS, Detector
from models.detectors.contract import required
from models.folds import held_out
from models.limits import Limit
from models.scaling import Scaler

ROWS_TO_LEARN_FROM = 30
"""Rows. Fewer cannot tell a usual deviation from an unusual one; a median of each feature is then all there is."""

FOLDS = 5
"""Each judge is fitted this many times plus one; more folds cost time and hardly change the limit."""


@dataclass(frozen=True, eq=False)
class HealthyRows:
    """Rows of healthy runs to learn from.

    `x`: (n_rows, n_features), NaN = source missing. `names`, `units`: of the features. `floors`: (n_features,), the
    smallest scale of each feature in its unit. `groups`: (n_rows,), the run of each row. `blocks`: (n_rows,), the
    window of each row within its run, for counting false alarms by window; None counts every row.
    """

    x: Matrix
    names: Sequence[str]
    units: Sequence[str]
    floors: Vector
    groups: Labels
    blocks: Labels | None = None


@dataclass(frozen=True, eq=False)
class FittedDetectors:
    """What training the judges gives: all that a bundle needs to know of them.

    `heldout` is the combined surprise of each training row by judges that had not seen its run, shape (n_rows,).
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    scaler: Scaler
    judges: Mapping[str, Detector]
    scales: Mapping[str, SurpriseScale]
    limit: Limit
    heldout: Vector
    seed: int


def train_detectors(
    rows: HealthyRows,
    *,
    seed: int,
    false_alarm_rate: float,
    folds: int = FOLDS,
    judges: Sequence[str] = tuple(DETECTORS),
) -> FittedDetectors:
    """Fit the named judges on healthy rows and calibrate them on rows held out by run.

    `false_alarm_rate` is the share of healthy windows that may pass the limit (`models.limits.rate_per_window`
    converts alarms per hour). Same rows, seed and library versions give the same result to the bit. Needs the `train`
    extra.
    """
    x = _checked(rows)
    with one_thread():
        raw = _held_out_scores(rows, x, seed=seed, folds=folds, judges=judges)
        scaler = Scaler.learn(x, rows.floors)
        fitted = _fit(scaler.transform(x), seed, judges)
    scales = {name: SurpriseScale.fit(raw[name]) for name in judges}
    combined = combine([scales[name].surprise(raw[name]) for name in judges])
    limit = Limit.fit(combined, rows.groups, rate=false_alarm_rate, blocks=rows.blocks)
    return FittedDetectors(tuple(rows.names), tuple(rows.units), scaler, fitted, scales, limit, heldout=combined, seed=seed)


def one_thread() -> AbstractContextManager[object]:
    """Linear algebra on one thread: sums do not depend on the number of cores, and small ones are faster."""
    limits: AbstractContextManager[object] = required("threadpoolctl").threadpool_limits(1)
    return limits


def _fit(scaled: Matrix, seed: int, judges: Sequence[str]) -> dict[str, Detector]:
    return {name: DETECTORS[name](seed).fit(scaled) for name in judges}


def _held_out_scores(rows: HealthyRows, x: Matrix, *, seed: int, folds: int, judges: Sequence[str]) -> dict[str, Vector]:
    """Each judge's score of every row, shape (n_rows,), by a fit that saw no row of the same run."""
    scores = {name: np.empty(len(x)) for name in judges}
    for learn, hold in held_out(rows.groups, folds):
        scaler = Scaler.learn(x[learn], rows.floors)
        scaled = scaler.transform(x[hold])
        for name, judge in _fit(scaler.transform(x[learn]), seed, judges).items():
            scores[name][hold] = judge.score(scaled)
    return scores


def _checked(rows: HealthyRows) -> Matrix:
    x = as_matrix(rows.x)
    lengths = {"names": len(set(rows.names)), "units": len(rows.units), "floors": len(np.atleast_1d(rows.floors))}
    wrong = {name: length for name, length in lengths.items() if length != x.shape[1]}
    if wrong or len(rows.groups) != len(x) or (rows.blocks is not None and len(rows.blocks) != len(x)):
        raise ValueError(f"x has shape {x.shape}; lengths that disagree: {wrong or 'groups or blocks'}")
    if len(x) < ROWS_TO_LEARN_FROM or not np.isfinite(x).any():
        raise InputError(
            "healthy training rows",
            expected=f"at least {ROWS_TO_LEARN_FROM} rows with values",
            found=f"{len(x)} rows, {int(np.isfinite(x).sum())} values",
            remedy="train on longer or more healthy runs",
        )
    return x
