"""Diagnosis: the likeliest cause if it is likely enough, and only those ranks that the cause allows to name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detector.cases import Case
from detector.catalog import Catalog
from detector.diagnosis import CONFIDENT, Diagnosis, diagnose
from detector.fact import Fact
from features.extract import FeatureFrame
from features.measures.table import RunMemory
from models import Bundle

RANKS = range(4)


@pytest.fixture
def ask(frame: Callable[..., FeatureFrame], shipped: Bundle, catalog: Catalog) -> Callable[..., Diagnosis]:
    """The diagnosis of three alike windows and some facts; a feature is one value for all or `{rank: value}` over zeros."""

    def run(
        facts: tuple[Fact, ...] = (), nodes: dict[int, str] | None = None, channel: str = "pace", **features: object
    ) -> Diagnosis:
        spread = {
            name: dict.fromkeys(RANKS, v) if isinstance(v, float) else {**dict.fromkeys(RANKS, 0.0), **v}  # type: ignore[dict-item]
            for name, v in features.items()
        }
        frames = [frame(i, per_rank=spread, steps=(500 + i, 501 + i)) for i in range(3)] if features else []
        case = Case(channel=channel, frames=frames, facts=list(facts))  # type: ignore[arg-type]
        memory = RunMemory(ranks=list(RANKS), nodes=nodes or {}, last_step={0: 600}, origin_step=0)
        return diagnose(case, memory, shipped, catalog)

    return run


def named(d: Diagnosis) -> str:
    return "unknown" if d.cause is None else d.cause.id


def test_a_slow_rank_is_named(ask: Callable[..., Diagnosis]) -> None:
    grown = {2: 0.9}
    d = ask(local_vs_peers=grown, local_vs_past=grown, forward_vs_past=grown, sync_vs_past={0: 0.9, 1: 0.9, 3: 0.9})

    assert (named(d), d.category, d.ranks) == ("compute/slow-rank", "compute", [2])
    assert d.confidence >= CONFIDENT
    assert "compute/slow-rank" not in d.alternatives
    assert all(0.02 <= p < d.confidence for p in d.alternatives.values())


def test_without_evidence_the_cause_is_unknown_and_the_likeliest_category_is_given(
    ask: Callable[..., Diagnosis], shipped: Bundle, catalog: Catalog
) -> None:
    d = ask(local_vs_peers={1: 0.2})
    names = list(catalog.vocabulary)
    row = [[d.evidence.get(name, 0.0) for name in names]]
    probabilities = dict(zip(shipped.classes, shipped.classify(row, names)[0].tolist(), strict=True))
    assert max(probabilities.values()) < CONFIDENT

    of_category: dict[str, float] = {}
    for cause, p in probabilities.items():
        of_category[cause.partition("/")[0]] = of_category.get(cause.partition("/")[0], 0.0) + p
    assert d.cause is None
    assert d.category == max(of_category, key=lambda c: of_category[c])
    assert d.confidence == pytest.approx(of_category[d.category])
    assert d.ranks == [1], "who was unusual is known even where the cause is not"
    assert all(p < CONFIDENT for p in d.alternatives.values())


def test_a_fact_decides_and_names(ask: Callable[..., Diagnosis], fact: Callable[..., Fact]) -> None:
    d = ask(facts=(fact(1.0, "loss_nan", channel="numbers", ranks=(3,)),), channel="numbers", nonfinite={3: 1.0})
    assert (named(d), d.ranks) == ("numerical/nan", [3])
    assert d.suspects[0].reason == "loss_nan at 1"


def test_a_host_is_named_only_among_several(ask: Callable[..., Diagnosis]) -> None:
    taken = {"foreign_cpu": 0.6, "cpu_vs_past": -0.5, "local_vs_past": 0.6, "local_vs_peers": {1: 0.2}, "host_cpu_vs_past": 0.4}
    one = ask(**taken, nodes=dict.fromkeys(RANKS, "n0"))
    assert one.cause is not None
    assert one.cause.scope == "host"
    assert one.ranks == []
    assert ask(**taken, nodes={0: "n0", 1: "n1", 2: "n2", 3: "n3"}).ranks == [1]


def test_a_bad_link_is_looked_for_behind_who_is_late(ask: Callable[..., Diagnosis]) -> None:
    """Rank 1 leaves the collectives last and looks guilty; Gloo's ring says that it receives from rank 2."""
    d = ask(
        transfer_vs_past=3.0,
        finish_vs_past={1: 0.5},
        local_vs_peers={1: 0.2},
        net_vs_past=-2.0,
        cycle_vs_past=2.0,
        sync_vs_past=2.0,
        retransmits_vs_past=3.0,
    )
    assert d.category == "communication"
    assert d.ranks == [2]


def test_a_root_that_names_ranks_is_not_overruled_by_counters(ask: Callable[..., Diagnosis], fact: Callable[..., Fact]) -> None:
    stall = fact(1.0, "log_stall_warning", ranks=(0,))
    d = ask(facts=(stall,), transfer_vs_past=3.0, drops={3: 4.0}, sync_vs_past=2.0, net_vs_past=-2.0)
    assert d.ranks == [0]


def test_the_same_case_is_diagnosed_alike(ask: Callable[..., Diagnosis]) -> None:
    first, second = (ask(local_vs_peers={0: 0.4, 3: 0.4}, iowait=0.2) for _ in range(2))
    assert (first.confidence, first.ranks, first.alternatives) == (second.confidence, second.ranks, second.alternatives)
    assert list(first.alternatives) == sorted(first.alternatives, key=lambda c: (-first.alternatives[c], c))
