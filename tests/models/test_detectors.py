"""The promises that every judge of the table keeps, each as it was fitted and as the graph it is exported to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from features.errors import MissingExtra
from models.arrays import Matrix
from models.detectors import DETECTORS, Autoencoder, Detector
from models.detectors.contract import required
from models.graphs import judge_graph
from models.scaling import CLIP, Scaler
from models.serving import ServedJudge

EVERY_JUDGE = pytest.mark.parametrize("name", DETECTORS)


@pytest.fixture(scope="module")
def healthy(simulation: Any) -> Matrix:
    return Scaler.learn(simulation.x, simulation.floors).transform(simulation.x)


@pytest.fixture(scope="module")
def judges(healthy: Matrix) -> dict[str, Detector]:
    return {name: make(7).fit(healthy) for name, make in DETECTORS.items()}


@pytest.fixture(scope="module")
def served(judges: dict[str, Detector]) -> dict[str, ServedJudge]:
    return {name: ServedJudge(judge_graph(judge)) for name, judge in judges.items()}


def strange(healthy: Matrix) -> Matrix:
    """Rows with healthy, missing, broken and extreme values."""
    random = np.random.default_rng(5)
    rows = healthy[:200].copy()
    rows[:50] *= random.choice([0.0, 1.0, 3.0], size=(50, rows.shape[1]))
    rows[50:100, 3] = -rows[50:100, 3] + 2.0
    rows[100] = CLIP
    rows[101] = -CLIP
    rows[102] = 0.0
    return rows


@EVERY_JUDGE
def test_fit_returns_self_and_learns(name: str, healthy: Matrix) -> None:
    judge = DETECTORS[name](7)
    before = set(vars(judge))

    assert judge.fit(healthy) is judge
    learned = set(vars(judge)) - before
    assert learned
    assert all(attribute.endswith("_") for attribute in learned)


@EVERY_JUDGE
def test_scores_are_not_constant(name: str, judges: dict[str, Detector], healthy: Matrix) -> None:
    scores = judges[name].score(healthy)

    assert scores.shape == (len(healthy),)
    assert np.unique(scores.round(12)).size > 0.5 * len(scores)


@EVERY_JUDGE
def test_input_is_left_alone(name: str, healthy: Matrix) -> None:
    x = healthy.copy()
    x[3, 2] = np.nan
    before = x.copy()

    DETECTORS[name](7).fit(x).score(x)

    np.testing.assert_array_equal(x, before)


@EVERY_JUDGE
def test_same_seed_gives_the_same_scores(name: str, judges: dict[str, Detector], healthy: Matrix) -> None:
    again = DETECTORS[name](7).fit(healthy)

    np.testing.assert_array_equal(again.score(healthy), judges[name].score(healthy))


@EVERY_JUDGE
def test_a_far_row_scores_above_every_training_row(name: str, judges: dict[str, Detector], healthy: Matrix) -> None:
    far = np.full((1, healthy.shape[1]), CLIP)

    assert judges[name].score(far)[0] > judges[name].score(healthy).max()


@EVERY_JUDGE
def test_missing_counts_as_the_healthy_median(name: str, judges: dict[str, Detector], healthy: Matrix) -> None:
    missing, median = healthy[:20].copy(), healthy[:20].copy()
    missing[:, 2:6], median[:, 2:6] = np.nan, 0.0

    np.testing.assert_array_equal(judges[name].score(missing), judges[name].score(median))


@EVERY_JUDGE
def test_a_row_without_any_evidence_is_not_unusual(name: str, judges: dict[str, Detector], healthy: Matrix) -> None:
    nothing = judges[name].score(np.full((1, healthy.shape[1]), np.nan))

    assert nothing[0] <= np.quantile(judges[name].score(healthy), 0.5)


@EVERY_JUDGE
def test_graph_equals_the_fitted_judge(
    name: str, judges: dict[str, Detector], served: dict[str, ServedJudge], healthy: Matrix
) -> None:
    rows = strange(healthy)

    np.testing.assert_allclose(served[name].score(rows), judges[name].score(rows), atol=1e-5, rtol=1e-6)


@EVERY_JUDGE
def test_graph_explains_as_the_fitted_judge(
    name: str, judges: dict[str, Detector], served: dict[str, ServedJudge], healthy: Matrix
) -> None:
    assert served[name].explains == hasattr(judges[name], "residuals"), "a graph explains exactly if its judge does"
    if not served[name].explains:
        return
    rows = strange(healthy)

    squares = judges[name].residuals(rows) ** 2
    np.testing.assert_allclose(served[name].explain(rows), squares, atol=1e-4, rtol=1e-4)


@EVERY_JUDGE
def test_explanation_names_the_feature_that_is_off(name: str, served: dict[str, ServedJudge], healthy: Matrix) -> None:
    row = healthy[:1].copy()
    row[0, 9] = CLIP

    explanation = served[name].explain(row)

    assert explanation.shape == row.shape
    assert explanation.min() >= 0.0
    assert explanation[0].argmax() == 9


@EVERY_JUDGE
def test_a_row_scores_the_same_alone_and_in_any_batch(name: str, served: dict[str, ServedJudge], healthy: Matrix) -> None:
    rows = strange(healthy)
    whole = served[name].score(rows)

    for size in (1, 2, 3, 7, 16, 64):
        parts = [served[name].score(rows[start : start + size]) for start in range(0, len(rows), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@EVERY_JUDGE
def test_no_rows_give_no_scores(name: str, served: dict[str, ServedJudge], healthy: Matrix) -> None:
    assert served[name].score(healthy[:0]).shape == (0,)
    assert served[name].explain(healthy[:0]).shape == (0, healthy.shape[1])


@EVERY_JUDGE
def test_same_judge_gives_the_same_graph_bytes(name: str, judges: dict[str, Detector], healthy: Matrix) -> None:
    assert judge_graph(judges[name]) == judge_graph(DETECTORS[name](7).fit(healthy))


@EVERY_JUDGE
def test_constant_and_narrow_training_rows_are_learned_from(name: str) -> None:
    for x in (np.zeros((40, 3)), np.random.default_rng(1).normal(size=(40, 1))):
        judge = DETECTORS[name](7).fit(x)
        rows = np.vstack([x, np.full((1, x.shape[1]), CLIP)])

        np.testing.assert_allclose(ServedJudge(judge_graph(judge)).score(rows), judge.score(rows), atol=1e-5)


def test_autoencoder_sees_a_feature_leave_its_company(judges: dict[str, Detector], healthy: Matrix) -> None:
    """Each value is usual by itself; only together they are not."""
    broken = healthy.copy()
    broken[:, 9] = np.roll(healthy[:, 9], 37)

    for name in ("autoencoder", "pca"):
        assert np.median(judges[name].score(broken)) > np.quantile(judges[name].score(healthy), 0.7)


def test_autoencoder_does_not_take_a_missing_source_for_a_fault(judges: dict[str, Detector], healthy: Matrix) -> None:
    """What is left of the row is told hardly less well; an autoencoder that never practised this does 15 % worse."""
    without, left = healthy.copy(), [0, 1, 2, 3, 4, 6, 12, 13]
    without[:, 7:12] = np.nan
    autoencoder = judges["autoencoder"]
    assert isinstance(autoencoder, Autoencoder)

    usual, now = (np.sqrt(np.mean(autoencoder.residuals(x)[:, left] ** 2)) for x in (healthy, without))

    assert now < 1.11 * usual
    assert np.median(autoencoder.score(without)) < np.median(autoencoder.score(healthy))


def test_a_feature_that_often_spikes_in_healthy_rows_has_to_spike_higher() -> None:
    healthy = np.random.default_rng(0).normal(size=(400, 2))
    healthy[::20, 0] = 6.0

    judge = DETECTORS["extreme"](0).fit(healthy)

    assert judge.score(np.array([[6.0, 0.0]]))[0] < judge.score(np.array([[0.0, 6.0]]))[0]


def test_a_graph_is_refused_rows_of_another_width(served: dict[str, ServedJudge], healthy: Matrix) -> None:
    with pytest.raises(ValueError, match="reads 14 features, found 13"):
        served["pca"].score(healthy[:, 1:])


def test_a_judge_that_no_graph_is_known_for_is_refused() -> None:
    class Other:
        def fit(self, x: ArrayLike) -> Other:
            return self

        def score(self, x: ArrayLike) -> Matrix:
            return np.zeros(len(np.asarray(x)))

    with pytest.raises(TypeError, match="Other"):
        judge_graph(Other())


def test_a_missing_library_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(MissingExtra, match=r"rankwatch\[train\]"):
        required("no_such_library")
