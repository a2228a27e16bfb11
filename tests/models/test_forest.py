"""The isolation forest against closed forms and against scikit-learn's own scores."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from models.detectors import IsolationForest
from models.detectors.forest import EULER, average_path
from models.graphs import judge_graph
from models.serving import ServedJudge


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, 0.0),
        (1, 0.0),
        (2, 1.0),
        (3, 2.0 * (np.log(2.0) + EULER) - 4.0 / 3.0),
        (256, 10.244770920116851),
    ],
)
def test_average_path_length_in_closed_form(n: int, expected: float) -> None:
    assert average_path(n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [50, 256, 1000])
def test_average_path_length_is_near_the_exact_harmonic_sum(n: int) -> None:
    harmonic = sum(1.0 / i for i in range(1, n))

    assert average_path(n) == pytest.approx(2.0 * harmonic - 2.0 * (n - 1) / n, abs=1.0 / n * 1.1)


@pytest.mark.parametrize("rows", [2, 3, 40, 700])
def test_graph_equals_the_negated_score_samples_of_scikit_learn(rows: int) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, 6))
    forest = IsolationForest(seed=1).fit(x)
    asked = np.vstack([x, 4.0 * x, np.zeros((1, 6))]).astype(np.float32).astype(np.float64)

    expected = -forest.forest_.detector_.score_samples(asked)

    np.testing.assert_allclose(forest.score(asked), expected, atol=1e-12)
    np.testing.assert_allclose(ServedJudge(judge_graph(forest)).score(asked), expected, atol=1e-5)


def test_rows_on_a_threshold_go_the_way_they_go_in_training() -> None:
    """A float64 threshold cannot be kept in float32; the rounding must not move the rows that lie on it."""
    x = np.random.default_rng(8).integers(0, 4, size=(300, 4)) / 3.0
    forest = IsolationForest(seed=1, trees=50).fit(x)
    cuts = np.unique(np.concatenate([tree.tree_.threshold for tree in forest.forest_.estimators_]))
    asked = np.repeat(cuts.astype(np.float32).astype(np.float64)[:, np.newaxis], 4, axis=1)

    np.testing.assert_allclose(ServedJudge(judge_graph(forest)).score(asked), forest.score(asked), atol=1e-6)


def test_the_whole_forest_is_one_node_with_one_weight_per_leaf() -> None:
    forest = IsolationForest(seed=1, trees=20).fit(np.random.default_rng(0).normal(size=(100, 3)))

    graph = onnx.load_from_string(judge_graph(forest)).graph
    ensembles = [node for node in graph.node if node.op_type == "TreeEnsembleRegressor"]

    assert len(ensembles) == 1
    attributes = {attribute.name: attribute for attribute in ensembles[0].attribute}
    leaves = sum(int(tree.tree_.n_leaves) for tree in forest.forest_.estimators_)
    assert len(attributes["target_weights"].floats) == leaves
    assert set(attributes["nodes_treeids"].ints) == set(range(20))


def test_a_row_far_outside_is_stranger_than_the_outermost_healthy_row() -> None:
    healthy = np.random.default_rng(3).normal(size=(400, 12))
    outermost, far = np.zeros((1, 12)), np.zeros((1, 12))
    outermost[0, :3] = healthy[:, :3].max(axis=0)
    far[0, :3] = 12.0

    forest = IsolationForest(seed=1).fit(healthy)

    assert forest.score(far)[0] > forest.score(outermost)[0] + 0.02
