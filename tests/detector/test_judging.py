"""Judging: only deviations that can mean trouble are seen, and a verdict names channels, ranks and features, worst first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from detector.judging import judge_with, one_sided
from detector.verdicts import Judge, Walker
from features.errors import SchemaMismatch
from features.extract import Extractor, FeatureFrame
from features.vocabulary import FEATURES, INDEX
from features.windows import windows
from models import Bundle

Frame = Callable[..., FeatureFrame]


@pytest.fixture(scope="session")
def judge(shipped: Bundle) -> Judge:
    return judge_with(shipped)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f.name)
def test_a_deviation_to_the_good_side_is_not_seen(feature: object) -> None:
    side, column = feature.side, INDEX[feature.name]  # type: ignore[attr-defined]
    row = np.zeros((3, len(FEATURES)))
    row[:, column] = [-2.0, 0.0, 2.0]

    seen = one_sided(row)
    assert seen[:, column].tolist() == {"high": [0, 0, 2], "low": [-2, 0, 0], "both": [-2, 0, 2]}[side]
    assert np.count_nonzero(np.delete(seen, column, axis=1)) == 0


def test_missing_stays_missing_and_the_input_unchanged() -> None:
    values = np.full((2, len(FEATURES)), -1.0)
    values[1] = np.nan
    before = values.copy()

    seen = one_sided(values)
    assert seen.shape == values.shape
    assert np.isnan(seen[1]).all()
    np.testing.assert_array_equal(values, before)


def slow(rank: int = 1) -> dict[str, dict[int, float]]:
    names = ("step_vs_past", "step_max_vs_past", "local_vs_past", "forward_vs_past", "local_vs_peers", "forward_vs_peers")
    return {name: {r: 1.5 if r == rank or "step" in name else 0.0 for r in range(4)} for name in names}


def test_an_ordinary_window_is_healthy(judge: Judge, frame: Frame) -> None:
    usual = {f.name: dict.fromkeys(range(4), 0.0) for f in FEATURES if f.family == "step"}
    verdict = judge(frame(0, per_rank=usual))
    assert (verdict.judged, verdict.is_anomalous, verdict.channels) == (True, False, {})


def test_a_window_that_nothing_is_known_of_is_not_judged(judge: Judge, frame: Frame) -> None:
    assert not judge(frame(0)).judged
    assert not judge(frame(0, ranks=0)).judged
    assert not judge(frame(0)).is_anomalous


def test_the_worst_rank_is_named_first_with_what_it_did(judge: Judge, frame: Frame) -> None:
    (channel,) = (verdict := judge(frame(0, per_rank=slow()))).channels

    said = verdict.channels[channel]
    assert channel == "pace"
    assert said.ranks[0] == 1
    assert said.score > said.limit > 0.0
    assert {name for name, _ in said.features} <= set(slow())
    assert all(value > 0 for _, value in said.features)


def test_a_faster_run_is_no_anomaly(judge: Judge, frame: Frame) -> None:
    faster = {name: {rank: -value for rank, value in of.items()} for name, of in slow().items()}
    assert not judge(frame(0, per_rank=faster)).is_anomalous


@pytest.mark.parametrize(
    ("channel", "features"),
    [("numbers", ("nonfinite", "loss_vs_past", "param_desync")), ("memory", ("rss_vs_past", "rss_vs_peers", "rss_growth"))],
)
def test_an_anomaly_speaks_about_its_own_channel(judge: Judge, frame: Frame, channel: str, features: tuple[str, ...]) -> None:
    bad = {name: {0: 0.0, 1: 0.0, 2: 3.0, 3: 0.0} for name in features}
    verdict = judge(frame(0, per_rank=bad))
    assert list(verdict.channels) == [channel]
    assert verdict.channels[channel].ranks[0] == 2  # type: ignore[index]


def test_ranks_are_named_by_number_not_by_row(judge: Judge, frame: Frame) -> None:
    there = frame(0, per_rank=slow())
    there.ranks = [4, 7, 9, 12]
    assert judge(there).channels["pace"].ranks[0] == 7


def test_a_bundle_of_other_features_is_refused_before_anything_is_judged(shipped: Bundle) -> None:
    features = shipped.manifest.features
    others = features.model_copy(update={"names": ["nvlink_errors", *features.names[1:]]})
    strange = Bundle(shipped.manifest.model_copy(update={"features": others}), shipped.files)

    with pytest.raises(SchemaMismatch) as refused:
        judge_with(strange)
    assert f"missing: ['{'nvlink_errors'}']" in str(refused.value)
    assert f"extra: ['{features.names[0]}']" in str(refused.value)


def test_the_past_is_learned_from_healthy_windows_and_not_from_the_one_before_a_fault(job: type, shipped: Bundle) -> None:
    """The window in which a fault begins is half good; nothing of the fault may become what is usual."""
    extractor = Extractor()
    walker, verdicts, seen = Walker(extractor, judge_with(shipped)), [], []
    for window in windows(job(slow=(2, 150, 300)).records(), 1.0):
        verdicts.append(walker.step(window)[1])
        seen.append(extractor.baseline.series["step"].seen if extractor.baseline.series else 0)

    first = next(i for i, verdict in enumerate(verdicts) if verdict.is_anomalous)
    healthy = [verdict for verdict in verdicts[:first] if verdict.judged and not verdict.raised]
    assert len(healthy) > 3
    assert all(verdict.is_anomalous for verdict in verdicts[first:-1])
    assert set(seen[first:]) == {len(healthy) - 1}
    assert extractor.baseline.run("step") == pytest.approx(0.046, rel=0.1)
