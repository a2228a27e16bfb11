"""A linear judge: what is left of a row after the directions in which healthy rows vary together are taken out."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Matrix, Vector, filled
from models.detectors.contract import USUAL, residual_spread, rms_rows, weighed_residuals

VARIANCE_KEPT = 0.8
"""Share of the healthy variance that counts as ordinary; the rest is where faults show."""

DIRECTIONS_PER_FEATURE = 0.4
"""At most this many directions per feature, so that a row can never be reproduced by heart."""


class PCA:
    """Score = root mean square of the weighed reconstruction residuals.

    Sees a feature that leaves its usual company (a rank slow without more data to load). Fails when healthy rows vary
    along a curve; the autoencoder covers that. Needs numpy alone.
    """

    mean_: Vector
    directions_: Matrix  # (n_directions, n_features), orthonormal rows
    spread_: Vector

    def fit(self, x: ArrayLike) -> Self:
        """Learn mean and directions from healthy scaled rows (n_rows, n_features)."""
        rows = filled(x)
        usual = np.clip(rows, -USUAL, USUAL)
        self.mean_ = usual.mean(axis=0)
        _, singular, directions = np.linalg.svd(usual - self.mean_, full_matrices=False)
        self.directions_ = directions[: _enough(singular**2, rows.shape[1])]
        self.spread_ = residual_spread(rows, self._decode(rows))
        return self

    def _decode(self, x: Matrix) -> Matrix:
        codes = (x - self.mean_) @ self.directions_.T  # (n_rows, n_directions)
        return codes @ self.directions_ + self.mean_

    def residuals(self, x: ArrayLike) -> Matrix:
        """Signed residual in units of its usual size, shape (n_rows, n_features)."""
        rows = filled(x)
        return weighed_residuals(rows, self._decode(rows), self.spread_)

    def score(self, x: ArrayLike) -> Vector:
        """Anomaly score, shape (n_rows,). Higher = more anomalous; about 1 is usual."""
        return rms_rows(self.residuals(x))


def _enough(variances: Vector, n_features: int) -> int:
    """How many directions hold VARIANCE_KEPT, within the bound per feature; at least one, as a graph needs a shape."""
    total = float(variances.sum())
    if total <= 0.0:
        return 1
    wanted = int(np.searchsorted(np.cumsum(variances) / total, VARIANCE_KEPT)) + 1
    return max(1, min(wanted, int(n_features * DIRECTIONS_PER_FEATURE), len(variances)))
