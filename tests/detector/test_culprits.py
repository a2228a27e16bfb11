"""Culprits: local time and arrival accuse, waiting excuses, links point at neighbours, and an early fact wins over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from detector.cases import Case, CaseTracker
from detector.culprits import downstream, network_suspects, suspects, upstream
from detector.diagnosis import numbers_of
from detector.evidence import CaseNumbers
from detector.fact import Fact
from detector.verdicts import WindowVerdict
from features.extract import Extractor, FeatureFrame
from features.measures.table import RunMemory
from features.records import Collective, Step
from features.windows import windows

Ranks = Mapping[int, float]
Numbers = Callable[..., CaseNumbers]
MakeFact = Callable[..., Fact]
T0 = 1_772_000_000.0


@pytest.fixture
def numbers(frame: Callable[..., FeatureFrame]) -> Numbers:
    """The numbers of a case of three alike windows: `feature={rank: value}`, the rest of the ranks at `rest`."""

    def make(
        channel: str = "pace",
        facts: tuple[Fact, ...] = (),
        ranks: int = 4,
        transport: str | None = None,
        rest: float = 0.0,
        **features: Ranks,
    ) -> CaseNumbers:
        values = {name: {r: of.get(r, rest) for r in range(ranks)} for name, of in features.items()}
        frames = [frame(i, ranks, per_rank=values, transport=transport) for i in range(3)]
        case = Case(channel=channel, frames=frames, facts=list(facts))  # type: ignore[arg-type]
        return CaseNumbers(case, RunMemory(ranks=list(range(ranks))))

    return make


def order(n: CaseNumbers) -> list[int]:
    return [s.rank for s in suspects(n)]


def network(n: CaseNumbers) -> list[int]:
    return [s.rank for s in network_suspects(n)]


@pytest.mark.parametrize(
    ("channel", "feature", "value"),
    [
        ("pace", "local_vs_peers", 0.5),
        ("pace", "lateness", 0.4),
        ("pace", "stopped", 0.3),
        ("pace", "gone", 1.0),
        ("pace", "last_share", 0.7),
        ("pace", "silence_vs_peers", 4.0),
        ("pace", "sleeps_vs_peers", -2.0),
        ("pace", "preempted_vs_peers", -2.0),
        ("numbers", "loss_vs_peers", 1.5),
        ("numbers", "param_desync", 2.0),
        ("numbers", "nonfinite", 1.0),
        ("memory", "rss_vs_peers", 0.3),
        ("memory", "rss_growth", 0.2),
    ],
)
def test_each_sign_accuses_the_rank_that_shows_it(numbers: Numbers, channel: str, feature: str, value: float) -> None:
    found = suspects(numbers(channel, **{feature: {2: value}}))

    assert [s.rank for s in found] == [2]
    assert found[0].reason == ("waits_least" if "sleeps" in feature or "preempted" in feature else feature)


@pytest.mark.parametrize(
    ("feature", "value"), [("local_vs_peers", 0.1), ("local_vs_peers", -0.9), ("rss_vs_peers", 0.9), ("sync_vs_peers", 0.9)]
)
def test_small_good_or_foreign_deviations_accuse_nobody(numbers: Numbers, feature: str, value: float) -> None:
    assert order(numbers("pace", **{feature: {2: value}})) == []


def test_nothing_known_accuses_nobody(numbers: Numbers) -> None:
    assert order(numbers()) == []
    assert network(numbers()) == []


def test_the_rank_that_waits_is_not_the_one_at_fault(numbers: Numbers) -> None:
    """Each rank's step is as long as everybody's; what differs is the time outside the collectives."""
    waits = {0: 0.3, 1: 0.3, 3: 0.3, 2: 0.0}
    assert order(numbers(sync_vs_peers=waits, local_vs_peers={2: 0.3})) == [2]


def test_suspects_come_in_order_and_the_weak_are_left_out(numbers: Numbers) -> None:
    found = suspects(numbers(local_vs_peers={0: 0.4, 1: 1.0, 3: 0.6}))

    assert [s.rank for s in found] == [1, 3]
    assert found[0].weight > found[1].weight >= found[0].weight / 2


def test_no_single_sign_decides_alone_however_large(numbers: Numbers) -> None:
    several = numbers(local_vs_peers={0: 50.0, 2: 3.0}, lateness={2: 1.0})
    assert order(several)[0] == 2


def test_the_strongest_reason_is_given(numbers: Numbers) -> None:
    (found,) = suspects(numbers(local_vs_peers={1: 0.3}, stopped={1: 0.9}, lateness={1: 0.5}))
    assert found.reason == "stopped"


def test_ranks_that_are_even_come_in_their_own_order(numbers: Numbers) -> None:
    assert order(numbers(local_vs_peers={3: 0.5, 1: 0.5})) == [1, 3]


def test_a_fact_wins_over_all_numbers(numbers: Numbers, fact: MakeFact) -> None:
    found = suspects(numbers(facts=(fact(1.0, ranks=(0,)),), local_vs_peers={2: 2.0}))
    assert [(s.rank, s.reason) for s in found] == [(0, "log_exception at 1")]


def test_the_earliest_root_is_blamed_and_a_consequence_cannot_replace_it(numbers: Numbers, fact: MakeFact) -> None:
    roots = (fact(1.0, "log_exit_killed", ranks=(2,)), fact(9.0, ranks=(1,)))
    loud = (fact(0.5, "log_cascade_exception", "cascade", ranks=(0,)), fact(0.7, "hint", "context", ranks=(3,)))
    assert order(numbers(facts=(*loud, *roots))) == [2]


def test_facts_that_name_nobody_or_prove_nothing_leave_it_to_the_numbers(numbers: Numbers, fact: MakeFact) -> None:
    facts = (fact(1.0), fact(1.1, ranks=(0,), hard=False))
    assert order(numbers(facts=facts, local_vs_peers={3: 0.6})) == [3]


def test_like_facts_at_once_share_the_blame_and_later_ones_do_not(numbers: Numbers, fact: MakeFact) -> None:
    facts = (
        fact(1.0, "stall", ranks=(3,)),
        fact(1.2, "stall", ranks=(1, 3)),
        fact(1.3, ranks=(0,)),
        fact(7.0, "stall", ranks=(2,)),
    )
    assert order(numbers(facts=facts)) == [3, 1]


def test_a_death_that_is_known_late_is_still_the_first(fact: MakeFact, frame: Callable[..., FeatureFrame]) -> None:
    """The others' complaints reach the log at once, the sampler is sure a second later."""
    tracker = CaseTracker()
    tracker.add(frame(1), WindowVerdict(), [fact(1.5, ranks=(0,))])
    tracker.add(frame(2), WindowVerdict(), [fact(1.2, "process_gone", ranks=(3,))])
    (case,) = tracker.finish()
    assert [s.rank for s in numbers_of(case, RunMemory(ranks=[0, 1, 2, 3]))[1]] == [3]


def test_dropped_packets_accuse_their_host(numbers: Numbers) -> None:
    assert network(numbers(drops={1: 3.0})) == [1]
    assert network(numbers(drops={1: 3.0, 2: 2.0})) == []
    assert network(numbers(drops={1: 0.3})) == []


def test_more_received_than_by_the_peers_means_lost_and_repeated_there(numbers: Numbers) -> None:
    resent = {r: 2.0 for r in range(4)}
    assert network(numbers(received_surplus={3: 0.05}, retransmits_vs_past=resent)) == [3]
    assert network(numbers(received_surplus={3: 0.05}, retransmits_vs_past={0: 0.2})) == []
    assert network(numbers(received_surplus={3: 0.005}, retransmits_vs_past=resent)) == []


@pytest.mark.parametrize(("transport", "behind"), [("gloo", 2), (None, 2), ("nccl", 0), ("mpi", 0), ("ccl", 0)])
def test_who_leaves_last_sits_behind_the_slow_link(numbers: Numbers, transport: str | None, behind: int) -> None:
    """Rank 1 leaves last: in Gloo's ring it receives from rank 2, in the rings of NCCL and MPI from rank 0."""
    assert network(numbers(finish_vs_past={1: 0.3}, transport=transport)) == [behind]
    assert network(numbers(finish_vs_past={1: 0.05}, transport=transport)) == []


@pytest.mark.parametrize(("transport", "to"), [("gloo", 0), ("nccl", 2)])
def test_who_sends_again_sends_to_the_lossy_host(numbers: Numbers, transport: str, to: int) -> None:
    assert network(numbers(retransmits_vs_peers={1: 3.0}, transport=transport)) == [to, 1]
    assert network(numbers(retransmits_vs_peers={1: 0.5}, transport=transport)) == []


def test_rings_are_closed(numbers: Numbers) -> None:
    gloo, nccl = numbers(transport="gloo"), numbers(transport="nccl")
    assert (upstream(gloo, 3), downstream(gloo, 0)) == (0, 3)
    assert (upstream(nccl, 0), downstream(nccl, 3)) == (3, 0)


def test_counters_of_hosts_come_before_arrival(numbers: Numbers) -> None:
    both = numbers(drops={3: 2.0}, finish_vs_past={1: 0.4}, transport="gloo")
    assert network(both) == [3]


def test_the_transport_is_read_from_the_collectives() -> None:
    """The ring's direction comes from records, through the frame of the window."""
    steps = [Step(ts=T0 + 0.5, rank=r, step=1) for r in range(3)]
    done = Collective(ts=T0 + 0.1, tensor="w", op="allreduce", end=T0 + 0.2, transport="nccl")
    extractor = Extractor()
    frames = [extractor.frame(w) for w in windows([done, *steps], 1.0)]
    n = CaseNumbers(Case(channel="pace", frames=frames), extractor.memory)
    assert upstream(n, 1) == 0
