"""Incidents: one root keeps what followed from it, rhythms are one incident, plain ends are none, and costs are exact."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest

from detector.cases import AFTERMATH_S, Case
from detector.catalog import Catalog
from detector.fact import Fact
from detector.incidents import (
    END_S,
    impact,
    incident_id,
    incidents_of,
    is_plain_end,
    join_aftermath,
    join_recurring,
    join_slowed_by_memory,
    onset,
)
from detector.report import SEVERITIES, Impact, iso
from detector.verdicts import WindowVerdict
from features.extract import FeatureFrame
from features.measures.table import RunMemory
from models import Bundle

Frame = Callable[..., FeatureFrame]
MakeFact = Callable[..., Fact]
MakeCase = Callable[..., Case]
T0 = 1_772_000_000.0


@pytest.fixture
def case(frame: Frame, verdict: Callable[..., WindowVerdict]) -> MakeCase:
    """A case of the unusual windows `first` to `last`, if any, and facts."""

    def make(
        channel: str = "pace", first: int = 0, last: int = -1, facts: tuple[Fact, ...] = (), is_open: bool = False, **of: object
    ) -> Case:
        frames = [frame(i, **of) for i in range(first, last + 1)]
        return Case(
            channel=channel,  # type: ignore[arg-type]
            frames=frames,
            verdicts=[verdict(channel) for _ in frames],
            facts=list(facts),
            is_open=is_open,
        )

    return make


def silent(since_s: float) -> dict[str, object]:
    return {"run": {"since_step": since_s}}


def test_what_only_follows_is_joined_to_its_root(case: MakeCase, fact: MakeFact) -> None:
    root = case("numbers", facts=(fact(1.0, "loss_nan", channel="numbers"),))
    after = case(facts=(fact(5.0, "log_cascade_exception", "cascade"),), is_open=True)

    (joined,) = join_aftermath([after, root])
    assert joined.channel == "numbers"
    assert [f.name for f in joined.facts] == ["loss_nan", "log_cascade_exception"]
    assert joined.is_open
    assert joined.frames == []


def test_windows_are_joined_within_a_channel_only(case: MakeCase, fact: MakeFact) -> None:
    after = case(first=10, last=11, facts=(fact(10.5, "log_cascade_exception", "cascade"),))
    (same,) = join_aftermath([case(first=0, last=1), after])
    assert [f.index for f in same.frames] == [0, 1, 10, 11]
    assert len(same.verdicts) == 4


@pytest.mark.parametrize(
    ("late_s", "role", "count"), [(AFTERMATH_S, "cascade", 1), (AFTERMATH_S + 0.1, "cascade", 2), (1.0, "root", 2)]
)
def test_a_root_of_its_own_or_too_late_is_another_incident(
    case: MakeCase, fact: MakeFact, late_s: float, role: str, count: int
) -> None:
    first = case(first=0, last=1)
    second = case(facts=(fact(2 + late_s, "log_cascade_exception" if role == "cascade" else "log_exception", role),))
    assert len(join_aftermath([first, second])) == count


def test_numbers_alone_are_no_aftermath(case: MakeCase) -> None:
    assert len(join_aftermath([case("numbers", 0, 1), case("pace", 2, 3)])) == 2


def test_a_death_after_a_leak_is_the_leak(case: MakeCase, fact: MakeFact) -> None:
    leak, death = case("memory", 0, 5), case(facts=(fact(8.0, "log_exit_killed"),))
    (joined,) = join_aftermath([leak, death])
    assert (joined.channel, [f.name for f in joined.facts]) == ("memory", ["log_exit_killed"])
    assert len(join_aftermath([case("numbers", 0, 5), death])) == 2


def test_the_slowness_of_a_leaking_rank_is_the_leak(case: MakeCase, fact: MakeFact) -> None:
    memory = RunMemory(ranks=[0, 1, 2, 3])
    leak = case("memory", 2, 5, per_rank={"rss_vs_peers": {1: 0.8}})
    slow = case("pace", 0, 4, per_rank={"local_vs_peers": {1: 0.8}}, facts=(fact(3.0, "hint", "context"),))
    elsewhere = case("pace", 0, 4, per_rank={"local_vs_peers": {2: 0.8}})
    later = case("pace", 7, 9, per_rank={"local_vs_peers": {1: 0.8}})

    assert join_slowed_by_memory([slow, leak], memory) == [leak]
    assert [f.name for f in leak.facts] == ["hint"]
    assert join_slowed_by_memory([elsewhere, leak, later], memory) == [elsewhere, leak, later]


def test_cases_at_even_distances_are_one_that_recurs(case: MakeCase) -> None:
    cases = [case(first=at, last=at + 1, is_open=at == 61) for at in (0, 20, 41, 61)]
    other = case("numbers", 5, 6)

    kept = join_recurring([cases[0], other, *cases[1:]])
    assert kept == [cases[0], other]
    assert cases[0].recurs == 4
    assert [f.index for f in cases[0].frames] == [0, 1, 20, 21, 41, 42, 61, 62]
    assert cases[0].is_open


@pytest.mark.parametrize("starts", [(0, 20), (0, 20, 60), (0, 20, 40, 100)])
def test_few_or_uneven_cases_are_no_rhythm(case: MakeCase, starts: tuple[int, ...]) -> None:
    cases = [case(first=at, last=at + 1) for at in starts]
    assert join_recurring(cases) == cases
    assert cases[0].recurs == 0


def test_a_known_cause_is_no_rhythm(case: MakeCase, fact: MakeFact) -> None:
    cases = [case(first=at, last=at + 1) for at in (0, 20)] + [case(first=40, last=41, facts=(fact(40.0),))]
    assert join_recurring(cases) == cases


def ended(last_step: float, gone: float | None, **more: object) -> RunMemory:
    left = {} if gone is None else {r: T0 + gone for r in (0, 1)}
    return RunMemory(**{"ranks": [0, 1], "last_step_end": {0: T0 + last_step}, "gone": left, **more})  # type: ignore[arg-type]


def test_silence_before_all_leave_is_a_plain_end(case: MakeCase, fact: MakeFact) -> None:
    quiet = case(first=10, last=12)

    assert is_plain_end(quiet, ended(10.5, 10.5 + END_S))
    assert not is_plain_end(quiet, ended(10.5, 10.6 + END_S)), "processes of a hang live longer"
    assert not is_plain_end(quiet, ended(10.5, None)), "nobody has left"
    assert not is_plain_end(quiet, ended(10.5, 12.0, ranks=[0, 1, 2])), "one is still there"
    assert not is_plain_end(quiet, ended(11.5, 12.0)), "steps went on after it had begun"
    assert not is_plain_end(quiet, ended(10.5, 12.0, dangling_since=T0 + 10)), "a collective never ended"
    assert not is_plain_end(case("numbers", 10, 12), ended(10.5, 12.0))
    assert not is_plain_end(case(first=10, last=12, facts=(fact(11.0),)), ended(10.5, 12.0))


def test_impact_of_a_hand_made_case(frame: Frame) -> None:
    """Windows of one second, usual step 50 ms: twice as slow, four times as slow, silent, faster than usual, unknown."""
    frames = [
        frame(0, run={"step": 0.1}),
        frame(1, run={"step": 0.2}),
        frame(2, run={"since_step": 1.02}),
        frame(3, run={"step": 0.04}),
        frame(4, run={"step": 9.0}, unit_s=math.nan),
        frame(5, run={"since_step": 0.08}),
    ]
    assert impact(Case(channel="pace", frames=frames)) == Impact(lost_s=0.5 + 0.75 + 1.0, slowdown=2.0)


def test_the_cost_of_a_fact_alone_is_unknown(fact: MakeFact, frame: Frame) -> None:
    assert impact(Case(channel="pace", facts=[fact(1.0)])) == Impact(lost_s=None, slowdown=None)
    silent_only = Case(channel="pace", frames=[frame(0, run={"since_step": 4.0}, length_s=5.0)])
    assert impact(silent_only) == Impact(lost_s=5.0, slowdown=None)


def test_a_silence_began_when_the_next_step_was_due(case: MakeCase, fact: MakeFact) -> None:
    assert onset(case(first=10, last=12, **silent(3.0))) == pytest.approx(T0 + 11 - 3.0 + 0.05)
    assert onset(case(first=10, last=12, run={"since_collective": 3.0})) == pytest.approx(T0 + 8.05)
    assert onset(case(first=10, last=12, **silent(0.09))) == T0 + 10, "no silence"
    assert onset(case(first=100, last=112, **silent(90.0))) == T0 + 100 - AFTERMATH_S, "not before what is remembered"
    assert onset(case(first=10, last=12, facts=(fact(7.0),), **silent(3.0))) == T0 + 7.0
    assert onset(case(facts=(fact(7.0),))) == T0 + 7.0


def test_an_id_is_made_of_run_channel_and_second() -> None:
    same = incident_id("a", "pace", T0 + 3.1)
    assert same == incident_id("a", "pace", T0 + 3.9)
    assert re.fullmatch(r"i-[0-9a-f]{12}", same)
    others = {incident_id("b", "pace", T0 + 3), incident_id("a", "memory", T0 + 3), incident_id("a", "pace", T0 + 4)}
    assert same not in others
    assert len(others) == 3


def test_incidents_come_most_serious_first_and_carry_what_their_case_knows(
    case: MakeCase, fact: MakeFact, shipped: Bundle, catalog: Catalog
) -> None:
    memory = RunMemory(ranks=[0, 1, 2, 3], nodes={0: "n0", 1: "n0", 2: "n1", 3: "n1"}, last_step={0: 90})
    mine, others = {0: 0.0, 1: 0.0, 2: 0.9, 3: 0.0}, {0: 0.9, 1: 0.9, 2: 0.0, 3: 0.9}
    slow = {**dict.fromkeys(("local_vs_peers", "local_vs_past", "forward_vs_past"), mine), "sync_vs_past": others}
    slow["step_vs_past"] = dict.fromkeys(range(4), 1.0)
    cases = [
        case(first=0, last=4, per_rank=slow, steps=(40, 60), run={"step": 0.1}),
        case("numbers", facts=(fact(30.0, "loss_nan", channel="numbers", ranks=(1,)),), is_open=True),
    ]
    made = incidents_of(cases, memory, shipped, catalog, "run-a")

    assert [f"{i.category}/{i.cause}" for i in made] == ["numerical/nan", "compute/slow-rank"]
    assert sorted(made, key=lambda i: SEVERITIES.index(i.severity)) == made
    nan, rank = made
    assert (nan.ranks, nan.nodes, nan.end, nan.score, nan.limit, nan.first_step) == ([1], ["n0"], None, None, None, None)
    assert nan.id == incident_id("run-a", "numbers", T0 + 30)
    assert (rank.ranks, rank.nodes) == ([2], ["n1"])
    assert (rank.start, rank.end) == (iso(T0), iso(T0 + 5))
    assert (rank.first_step, rank.last_step, rank.score, rank.limit) == (40, 60, 5.0, 3.5)
    assert rank.impact == Impact(lost_s=2.5, slowdown=2.0)
    assert [f.action for f in rank.fixes] == [f.action for f in catalog.causes["compute/slow-rank"].fixes]
    assert rank.title == catalog.causes["compute/slow-rank"].title


def test_a_run_that_ends_with_a_death_is_critical(case: MakeCase, fact: MakeFact, shipped: Bundle, catalog: Catalog) -> None:
    memory = RunMemory(ranks=[0, 1], last_step={0: 5})
    found = [fact(3.0, "log_exit_other", ranks=(1,), text="exit code 1")]
    (open_,) = incidents_of([case(facts=tuple(found), is_open=True)], memory, shipped, catalog, "r")
    assert open_.severity == "critical"
