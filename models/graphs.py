"""Fitted judges and classifiers as ONNX graphs, written by hand with onnx.helper. Needs the `train` extra.

Every graph reads `x` (n_rows, n_features) float32. A judge answers `score` (n_rows,), the judges that compare a row
with what it should be answer `residuals` (n_rows, n_features) too; a classifier answers `probability` (n_rows,
n_classes).

The forest is ONE TreeEnsembleRegressor whose leaves hold depth + c(rows in the leaf). The generic converter's graph
walks every tree to a leaf number and looks the depth up, which is slower than scikit-learn itself in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from models.arrays import Matrix, Vector
from models.detectors import PCA, Autoencoder, Detector, Extreme, IsolationForest
from models.detectors.contract import required
from models.detectors.forest import average_path

OPSET = 18
"""ONNX operators of 2022: the first where ReduceMax takes its axes as an input; read by every onnxruntime since
1.14."""

ML_OPSET = 3
"""The last opset with TreeEnsembleRegressor as it is not deprecated."""

IR_VERSION = 8
"""The file format that belongs to OPSET; the newest one would shut out runtimes that could run the graph."""


class _Graph:
    """Collects nodes and constants; names are counted, so that the same judge always gives the same bytes."""

    def __init__(self) -> None:
        self.onnx = required("onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Matrix | Vector | float, dtype: type[np.generic] = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def add(self, operator: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        name = to if to is not None else f"t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def serialize(self, n_features: int, outputs: dict[str, list[str | int]]) -> bytes:
        helper, real = self.onnx.helper, self.onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "rankwatch",
            [helper.make_tensor_value_info("x", real, ["rows", n_features])],
            [helper.make_tensor_value_info(name, real, shape) for name, shape in outputs.items()],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rankwatch")
        self.onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))


def judge_graph(judge: Detector) -> bytes:
    """The graph of a fitted judge of `models.detectors.DETECTORS`."""
    for kind, write in _WRITERS.items():
        if isinstance(judge, kind):
            return write(judge)
    raise TypeError(f"no graph is known for a judge of type {type(judge).__name__}")


def classifier_graph(weights: Matrix, biases: Vector) -> bytes:
    """Softmax(x @ weights + biases): weights (n_features, n_classes), biases (n_classes,)."""
    graph = _Graph()
    logits = graph.add("Gemm", "x", graph.constant(weights), graph.constant(biases))
    graph.add("Softmax", logits, to="probability", axis=1)
    return graph.serialize(weights.shape[0], {"probability": ["rows", weights.shape[1]]})


def _with_residuals(graph: _Graph, n_features: int) -> bytes:
    return graph.serialize(n_features, {"score": ["rows"], "residuals": ["rows", n_features]})


def _weighed_residuals(graph: _Graph, decoded: str, spread: Vector) -> bytes:
    """The counterpart of `contract.weighed_residuals` and `contract.rms_rows`."""
    zero = graph.constant(0.0)
    weighed = graph.add("Div", graph.add("Sub", "x", decoded), graph.constant(spread))
    residuals = graph.add("Where", graph.add("Equal", "x", zero), zero, weighed, to="residuals")
    # A product, as ReduceMean sums in an order that depends on where in memory, so where in its batch, a row begins.
    share = graph.constant(np.full((len(spread), 1), 1.0 / len(spread)))
    mean = graph.add("MatMul", graph.add("Mul", residuals, residuals), share)  # (n_rows, 1)
    graph.add("Sqrt", graph.add("Squeeze", mean, graph.constant(np.array([1]), np.int64)), to="score")
    return _with_residuals(graph, len(spread))


def _extreme(judge: Extreme) -> bytes:
    graph = _Graph()
    above = graph.add("Sub", graph.add("Abs", "x"), graph.constant(judge.start_))
    scaled = graph.add("Div", above, graph.constant(judge.scale_))
    graph.add("Mul", graph.add("Sign", "x"), graph.add("Relu", scaled), to="residuals")
    graph.add("ReduceMax", scaled, graph.constant(np.array([1]), np.int64), to="score", keepdims=0)
    return _with_residuals(graph, len(judge.scale_))


def _pca(judge: PCA) -> bytes:
    graph = _Graph()
    mean = graph.constant(judge.mean_)
    codes = graph.add("MatMul", graph.add("Sub", "x", mean), graph.constant(judge.directions_.T))
    decoded = graph.add("Add", graph.add("MatMul", codes, graph.constant(judge.directions_)), mean)
    return _weighed_residuals(graph, decoded, judge.spread_)


def _autoencoder(judge: Autoencoder) -> bytes:
    graph, values = _Graph(), "x"
    for layer, (weights, biases) in enumerate(zip(judge.weights_, judge.biases_, strict=True)):
        values = graph.add("Add", graph.add("MatMul", values, graph.constant(weights)), graph.constant(biases))
        if layer < len(judge.weights_) - 1:
            values = graph.add("Tanh", values)
    return _weighed_residuals(graph, values, judge.spread_)


def _forest(judge: IsolationForest) -> bytes:
    trees = [estimator.tree_ for estimator in judge.forest_.estimators_]
    graph = _Graph()
    depth = graph.add("TreeEnsembleRegressor", "x", domain="ai.onnx.ml", **_ensemble(trees))  # (n_rows, 1): E(depth)
    mean_depth = average_path(int(judge.forest_.max_samples_))
    exponent = graph.add("Mul", depth, graph.constant(-1.0 / mean_depth))
    flat = graph.add("Squeeze", exponent, graph.constant(np.array([1]), np.int64))
    graph.add("Pow", graph.constant(2.0), flat, to="score")
    return graph.serialize(int(judge.forest_.n_features_in_), {"score": ["rows"]})


def _ensemble(trees: list[Any]) -> dict[str, Any]:
    """The attributes of the TreeEnsembleRegressor, tree after tree."""
    sizes = [int(tree.node_count) for tree in trees]
    tree_ids = np.repeat(np.arange(len(trees)), sizes)
    node_ids = np.concatenate([np.arange(size) for size in sizes])
    is_leaf = np.concatenate([tree.children_left < 0 for tree in trees])

    def of_branches(arrays: list[Any]) -> list[int]:
        return [int(v) for v in np.where(is_leaf, 0, np.concatenate(arrays))]

    thresholds = np.where(is_leaf, 0.0, np.concatenate([tree.threshold for tree in trees]))
    n_leaves = int(is_leaf.sum())
    return {
        "n_targets": 1,
        "aggregate_function": "AVERAGE",
        "nodes_treeids": tree_ids.tolist(),
        "nodes_nodeids": node_ids.tolist(),
        "nodes_featureids": of_branches([tree.feature for tree in trees]),
        "nodes_modes": ["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf],
        "nodes_values": _not_above(thresholds).tolist(),
        "nodes_truenodeids": of_branches([tree.children_left for tree in trees]),
        "nodes_falsenodeids": of_branches([tree.children_right for tree in trees]),
        "target_treeids": tree_ids[is_leaf].tolist(),
        "target_nodeids": node_ids[is_leaf].tolist(),
        "target_ids": [0] * n_leaves,
        "target_weights": np.concatenate([_leaf_depths(tree) for tree in trees]).tolist(),
    }


def _leaf_depths(tree: Any) -> Vector:
    """Depth + c(rows) of each leaf, in the order of the nodes; the root has depth 0."""
    depth = np.zeros(tree.node_count)
    for node in range(tree.node_count):  # parents come before children
        if tree.children_left[node] >= 0:
            depth[tree.children_left[node]] = depth[tree.children_right[node]] = depth[node] + 1
    leaves = np.flatnonzero(tree.children_left < 0)
    return np.array([depth[leaf] + average_path(int(tree.n_node_samples[leaf])) for leaf in leaves])


def _not_above(thresholds: Vector) -> Vector:
    """The largest float32 not above each threshold: a float32 x is <= the one exactly when it is <= the other."""
    rounded = thresholds.astype(np.float32)
    below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > thresholds, below, rounded).astype(np.float64)


_WRITERS: dict[type[Any], Callable[[Any], bytes]] = {
    Autoencoder: _autoencoder,
    Extreme: _extreme,
    IsolationForest: _forest,
    PCA: _pca,
}
