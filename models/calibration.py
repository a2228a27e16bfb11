"""One scale for all judges: how surprising a score is among held-out healthy rows (-log10 of its tail probability)."""

from __future__ import annotations

from typing import Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Vector
from models.tails import Tail

KNOTS = 64
"""Points kept of the empirical distribution; between them it is read off a straight line."""

CREDIBLE = 6.0
"""Surprise (one in a million) up to which an extrapolated probability is taken at its word. No training set is large
enough to support more, so beyond it a surprise grows with the logarithm: still an order, no longer a probability."""

AGREEING = 2
"""Judges whose surprises count. Those that are blind to a kind of fault cannot outvote the others, as they do in the
mean of all; and one that errs alone raises the score by half only, so the limit stays lower than for the largest. On
recorded runs, held out, this found 77 % of the faulty windows, the mean of all 74 %, the largest 73 %, at the same
rate of false alarms."""


class Score(msgspec.Struct, frozen=True):
    """How unusual one row is.

    `value`: combined surprise, higher = more anomalous. `surprises` holds each
    judge's surprise, `raw` each judge's own score, which compares within that judge only.
    """

    value: float
    surprises: dict[str, float]
    raw: dict[str, float]


class SurpriseScale(msgspec.Struct, frozen=True):
    """A judge's scores -> surprise: empirical up to the tail, exponential beyond it. Never decreasing.

    `scores` and `surprises` are the knots, ascending, the last of them where the tail starts.
    """

    scores: tuple[float, ...]
    surprises: tuple[float, ...]
    tail: Tail

    @classmethod
    def fit(cls, scores: ArrayLike) -> Self:
        """From the scores of held-out healthy rows, shape (n_rows,), n_rows >= 1."""
        values = np.sort(np.asarray(scores, dtype=np.float64))
        tail = Tail.fit(values)
        body = np.unique(values[values <= tail.start])
        knots = body[np.unique(np.linspace(0, len(body) - 1, KNOTS).round().astype(int))]
        at_or_above = len(values) - np.searchsorted(values, knots, side="left")
        surprises = -np.log10(at_or_above / (len(values) + 1.0))
        top = float(tail.surprise(np.array([tail.start]))[0])
        return cls(tuple(knots.tolist()), tuple(np.minimum(surprises, top).tolist()), tail)

    def surprise(self, scores: ArrayLike) -> Vector:
        """Surprise of each score, same shape: 0 = all healthy rows score as much, 2 = one in a hundred does."""
        values = np.asarray(scores, dtype=np.float64)
        body = np.interp(values, self.scores, self.surprises)
        beyond = np.maximum(self.tail.surprise(values), body)
        return _credible(np.where(values > self.tail.start, beyond, body))


def _credible(surprise: Vector) -> Vector:
    excess = np.maximum(surprise - CREDIBLE, 0.0)
    tempered: Vector = np.minimum(surprise, CREDIBLE) + np.log1p(excess)
    return tempered


def combine(surprises: ArrayLike) -> Vector:
    """One surprise per row, shape (n_rows,), from the judges' (n_judges, n_rows): the mean of the AGREEING largest."""
    ordered = np.sort(np.asarray(surprises, dtype=np.float64), axis=0)
    mean: Vector = ordered[-AGREEING:].mean(axis=0)
    return mean
