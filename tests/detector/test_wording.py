"""Wording: numbers with units people know, quotes of bounded length, each thing once, the most telling first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detector.cases import Case
from detector.catalog import Catalog
from detector.culprits import Suspect
from detector.diagnosis import Diagnosis
from detector.evidence import CaseNumbers
from detector.fact import Fact
from detector.report import EvidenceItem
from detector.verdicts import WindowVerdict
from detector.wording import LONGEST, MOST_FACTS, MOST_FEATURES, WAITS, evidence_items
from features.extract import FeatureFrame
from features.measures.table import RunMemory
from features.vocabulary import FEATURES, NAMES

MakeFact = Callable[..., Fact]
Tell = Callable[..., list[EvidenceItem]]


@pytest.fixture
def tell(frame: Callable[..., FeatureFrame], verdict: Callable[..., WindowVerdict], catalog: Catalog) -> Tell:
    """The evidence of one unusual window in which rank 2 was worst: features by value, judged at ten deviations each."""

    def run(
        facts: tuple[Fact, ...] = (),
        suspects: tuple[Suspect, ...] = (),
        scaled: dict[str, float] | None = None,
        unit_s: float = 0.05,
        measured: dict[str, float] | None = None,
        **features: float,
    ) -> list[EvidenceItem]:
        spread = {name: {0: 0.0, 1: 0.0, 2: value, 3: 0.0} for name, value in features.items()}
        frames = [frame(4, per_rank=spread, unit_s=unit_s, run=measured)]
        judged = tuple((name, (scaled or {}).get(name, 10.0)) for name in features)
        case = Case(channel="pace", frames=frames, verdicts=[verdict("pace", ranks=(2,), features=judged)], facts=list(facts))
        return evidence_items(
            Diagnosis(
                category="compute",
                cause=None,
                confidence=0.5,
                ranks=[s.rank for s in suspects],
                alternatives={},
                suspects=list(suspects),
                evidence={},
                numbers=CaseNumbers(case, RunMemory(ranks=[0, 1, 2, 3])),
            )
        )

    return run


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("lateness", 0.5, "+0.50 usual steps = +25 ms"),
        ("lateness", -0.5, "-0.50 usual steps = -25 ms"),
        ("transfer_vs_past", 1.0, "2 times"),
        ("net_vs_past", -1.0, "0.5 times"),
        ("silence", 0.0, "2 usual steps"),
        ("silence", 3.0, "16 usual steps"),
        ("negotiate_max_vs_past", 1.0, "4 usual steps"),
        ("silence_vs_peers", 3.0, "8 usual steps"),
        ("drops", 3.0, "7 per second"),
        ("param_desync", 2.0, "100 times"),
        ("iowait", 0.123, "12.3%"),
        ("cpu_vs_peers", 0.25, "+0.25 cores"),
    ],
)
def test_amounts(tell: Tell, name: str, value: float, told: str) -> None:
    (item,) = tell(**{name: value})

    assert item.text.endswith(f": {told} (10 usual deviations)")
    assert (item.source, item.value, item.baseline) == (name, value, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_every_feature_can_be_told(tell: Tell, name: str) -> None:
    for unit_s in (0.05, float("nan")):
        (item,) = tell(**{name: 0.5}, unit_s=unit_s)
        assert "nan" not in item.text
        assert item.text
        assert "log2" not in item.text or unit_s != 0.05


def test_times_are_given_with_what_they_are_compared_with(tell: Tell) -> None:
    (slower,) = tell(step_vs_past=1.0, measured={"step": 0.1})
    assert slower.text == "rank 2: median step 100 ms, before 50 ms (10 usual deviations)"
    assert (slower.value, slower.baseline) == (0.1, 0.05)

    (waiting,) = tell(negotiate_vs_past=0.4, measured={"negotiate": 0.03})
    assert waiting.text == "run: wait for the last rank 30 ms, before 10 ms (10 usual deviations)"


def test_who_is_spoken_of(tell: Tell) -> None:
    rank, run = tell(lateness=0.5, quiet=3.0, scaled={"lateness": 20.0})
    assert rank.text.startswith("rank 2: ")
    assert run.text.startswith("run: ")


def test_kinds_follow_the_source(tell: Tell) -> None:
    kinds = {name: tell(**{name: 0.5})[0].kind for name in ("local_vs_peers", "lateness", "quiet", "cpu_vs_past", "iowait")}
    assert kinds == {
        "local_vs_peers": "feature",
        "lateness": "timeline",
        "quiet": "timeline",
        "cpu_vs_past": "telemetry",
        "iowait": "telemetry",
    }


def test_the_most_unusual_come_first_and_no_more_than_a_person_reads(tell: Tell) -> None:
    several = [f.name for f in FEATURES if f.family == "host"][:6]
    deviations = {name: float(5 + k) for k, name in enumerate(several)}

    items = tell(**dict.fromkeys(several, 0.5), scaled={**deviations, several[0]: -30.0})
    assert [item.source for item in items] == [several[0], *reversed(several[2:])]
    assert len(items) == MOST_FEATURES


def test_long_messages_are_cut(tell: Tell, fact: MakeFact) -> None:
    (item,) = tell(facts=(fact(1.0, text="ä" * (LONGEST + 1)),))
    assert item.text == "ä" * (LONGEST - 3) + "..."
    (whole,) = tell(facts=(fact(1.0, text="x" * LONGEST),))
    assert whole.text == "x" * LONGEST


def test_facts_are_quoted_once_with_their_first_place(tell: Tell, fact: MakeFact) -> None:
    """Launchers repeat what ranks write."""
    items = tell(
        facts=(
            fact(2.0, text="it failed", source="launcher.log:8"),
            fact(1.0, text="it failed", source="rank1.log:3"),
            fact(1.5, text="so did I", role="cascade"),
        )
    )
    assert [(i.text, i.source, i.time) for i in items] == [
        ("it failed", "rank1.log:3", "2026-02-25T06:13:21.000Z"),
        ("so did I", "telemetry", "2026-02-25T06:13:21.500Z"),
    ]


def test_roots_are_kept_when_there_are_too_many(tell: Tell, fact: MakeFact) -> None:
    noise = tuple(fact(k, "log_cascade_exception", "cascade", text=f"noise {k}") for k in range(10))
    items = tell(facts=(*noise, fact(20.0, text="the cause")))

    assert len(items) == MOST_FACTS
    assert [i.text for i in items] == [*(f"noise {k}" for k in range(MOST_FACTS - 1)), "the cause"]


def test_why_somebody_is_suspected(tell: Tell) -> None:
    (rule,) = tell(suspects=(Suspect(3, 2.0, "stopped"), Suspect(1, 1.5, "gone"), Suspect(0, 1.2, "gone")))
    meaning = next(f.meaning for f in FEATURES if f.name == "stopped")
    assert (rule.kind, rule.source) == ("rule", "culprit")
    assert rule.text == f"rank 3 is suspected first: {meaning}; then 1, 0"

    (waits,) = tell(suspects=(Suspect(3, 2.0, "waits_least"),))
    assert waits.text == f"rank 3 is suspected first: {WAITS}"


def test_a_fact_that_names_the_suspect_is_reason_enough(tell: Tell, fact: MakeFact) -> None:
    (only,) = tell(facts=(fact(1.0, text="out of luck"),), suspects=(Suspect(3, 10.0, "out of luck"),))
    assert only.kind == "log"
