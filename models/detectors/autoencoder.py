"""A small dense autoencoder: what a row should look like, judging by healthy ones; the difference is the
explanation."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Matrix, Vector, filled
from models.detectors.contract import USUAL, required, residual_spread, rms_rows, weighed_residuals

STEPS = 300
"""Steps of Adam, however many rows there are: bounds the time. On correlated data of 60 features the ranking of
broken rows no longer improved beyond this; the fit is meant to be stopped, not to converge."""

COPIES = 1
"""Corrupted copies of every row that are trained on beside the row itself."""

DROPOUT_UP_TO = 0.5
"""A copy loses a share of its features drawn from [0, this]: a missing source must not look like a fault."""

LEARNING_RATE = 1e-2
"""Per step of Adam: ten times scikit-learn's default, as the steps are few."""

WEIGHT_DECAY = 1e-3
"""L2 penalty: keeps the map smooth where healthy rows are thin."""

BATCH_ROWS = 256
"""Rows per step of Adam."""


class Autoencoder:
    """Score = root mean square of the weighed residuals between a row and its reconstruction.

    Trained as a denoiser: it sees rows with features taken away (set to 0, as a missing source is) and learns to say
    the whole row. Layers: features -> wide -> narrow -> wide -> features, tanh between. Fails to tell anything on
    features that never vary in training: those keep their own deviation as the residual.
    """

    weights_: list[Matrix]  # per layer (n_in, n_out)
    biases_: list[Vector]  # per layer (n_out,)
    spread_: Vector

    def __init__(self, *, seed: int, steps: int = STEPS) -> None:
        """Store the seed of dropout and weights, and the number of training steps."""
        self.seed, self.steps = seed, steps

    def fit(self, x: ArrayLike) -> Self:
        """Train on healthy scaled rows (n_rows, n_features). Needs the `train` extra."""
        rows = filled(x)
        usual = np.clip(rows, -USUAL, USUAL)
        corrupted, whole = _with_dropout(usual, np.random.default_rng(self.seed))
        network = self._network(rows.shape[1], len(whole))
        with warnings.catch_warnings():
            # Stopping before convergence is the plan, see STEPS.
            warnings.simplefilter("ignore", required("sklearn.exceptions").ConvergenceWarning)
            network.fit(corrupted, whole if whole.shape[1] > 1 else whole.ravel())
        self.weights_ = [np.asarray(w, dtype=np.float64) for w in network.coefs_]
        self.biases_ = [np.asarray(b, dtype=np.float64) for b in network.intercepts_]
        self.spread_ = residual_spread(rows, self._decode(rows))
        return self

    def _network(self, n_features: int, n_rows: int) -> Any:
        narrow = max(2, min(n_features // 5, 12))
        batch_rows = min(BATCH_ROWS, n_rows)
        return required("sklearn.neural_network").MLPRegressor(
            hidden_layer_sizes=(3 * narrow, narrow, 3 * narrow),
            activation="tanh",
            alpha=WEIGHT_DECAY,
            batch_size=batch_rows,
            learning_rate_init=LEARNING_RATE,
            max_iter=max(1, self.steps * batch_rows // n_rows),
            n_iter_no_change=self.steps,
            random_state=self.seed,
        )

    def _decode(self, x: Matrix) -> Matrix:
        values = x
        for weights, biases in zip(self.weights_[:-1], self.biases_[:-1], strict=True):
            values = np.tanh(values @ weights + biases)
        return values @ self.weights_[-1] + self.biases_[-1]  # (n_rows, n_features)

    def residuals(self, x: ArrayLike) -> Matrix:
        """Signed residual in units of its usual size, shape (n_rows, n_features)."""
        rows = filled(x)
        return weighed_residuals(rows, self._decode(rows), self.spread_)

    def score(self, x: ArrayLike) -> Vector:
        """Anomaly score, shape (n_rows,). Higher = more anomalous; about 1 is usual."""
        return rms_rows(self.residuals(x))


def _with_dropout(rows: Matrix, random: np.random.Generator) -> tuple[Matrix, Matrix]:
    """(corrupted, whole), both ((1 + COPIES) * n_rows, n_features); the first n_rows are untouched in both."""
    copies = np.tile(rows, (COPIES, 1))
    lost_share = random.uniform(0.0, DROPOUT_UP_TO, size=(len(copies), 1))
    kept = random.uniform(size=copies.shape) >= lost_share
    return np.vstack([rows, copies * kept]), np.vstack([rows, copies])
