"""The vocabulary of features: complete, described, and with an identity that changes when its numbers mean something else."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from features import vocabulary
from features.measures.steps import PHASES
from features.vocabulary import FEATURES, INDEX, NAMES, Channel, Feature, Side, schema_id


def test_names_are_unique_and_in_order() -> None:
    assert tuple(f.name for f in FEATURES) == NAMES
    assert len(set(NAMES)) == len(NAMES)
    assert {NAMES[i]: i for i in range(len(NAMES))} == INDEX


@pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f.name)
def test_every_feature_is_described(feature: Feature) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", feature.name)
    assert feature.channel in get_args(Channel)
    assert feature.side in get_args(Side)
    assert feature.floor > 0
    assert feature.unit
    assert feature.family
    assert feature.meaning == feature.meaning.strip().rstrip(".")
    assert len(feature.meaning.split()) >= 3
    assert "\t" not in feature.name + feature.unit + feature.side


def test_meanings_tell_features_apart() -> None:
    meanings = [f.meaning for f in FEATURES]
    assert len(set(meanings)) == len(meanings)


@pytest.mark.parametrize("feature", [f for f in FEATURES if f.unit.startswith("log")], ids=lambda f: f.name)
def test_of_features_on_a_scale_of_doublings_small_changes_are_noise(feature: Feature) -> None:
    assert 0.01 < feature.floor <= 1.0


def test_every_phase_of_a_step_is_compared_with_past_and_peers() -> None:
    assert {f"{phase}_vs_{what}" for phase in PHASES for what in ("past", "peers")} <= set(NAMES)


@pytest.mark.parametrize("table", ["_LOW", "_BOTH"])
def test_sides_are_given_to_features_that_exist(table: str) -> None:
    assert getattr(vocabulary, table) <= set(NAMES)


@pytest.mark.parametrize(
    ("name", "side"),
    [("step_vs_past", "high"), ("sync_vs_peers", "both"), ("loss_vs_peers", "both"), ("net_vs_past", "low"),
     ("sleeps_vs_peers", "low"), ("rss_vs_past", "high"), ("silence", "high")],
)  # fmt: skip
def test_which_side_means_trouble(name: str, side: str) -> None:
    """A step that became faster is no fault; a rank that waits less than its peers is the one they wait for."""
    assert FEATURES[INDEX[name]].side == side


@pytest.mark.parametrize(
    ("name", "channel"),
    [("step_vs_past", "pace"), ("stopped", "pace"), ("loss_vs_past", "numbers"), ("nonfinite", "numbers"),
     ("param_desync", "numbers"), ("rss_vs_past", "memory"), ("swap_vs_past", "memory")],
)  # fmt: skip
def test_what_an_anomaly_is_about(name: str, channel: str) -> None:
    assert FEATURES[INDEX[name]].channel == channel


CHANGES = {"name": "other", "unit": "furlongs", "side": "low"}
HARMLESS = {"meaning": "told in other words", "family": "other", "floor": 9.0, "channel": "memory"}


def with_first(monkeypatch: pytest.MonkeyPatch, **changes: object) -> str:
    monkeypatch.setattr(vocabulary, "FEATURES", (FEATURES[0]._replace(**changes), *FEATURES[1:]))
    return schema_id()


@pytest.mark.parametrize("field", CHANGES)
def test_a_bundle_that_was_trained_on_other_numbers_has_another_schema(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    before = schema_id()
    assert re.fullmatch(r"features-[0-9a-f]{16}", before)
    assert schema_id() == before
    assert with_first(monkeypatch, **{field: CHANGES[field]}) != before


@pytest.mark.parametrize("field", HARMLESS)
def test_words_may_change_without_a_new_bundle(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    before = schema_id()
    assert with_first(monkeypatch, **{field: HARMLESS[field]}) == before


def test_order_and_number_of_features_are_part_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_id()
    for features in (FEATURES[::-1], FEATURES[1:]):
        monkeypatch.setattr(vocabulary, "FEATURES", features)
        assert schema_id() != before
