"""Facts: what each known message stands for, who spoiled the numbers first, and which process is gone while others live."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from detector.catalog import Catalog
from detector.fact import Fact
from detector.facts import FactFinder
from detector.facts_logs import EVIDENCE_OF_EVENT
from features.events import EVENT_KINDS, EVENTS
from features.extract import Extractor
from features.records import Log, Phase, Process, Record, Step
from features.windows import windows

T0 = 1_772_000_000.0
Find = Callable[[Sequence[Record]], list[Fact]]


@pytest.fixture
def find() -> Find:
    """The facts of records that are cut into windows of one second and measured, as scoring does."""

    def run(records: Sequence[Record]) -> list[Fact]:
        extractor, finder, found = Extractor(), FactFinder(), []
        for window in windows(sorted(records, key=lambda r: r.ts or 0.0), 1.0):
            extractor.frame(window)
            found += finder.of(window, extractor.memory)
        return found

    return run


def log(event: str, at: float = 0.5, **more: object) -> Log:
    return Log(**{"ts": T0 + at, "event": event, "text": f"some words about {event}", "source": "a.log:7", **more})


def seen(rank: int, at: float, status: str, pid: int = 1) -> Process:
    return Process(ts=T0 + at, rank=rank, status=status, pid=pid)


def loss(rank: int, step: int, value: float, at: float | None = None) -> Step:
    return Step(ts=T0 + (step if at is None else at), rank=rank, step=step, loss=value)


@pytest.mark.parametrize("event", EVIDENCE_OF_EVENT)
def test_each_known_message_becomes_a_word_of_the_catalog(find: Find, catalog: Catalog, event: str) -> None:
    (fact,) = find([log(event, rank=3)])

    kind = EVENT_KINDS[event]
    assert fact.name in catalog.vocabulary
    assert fact.role == ("cascade" if fact.name == "log_cascade_exception" else kind.role)
    assert fact.hard is kind.hard
    assert (fact.ts, fact.ranks, fact.text, fact.source) == (T0 + 0.5, (3,), f"some words about {event}", "a.log:7")


def test_messages_that_prove_a_failure_are_not_lost() -> None:
    """`hung_task` names no rank and has no word of its own yet; whoever adds another kind has to say what it stands for."""
    proof = {kind.name for kind in EVENTS if kind.role == "root" and kind.hard}
    assert proof - set(EVIDENCE_OF_EVENT) <= {"hung_task"}


def test_messages_that_nobody_knows_are_no_facts(find: Find) -> None:
    assert find([log("link_up"), log("something else")]) == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"code": "137"}, "log_exit_killed"),
        ({"signal": "9"}, "log_exit_killed"),
        ({"signal": "SIGKILL"}, "log_exit_killed"),
        ({"signal": "9", "code": "1"}, "log_exit_killed"),
        ({"code": "1"}, "log_exit_other"),
        ({"signal": "15"}, "log_exit_other"),
        ({}, "log_exit_other"),
    ],
)
def test_an_exit_tells_a_kill_from_the_rest(find: Find, fields: dict[str, str], name: str) -> None:
    assert [f.name for f in find([log("process_exit", fields=fields)])] == [name]


def test_an_exception_that_another_one_caused_is_a_consequence(find: Find) -> None:
    (fact,) = find([log("exception", rank=1, fields={"cascade": "true"})])
    assert (fact.name, fact.role) == ("log_cascade_exception", "cascade")


def test_an_exception_about_a_dead_worker_is_both(find: Find) -> None:
    found = find([log("dataloader_killed", fields={"type": "RuntimeError"})])
    assert sorted(f.name for f in found) == ["log_dataloader_death", "log_exception"]


def test_who_is_spoken_about_counts_more_than_who_speaks(find: Find) -> None:
    (fact,) = find([log("stall", rank=0, ranks=(2, 3))])
    assert fact.ranks == (2, 3)


def test_a_message_without_time_happened_in_its_window(find: Find) -> None:
    (fact,) = find([log("exception", ts=None)])
    assert fact.ts == 0.0


def test_the_first_bad_loss_is_the_root_and_the_others_got_it(find: Find) -> None:
    found = find([loss(rank, step, math.nan if step >= 2 + (rank != 1) else 0.5) for step in range(5) for rank in range(3)])

    assert [(f.role, f.ranks, f.ts) for f in found] == [
        ("root", (1,), T0 + 2),
        ("cascade", (0,), T0 + 3),
        ("cascade", (2,), T0 + 3),
    ]
    assert {f.name for f in found} == {"loss_nan"}
    assert {f.channel for f in found} == {"numbers"}


def test_the_lower_step_is_first_whatever_the_clocks_say(find: Find) -> None:
    found = find([loss(0, 8, math.nan, at=0.10), loss(1, 7, math.inf, at=0.15), loss(0, 6, 1.0, at=0.05)])
    assert [(f.ranks, f.role) for f in sorted(found, key=lambda f: f.role)] == [((0,), "cascade"), ((1,), "root")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_value_that_is_no_number_counts_once(find: Find, value: float) -> None:
    (fact,) = find([loss(0, step, value) for step in range(3)])
    assert (fact.ts, fact.text) == (T0, f"rank 0: loss is {value} in step 0")


def test_a_loss_that_nobody_told_is_not_bad(find: Find) -> None:
    assert find([loss(0, 0, 0.0), Step(ts=T0, rank=1, step=0)]) == []


def test_a_process_that_is_gone_while_others_live(find: Find) -> None:
    samples = [seen(rank, at, "sleeping") for rank in range(3) for at in (0.2, 0.7)]
    samples += [seen(rank, at, "gone" if rank == 1 else "sleeping") for rank in range(3) for at in (1.2, 1.7, 2.3, 2.8)]

    (fact,) = find(samples)
    assert (fact.name, fact.role, fact.ranks) == ("process_gone", "root", (1,))
    assert (fact.ts, fact.kind) == (T0 + 1.2, "telemetry")


@pytest.mark.parametrize("status", ["gone", "zombie", "dead", "Z"])
def test_every_way_to_be_gone(find: Find, status: str) -> None:
    assert [f.ranks for f in find([seen(0, 1, status), seen(1, 1, "running"), seen(1, 2.5, "running")])] == [(0,)]


def test_the_next_death_follows_from_the_first(find: Find) -> None:
    samples = [seen(2, at, "sleeping") for at in range(8)]
    samples += [seen(0, at, "gone" if at >= 2 else "sleeping") for at in range(8)]
    samples += [seen(1, at, "gone" if at >= 4 else "sleeping") for at in range(8)]

    assert [(f.ranks, f.role) for f in find(samples)] == [((0,), "root"), ((1,), "cascade")]


def test_all_processes_leave_at_the_end_of_a_run(find: Find) -> None:
    """They leave within a fraction of a second, not at once."""
    samples = [seen(rank, at, "sleeping") for rank in range(3) for at in (0.0, 1.0)]
    samples += [seen(rank, 1.2 + 0.3 * rank, "gone") for rank in range(3)]
    samples += [seen(2, 1.5, "sleeping"), *(seen(rank, 3.0, "gone") for rank in range(3))]
    assert find(samples) == []


def test_a_rank_that_said_it_was_done_may_leave_before_the_others(find: Find) -> None:
    samples = [seen(1, at, "sleeping") for at in range(6)] + [seen(0, at, "gone") for at in range(2, 6)]
    assert [f.ranks for f in find(samples)] == [(0,)]
    assert find([*samples, Phase(ts=T0 + 1.5, kind="done", rank=0)]) == []


def test_a_lonely_process_has_nobody_to_outlive_it(find: Find) -> None:
    assert find([seen(0, 0, "sleeping"), *(seen(0, at, "gone") for at in range(1, 5))]) == []


def test_a_restart_that_takes_no_time_is_no_death(find: Find) -> None:
    samples = [seen(1, at / 2, "sleeping") for at in range(12)]
    samples += [seen(0, at / 2, "gone" if at == 5 else "running", pid=1 if at < 5 else 2) for at in range(12)]
    assert find(samples) == []


def test_a_rank_that_was_restarted_may_die_again(find: Find) -> None:
    gone = {3, 4, 5, 10, 11, 12}
    samples = [seen(1, at, "sleeping") for at in range(14)]
    samples += [seen(0, at, "gone" if at in gone else "sleeping", pid=1 + (at > 5)) for at in range(14)]

    assert [(f.ts - T0, f.ranks, f.role) for f in find(samples)] == [(3.0, (0,), "root"), (10.0, (0,), "root")]


def test_a_rank_without_more_data_is_told(find: Find) -> None:
    (fact,) = find([Phase(ts=T0 + 1, kind="exhausted", rank=2, step=140), Phase(ts=T0 + 1, kind="validation", rank=2)])
    assert (fact.name, fact.ranks, fact.text) == ("log_exhausted", (2,), "rank 2 has no more data at step 140")


def test_facts_of_a_window_come_in_the_order_of_time(find: Find) -> None:
    found = find([log("exception", 0.6), loss(0, 5, math.nan, at=0.4), log("stall", 0.2)])
    assert [f.ts - T0 for f in found] == pytest.approx([0.2, 0.4, 0.6])
