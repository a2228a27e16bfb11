"""What a judge promises, and what the judges share: reading scaled rows and asking for an optional library."""

from __future__ import annotations

import importlib
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from features.errors import MissingExtra
from models.arrays import Matrix, Vector

USUAL = 4.0
"""Scaled units. Rows are learned from with their values limited to this, so that a few spikes do not shape the
model."""

RESIDUAL_FLOOR = 0.5
"""Scaled units. A feature that training rows predict perfectly may still be off by half a usual deviation unnoticed."""


class Detector(Protocol):
    """Learns from scaled healthy rows (`models.scaling`), then scores any scaled row. NaN counts as 0, no evidence."""

    def fit(self, x: ArrayLike) -> Self:
        """Learn from healthy rows, shape (n_rows, n_features). The input is not changed."""
        ...

    def score(self, x: ArrayLike) -> Vector:
        """Anomaly score, shape (n_rows,). Higher = more anomalous. Any real number; compares within one judge only."""
        ...


def required(module: str) -> Any:
    """A module of the `train` extra, or `MissingExtra` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            "training",
            expected=f"the module {module!r}",
            found=str(error),
            remedy="install the training extra: pip install 'rankwatch[train]'",
        ) from error


def residual_spread(x: Matrix, decoded: Matrix) -> Vector:
    """The usual size of each feature's residual, shape (n_features,), never below RESIDUAL_FLOOR."""
    rms: Vector = np.sqrt(np.mean((x - decoded) ** 2, axis=0))
    return np.maximum(rms, RESIDUAL_FLOOR)


def weighed_residuals(x: Matrix, decoded: Matrix, spread: Vector) -> Matrix:
    """Residuals in units of their usual size, shape (n_rows, n_features).

    A value of exactly 0 is "as usual" or "not measured"; whatever the other features let expect in its place, it is no
    evidence, so its residual is 0.
    """
    return np.where(x == 0.0, 0.0, (x - decoded) / spread)


def rms_rows(residuals: Matrix) -> Vector:
    """Root of the mean square of each row, shape (n_rows,): grows linearly with a deviation."""
    score: Vector = np.sqrt(np.mean(residuals**2, axis=1))
    return score
