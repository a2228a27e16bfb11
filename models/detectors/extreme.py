"""The simplest judge: the largest deviation of a row, against how far that feature strays when all is well."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Matrix, Vector, filled
from models.tails import Tail

START_FLOOR = 1.0
"""Scaled units: one usual deviation is within every feature's body, also of one that never moves in healthy rows."""

TAIL_FLOOR = 0.5
"""Scaled units: a feature that never moves in healthy rows still needs half a usual deviation to count for one."""


class Extreme:
    """Score = max over features of (|scaled value| - start) / scale, start and scale of the feature's own healthy tail.

    So a feature that often spikes when all is well must spike higher to count as much as one that never does. Catches
    one clear deviation that means over many features dilute; blind to combinations of small ones, which the other
    judges see. Learns two numbers per feature, so it is the one to trust when healthy rows are few.
    """

    start_: Vector
    scale_: Vector

    def fit(self, x: ArrayLike) -> Self:
        """Learn each feature's tail from healthy scaled rows (n_rows, n_features)."""
        tails = [Tail.fit(column) for column in np.abs(filled(x)).T]
        self.start_ = np.maximum([tail.start for tail in tails], START_FLOOR)
        self.scale_ = np.maximum([tail.scale for tail in tails], TAIL_FLOOR)
        return self

    def residuals(self, x: ArrayLike) -> Matrix:
        """Signed deviation beyond the tail's start in units of its scale, shape (n_rows, n_features); 0 before it."""
        rows = filled(x)
        return np.sign(rows) * np.maximum((np.abs(rows) - self.start_) / self.scale_, 0.0)

    def score(self, x: ArrayLike) -> Vector:
        """Anomaly score, shape (n_rows,). Higher = more anomalous; below 0 no feature is in its tail."""
        score: Vector = ((np.abs(filled(x)) - self.start_) / self.scale_).max(axis=1)
        return score
