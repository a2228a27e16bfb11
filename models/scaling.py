"""Robust scaling of features, learned on healthy rows: 0 is the healthy median, 1 a usual deviation from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Flags, Matrix, Vector, as_matrix

CLIP = 16.0
"""Scaled units. Beyond it more is not more unusual, and one value must not drown the others. On recorded runs 8 hid
faults that show in one or two features, and from 30 on spikes of healthy runs did."""

MAD_TO_SIGMA = 1.4826
"""Of a normal distribution, the median absolute deviation times this is the standard deviation (1 / Phi^-1(3/4))."""

TINY = 1e-9
"""Scaled units per unit. Only keeps a constant feature with no floor from dividing by zero; any change is then
extreme."""


@dataclass(frozen=True, eq=False)
class Scaler:
    """Centre and scale of each feature; `seen` is False for columns that held no finite value in training.

    A missing value (NaN) becomes 0. Features are built so that 0 means "as usual", the centre is the healthy median,
    and so a source that is missing says nothing for or against: it neither raises an alarm nor hides one that other
    features raise. A column never seen in training has no usual value, so whatever it holds later stays 0 too.
    Infinities are clipped.
    """

    centre: Vector
    scale: Vector
    seen: Flags
    clip: float = CLIP

    @classmethod
    def learn(cls, x: ArrayLike, floors: ArrayLike) -> Self:
        """From healthy rows `x` (n_rows, n_features) and the smallest scale that each feature may get (n_features,)."""
        matrix = as_matrix(x)
        floor = np.broadcast_to(np.asarray(floors, dtype=np.float64), matrix.shape[1:])
        finite = np.where(np.isfinite(matrix), matrix, np.nan)
        seen: Flags = np.asarray(np.isfinite(matrix).any(axis=0), dtype=np.bool_)
        centre, spread = np.zeros(len(seen)), np.zeros(len(seen))
        centre[seen] = np.nanmedian(finite[:, seen], axis=0)
        spread[seen] = np.nanmedian(np.abs(finite[:, seen] - centre[seen]), axis=0) * MAD_TO_SIGMA
        return cls(centre=centre, scale=np.maximum.reduce([spread, floor, np.full(len(seen), TINY)]), seen=seen)

    def transform(self, x: ArrayLike) -> Matrix:
        """Scaled copy, shape (n_rows, n_features), every value within [-clip, clip]."""
        scaled = (as_matrix(x) - self.centre) / self.scale
        scaled[:, ~self.seen] = 0.0
        return np.clip(np.nan_to_num(scaled, nan=0.0, posinf=np.inf, neginf=-np.inf), -self.clip, self.clip)
