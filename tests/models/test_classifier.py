"""The classifier of causes: right on runs it has not seen, honest about how sure it is, deterministic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from features.errors import InputError
from models import LabelledRows, train_classifier
from models.classifier import FittedClassifier
from models.graphs import classifier_graph
from models.serving import ServedClassifier


def test_causes_of_unseen_runs_are_found(classifier: FittedClassifier, labelled: LabelledRows) -> None:
    answers = np.array(classifier.classes)[classifier.heldout.argmax(axis=1)]

    assert classifier.classes == ("compute/slow-rank", "io/slow-data", "memory/leak")
    assert np.mean(answers == np.array(labelled.causes)) > 0.8


def test_rows_of_probabilities_sum_to_one(classifier: FittedClassifier, labelled: LabelledRows) -> None:
    probabilities = classifier.probabilities(labelled.x)

    assert probabilities.shape == (60, 3)
    assert probabilities.min() >= 0.0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


def test_graph_equals_the_fitted_classifier(classifier: FittedClassifier, labelled: LabelledRows) -> None:
    served = ServedClassifier(classifier_graph(classifier.weights, classifier.biases))
    x = np.vstack([labelled.x, np.zeros((1, 5)), -np.ones((1, 5))])

    np.testing.assert_allclose(served.probabilities(x), classifier.probabilities(x), atol=1e-6)


def test_missing_evidence_counts_as_none(classifier: FittedClassifier, labelled: LabelledRows) -> None:
    missing, zero = labelled.x[:5].copy(), labelled.x[:5].copy()
    missing[:, 1], zero[:, 1] = np.nan, 0.0

    np.testing.assert_array_equal(classifier.probabilities(missing), classifier.probabilities(zero))


def test_no_evidence_at_all_leaves_every_cause_as_likely(labelled: LabelledRows) -> None:
    """Even where one cause was labelled far more often: frequency in training is no evidence."""
    often = np.array(labelled.causes) == "io/slow-data"
    more = np.flatnonzero(often).repeat(5)
    rows = LabelledRows(
        np.vstack([labelled.x, labelled.x[more]]),
        [*labelled.causes, *["io/slow-data"] * len(more)],
        labelled.names,
        np.append(labelled.groups, labelled.groups[more]),
    )

    np.testing.assert_allclose(train_classifier(rows).probabilities(np.zeros((1, 5))), 1.0 / 3.0)


def test_explanation_names_the_evidence_of_the_cause(classifier: FittedClassifier, labelled: LabelledRows) -> None:
    served = ServedClassifier(classifier_graph(classifier.weights, classifier.biases))
    row = np.array([[0.1, 0.9, 0.1, 0.1, 0.1]])

    gains = served.explain(row, np.array([1]))

    assert gains.shape == (1, 5)
    assert gains[0].argmax() == 1


def test_labels_that_are_noise_make_it_unsure() -> None:
    """Learned by heart, noise gives high confidence; held out by run it is seen to be wrong, and shows."""
    random = np.random.default_rng(6)
    noise = LabelledRows(
        random.uniform(size=(90, 30)),
        random.choice(["a", "b", "c"], size=90).tolist(),
        [f"f{i}" for i in range(30)],
        np.arange(90) // 3,
    )

    trained = train_classifier(noise)

    assert trained.temperature > 1.5
    assert trained.calibrated_on == 90
    assert trained.heldout.max(axis=1).mean() < 0.6


def test_right_answers_alone_do_not_make_it_certain() -> None:
    x = np.repeat(np.eye(4), 10, axis=0)
    labels = np.repeat(["a", "b", "c", "d"], 10).tolist()

    trained = train_classifier(LabelledRows(x, labels, list("wxyz"), np.tile(np.arange(10), 4)))

    assert 0.9 < trained.heldout.max(axis=1).min() < 0.9999


def test_too_few_held_out_incidents_leave_the_temperature_alone(labelled: LabelledRows) -> None:
    few = LabelledRows(labelled.x[:12], labelled.causes[:12], labelled.names, labelled.groups[:12])

    trained = train_classifier(few)

    assert (trained.temperature, trained.calibrated_on) == (1.0, 0)


def test_a_cause_of_one_run_only_is_learned_though_it_cannot_be_held_out(labelled: LabelledRows) -> None:
    x = np.vstack([labelled.x, [[0.0, 0.0, 0.0, 1.0, 0.0]]])
    rows = LabelledRows(x, [*labelled.causes, "memory/swap"], labelled.names, np.append(labelled.groups, 99))

    trained = train_classifier(rows)

    assert trained.calibrated_on == 60
    assert trained.heldout[-1, trained.classes.index("memory/swap")] == 0.0
    assert trained.classes[int(trained.probabilities(x[-1:]).argmax())] == "memory/swap"


@pytest.mark.parametrize("runs", [1, 4], ids=["one run", "runs of one cause each"])
def test_few_runs_are_enough_to_train(runs: int) -> None:
    x = np.repeat(np.eye(4), 6, axis=0)
    labels = np.repeat(["a", "b", "c", "d"], 6).tolist()
    groups = np.zeros(24) if runs == 1 else np.repeat(np.arange(4), 6)

    trained = train_classifier(LabelledRows(x, labels, list("wxyz"), groups))

    assert trained.calibrated_on == 0
    assert [trained.classes[i] for i in trained.probabilities(np.eye(4)).argmax(axis=1)] == ["a", "b", "c", "d"]
    np.testing.assert_allclose(trained.heldout.sum(axis=1), 1.0)


def test_two_causes_are_told_apart() -> None:
    x = np.repeat([[1.0, 0.0], [0.0, 1.0]], 15, axis=0)
    labels = ["late"] * 15 + ["early"] * 15

    trained = train_classifier(LabelledRows(x, labels, ["l", "e"], np.tile(np.arange(5), 6)))

    assert trained.classes == ("early", "late")
    assert trained.probabilities(np.array([[1.0, 0.0]]))[0, 1] > 0.9
    assert trained.probabilities(np.array([[0.0, 1.0]]))[0, 0] > 0.9


def test_weights_count() -> None:
    x, groups = np.ones((40, 1)), np.arange(40)
    labels = ["a", "b"] * 20
    heavy_a = np.where(np.array(labels) == "a", 9.0, 1.0)

    trained = train_classifier(LabelledRows(x, labels, ["f"], groups, heavy_a))

    assert trained.probabilities(np.ones((1, 1)))[0, 0] == pytest.approx(0.9, abs=0.03)


def test_training_again_gives_the_same_graph(classifier: FittedClassifier, labelled: LabelledRows) -> None:
    again = train_classifier(labelled)

    assert classifier_graph(again.weights, again.biases) == classifier_graph(classifier.weights, classifier.biases)


def test_a_single_cause_is_an_error(labelled: LabelledRows) -> None:
    with pytest.raises(InputError, match="at least two different causes"):
        train_classifier(replace(labelled, causes=["io/slow-data"] * 60))


@pytest.mark.parametrize(
    "broken",
    [
        lambda rows: replace(rows, names=["one"]),
        lambda rows: replace(rows, groups=rows.groups[:-1]),
        lambda rows: replace(rows, causes=rows.causes[:-1]),
        lambda rows: replace(rows, names=["twice"] * 5),
        lambda rows: replace(rows, weights=np.ones(3)),
    ],
    ids=["names", "groups", "causes", "repeated names", "weights"],
)
def test_parts_that_do_not_fit_together_are_refused(
    labelled: LabelledRows, broken: Callable[[LabelledRows], LabelledRows]
) -> None:
    with pytest.raises(ValueError, match=r"shape \(60, 5\)"):
        train_classifier(broken(labelled))
