"""Isolation forest through pyod: rows that few random cuts set apart are unusual."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Matrix, Vector, filled
from models.detectors.contract import required

TREES = 100
"""As in the paper; more trees cost time and change scores by less than the limits can tell apart."""

STRANGE_SHARE = 0.5
"""Strange rows added to the healthy ones, as a share of them; see `_with_strange`."""

STRAYING = (1 / 12, 1 / 2)
"""Share of its features that stray in a strange row, from and to: a fault shows in several features, rarely in most."""

STRAYS_BY = (2.0, 12.0)
"""Scaled units, from and to: from what the tail of healthy rows still holds to what nobody would call healthy."""

EULER = 0.5772156649015329
"""The Euler-Mascheroni constant, as H(i) is about ln(i) + EULER."""


def average_path(n: int) -> float:
    """c(n): mean depth at which an unsuccessful search in a binary tree of n rows ends.

    Liu, Ting, Zhou: Isolation Forest, ICDM 2008, equation 1, with scikit-learn's values for n <= 2.
    """
    if n <= 1:
        return 0.0
    if n == 2:
        return 1.0
    return 2.0 * (float(np.log(n - 1.0)) + EULER) - 2.0 * (n - 1.0) / n


class IsolationForest:
    """Score = 2 ** (-E(depth) / c(rows per tree)), within (0, 1): about 0.5 is usual, towards 1 is isolated early.

    Sees rows that are odd in several features at once. Some strange rows are grown into the trees, for a tree that
    knows healthy rows alone has no cut beyond them, and takes a row far outside for the outermost healthy one. Weak
    when a single feature among many is off, since most cuts fall elsewhere; its range is narrow, so its scores need
    calibration before they compare with another judge's.
    """

    forest_: Any  # pyod.models.iforest.IForest

    def __init__(self, *, seed: int, trees: int = TREES) -> None:
        """Store the seed of all cuts and the number of trees."""
        self.seed, self.trees = seed, trees

    def fit(self, x: ArrayLike) -> Self:
        """Grow the trees on healthy scaled rows (n_rows, n_features). Needs the `train` extra."""
        pyod = required("pyod.models.iforest")
        rows = _with_strange(filled(x), np.random.default_rng(self.seed))
        self.forest_ = pyod.IForest(n_estimators=self.trees, random_state=self.seed).fit(rows)
        return self

    def score(self, x: ArrayLike) -> Vector:
        """Anomaly score, shape (n_rows,). Higher = more anomalous.

        pyod shifts the score by an offset that depends on its `contamination` guess; it is taken out again, which
        leaves the paper's score (scikit-learn's `-score_samples`).
        """
        shifted = self.forest_.decision_function(filled(x))
        return np.asarray(shifted - self.forest_.offset_, dtype=np.float64)


def _with_strange(rows: Matrix, random: np.random.Generator) -> Matrix:
    """The healthy rows and strange ones below them: healthy rows of which some features were pushed away, either
    way."""
    n_features = rows.shape[1]
    strange = rows[random.integers(0, len(rows), int(len(rows) * STRANGE_SHARE))]
    fewest, most = (max(1, round(share * n_features)) for share in STRAYING)
    how_many = random.integers(fewest, most + 1, size=(len(strange), 1))
    strays = random.permuted(np.tile(np.arange(n_features), (len(strange), 1)), axis=1) < how_many
    push = random.uniform(*STRAYS_BY, size=strange.shape) * random.choice([-1.0, 1.0], size=strange.shape)
    return np.vstack([rows, strange + strays * push])
