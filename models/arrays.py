"""The array shapes that the package speaks: a matrix of rows by features, a vector of one number per row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
Labels = NDArray[Any]


def as_matrix(x: ArrayLike) -> Matrix:
    """A float64 matrix (n_rows, n_features); the input is never changed, and not copied where it already is one."""
    matrix = np.asarray(x, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"a matrix of (rows, features) is needed, found {matrix.ndim} dimension(s)")
    return matrix


def filled(x: ArrayLike) -> Matrix:
    """As `as_matrix`, with 0 in place of NaN: in scaled features 0 is the healthy median, so it is no evidence."""
    return np.nan_to_num(as_matrix(x), nan=0.0, posinf=np.inf, neginf=-np.inf)
