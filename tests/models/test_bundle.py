"""A bundle in memory: what it judges, how it explains, and which rows it refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from features.errors import BundleError, SchemaMismatch
from models import Bundle, LabelledRows
from models.arrays import Matrix
from models.classifier import FittedClassifier
from models.manifest import schema_id
from models.training import FittedDetectors


def test_unseen_healthy_rows_rarely_alarm_and_broken_ones_mostly_do(bundle: Bundle, unseen: Matrix) -> None:
    broken = unseen.copy()
    broken[:, 2] += 2.5

    assert bundle.judge(unseen, bundle.names).anomalous.mean() < 0.02
    assert bundle.judge(broken, bundle.names).anomalous.mean() > 0.8


def test_the_broken_feature_is_named_first(bundle: Bundle, unseen: Matrix) -> None:
    broken = unseen[:50].copy()
    broken[:, 2] -= 1.5

    judgement = bundle.judge(broken, bundle.names)

    first = [judgement.top(row, 1)[0] for row in range(50)]
    assert sum(reason.name == "feature_02" for reason in first) > 45
    assert all(reason.value < 0.0 for reason in first if reason.name == "feature_02")
    np.testing.assert_allclose(judgement.contributions.sum(axis=1), 1.0)


def test_verdict_is_the_row_of_the_judgement(bundle: Bundle, unseen: Matrix) -> None:
    judgement = bundle.judge(10.0 * unseen[:3], bundle.names)

    verdict = judgement.verdict(1, count=3)

    assert verdict.is_anomalous == judgement.anomalous[1] == (verdict.score.value > verdict.limit.value)
    assert verdict.score.value == pytest.approx(np.mean(sorted(verdict.score.surprises.values())[2:]))
    assert set(verdict.score.raw) == {"autoencoder", "extreme", "iforest", "pca"}
    shares = [reason.share for reason in verdict.because]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)


def test_a_row_of_missing_values_is_unremarkable_and_has_no_reasons(bundle: Bundle) -> None:
    judgement = bundle.judge(np.full((1, 14), np.nan), bundle.names)

    assert not judgement.anomalous[0]
    assert judgement.verdict(0).because == ()


def test_no_rows_are_judged_to_nothing(bundle: Bundle) -> None:
    judgement = bundle.judge(np.empty((0, 14)), bundle.names)

    assert judgement.combined.shape == (0,)
    assert judgement.contributions.shape == (0, 14)


def test_order_of_columns_has_no_effect(bundle: Bundle, unseen: Matrix) -> None:
    order = np.random.default_rng(0).permutation(14)

    straight = bundle.judge(unseen, bundle.names)
    shuffled = bundle.judge(unseen[:, order], [bundle.names[i] for i in order])

    np.testing.assert_array_equal(straight.combined, shuffled.combined)
    np.testing.assert_array_equal(straight.contributions, shuffled.contributions)


def test_other_features_are_refused_with_the_difference(bundle: Bundle, unseen: Matrix) -> None:
    names = ["nvlink_errors", *bundle.names[1:]]

    with pytest.raises(SchemaMismatch) as caught:
        bundle.judge(unseen, names)

    assert "extra: ['nvlink_errors']" in str(caught.value)
    assert "missing: ['feature_00']" in str(caught.value)
    assert "hint:" in str(caught.value)


def test_a_repeated_feature_is_refused(bundle: Bundle, unseen: Matrix) -> None:
    with pytest.raises(SchemaMismatch, match="15"):
        bundle.judge(np.hstack([unseen, unseen[:, :1]]), [*bundle.names, bundle.names[0]])


def test_a_feature_in_another_unit_is_refused(bundle: Bundle) -> None:
    bundle.require_features(bundle.names, ["ratio"] * 14)

    with pytest.raises(SchemaMismatch, match=r"feature_00.*ratio.*seconds"):
        bundle.require_features(bundle.names, ["seconds"] + ["ratio"] * 13)


def test_schema_id_stands_for_names_units_and_order(bundle: Bundle) -> None:
    known = bundle.manifest.features.schema_id

    assert known == schema_id(bundle.names, ["ratio"] * 14)
    assert known != schema_id(bundle.names[::-1], ["ratio"] * 14)
    assert known != schema_id(bundle.names, ["s"] + ["ratio"] * 13)
    assert schema_id(["ab", "c"], ["", ""]) != schema_id(["a", "bc"], ["", ""])


def test_causes_are_classified_and_explained(bundle: Bundle, classifier: FittedClassifier, labelled: LabelledRows) -> None:
    order = [2, 0, 4, 3, 1]
    names = [labelled.names[i] for i in order]
    x = labelled.x[:, order]

    np.testing.assert_allclose(bundle.classify(x, names), classifier.probabilities(labelled.x), atol=1e-6)
    gains = bundle.explain_cause(np.array([[0.9, 0.1, 0.1, 0.1, 0.1]]), names, ["memory/leak"])
    assert names[int(gains[0].argmax())] == "rss"


def test_a_bundle_without_classifier_says_so(fitted: FittedDetectors, labelled: LabelledRows) -> None:
    bundle = Bundle.assemble(fitted)

    assert bundle.classes == ()
    with pytest.raises(BundleError, match="healthy runs alone"):
        bundle.classify(labelled.x, labelled.names)


def test_the_same_parts_give_the_same_bundle(assemble: Callable[[], Bundle], bundle: Bundle) -> None:
    again = assemble()

    assert again.id == bundle.id
    assert again.files == bundle.files
    assert again.manifest.canonical() == bundle.manifest.canonical()


def test_the_id_changes_with_anything_the_manifest_says(
    fitted: FittedDetectors, classifier: FittedClassifier, bundle: Bundle
) -> None:
    assert Bundle.assemble(fitted, classifier, settings={"window_s": 2.0}).id != bundle.id
    assert Bundle.assemble(fitted, classifier, runs=bundle.manifest.runs, settings={"window_s": 2.5}).id != bundle.id
    assert Bundle.assemble(fitted, classifier, runs=bundle.manifest.runs, settings={"window_s": 2.0}).id == bundle.id


def test_the_manifest_says_what_the_bundle_was_made_of(bundle: Bundle) -> None:
    manifest = bundle.manifest

    assert set(manifest.libraries) >= {"scikit-learn", "pyod", "onnx"}
    assert manifest.runs[0].files == {"log/rank0.log": "ab" * 32}
    assert manifest.limit.rate == 0.01
    assert manifest.seed == 3
    assert set(manifest.files) == set(bundle.files)
