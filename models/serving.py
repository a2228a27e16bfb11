"""Judges and classifiers from ONNX bytes, run by onnxruntime alone: no training library is ever imported here."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.arrays import Matrix, Vector, filled

ROWS_AT_ONCE = 1024
"""Bounds the memory of one call."""


def _session(graph: bytes) -> Any:
    """One thread, deterministic kernels: a score depends on its row alone, and a scorer never takes a whole machine."""
    # Its builds report usage to their maker by default; a tool that reads a site's logs must not call anybody.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # a third of a second, which `--help` need not wait for

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 3  # errors; what is wrong is raised, a library does not write on stderr
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class _Served:
    def __init__(self, graph: bytes) -> None:
        self._run = _session(graph)
        self.n_features = int(self._run.get_inputs()[0].shape[1])
        self.outputs = tuple(output.name for output in self._run.get_outputs())

    def _answer(self, output: str, x: Matrix) -> NDArray[np.float64]:
        if x.shape[1] != self.n_features:
            raise ValueError(f"the graph reads {self.n_features} features, found {x.shape[1]}")
        rows = x.astype(np.float32)
        parts = [
            self._run.run([output], {"x": rows[start : start + ROWS_AT_ONCE]})[0]
            for start in range(0, max(len(rows), 1), ROWS_AT_ONCE)
        ]
        return np.concatenate(parts).astype(np.float64)


class ServedJudge(_Served):
    """A judge of `models.detectors` as its graph; input is scaled rows (n_rows, n_features), NaN counts as 0."""

    @property
    def explains(self) -> bool:
        """Whether the graph itself says how far each feature is from what it should be."""
        return "residuals" in self.outputs

    def score(self, x: ArrayLike) -> Vector:
        """Anomaly score, shape (n_rows,). Higher = more anomalous; equals the trained judge's within 1e-5."""
        return self._answer("score", filled(x))

    def explain(self, x: ArrayLike) -> Matrix:
        """What each feature adds to the anomaly, shape (n_rows, n_features), never negative.

        Squared residuals where the graph has them; otherwise how far the score falls when the feature is set to 0,
        which costs n_features scorings per row.
        """
        rows = filled(x)
        return self._answer("residuals", rows) ** 2 if self.explains else self._falls(rows)

    def _falls(self, rows: Matrix) -> Matrix:
        scores = self.score(rows)
        falls = np.zeros_like(rows)
        for feature in np.flatnonzero(rows.any(axis=0)):
            usual = rows.copy()
            usual[:, feature] = 0.0
            falls[:, feature] = scores - self.score(usual)
        return np.maximum(falls, 0.0)


class ServedClassifier(_Served):
    """A classifier of `models.classifier` as its graph."""

    def probabilities(self, x: ArrayLike) -> Matrix:
        """Probability of each class, shape (n_rows, n_classes); rows sum to 1. NaN counts as 0, no evidence."""
        return self._answer("probability", filled(x))

    def explain(self, x: ArrayLike, classes: NDArray[np.int64]) -> Matrix:
        """How much each feature speaks for the row's class, shape (n_rows, n_features), in natural log of probability.

        `classes` is the class number per row. Positive = without this feature the class would be less likely.
        """
        rows = filled(x)
        pick = np.arange(len(rows)), classes
        whole = np.log(self.probabilities(rows)[pick])
        gains = np.zeros_like(rows)
        for feature in np.flatnonzero(rows.any(axis=0)):
            without = rows.copy()
            without[:, feature] = 0.0
            gains[:, feature] = whole - np.log(self.probabilities(without)[pick])
        return gains
