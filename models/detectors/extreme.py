"""The simplest judge: the largest deviation of a row, against how far that feature usually strays."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Matrix, Vector, filled

REACH_QUANTILE = 0.99
"""Share of healthy rows within a feature's reach. A feature that often spikes when all is well must spike higher to
count."""

REACH_FLOOR = 1.0
"""Scaled units: a feature that never moves in healthy rows still has the reach of one usual deviation."""


class Extreme:
    """Score = max over features of |scaled value| / reach.

    Catches one clear deviation that means over many features dilute; blind to combinations of small ones, which is
    what the other judges are for. Learns one number per feature, so it is the one to trust when healthy rows are few.
    """

    reach_: Vector

    def fit(self, x: ArrayLike) -> Self:
        """Learn each feature's reach from healthy scaled rows (n_rows, n_features)."""
        usual: Vector = np.quantile(np.abs(filled(x)), REACH_QUANTILE, axis=0)
        self.reach_ = np.maximum(usual, REACH_FLOOR)
        return self

    def residuals(self, x: ArrayLike) -> Matrix:
        """Signed deviation in units of reach, shape (n_rows, n_features)."""
        return filled(x) / self.reach_

    def score(self, x: ArrayLike) -> Vector:
        """Anomaly score, shape (n_rows,). Higher = more anomalous; up to about 1 is usual."""
        score: Vector = np.abs(self.residuals(x)).max(axis=1)
        return score
