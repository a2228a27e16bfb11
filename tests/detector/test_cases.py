"""Cases: two of three windows open one, quiet ones close it, hard facts do not wait, and what follows belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from detector.cases import AFTERMATH_S, QUIET_WINDOWS, Case, CaseTracker
from detector.fact import Fact
from detector.verdicts import WindowVerdict
from features.extract import FeatureFrame

Frame = Callable[..., FeatureFrame]
Verdict = Callable[..., WindowVerdict]
MakeFact = Callable[..., Fact]
T0 = 1_772_000_000.0


@pytest.fixture
def follow(frame: Frame, verdict: Verdict) -> Callable[..., list[Case]]:
    """The cases of windows written as text, `x` for an unusual one; facts are given by window."""

    def run(pattern: str, facts: dict[int, list[Fact]] | None = None, channel: str = "pace") -> list[Case]:
        tracker = CaseTracker()
        for index, sign in enumerate(pattern):
            said = verdict(channel) if sign == "x" else verdict()
            tracker.add(frame(index, is_warmup=sign == "w"), said, (facts or {}).get(index, []))
        return tracker.finish()

    return run


def indices(frames: Iterable[FeatureFrame]) -> list[int]:
    return [f.index for f in frames]


@pytest.mark.parametrize(
    ("pattern", "opened"),
    [("....x.....", False), ("..x..x..x.", False), ("...xx.....", True), ("...x.x....", True), ("x" * 10, True)],
)
def test_two_of_three_windows_open_a_case(follow: Callable[..., list[Case]], pattern: str, opened: bool) -> None:
    assert (len(follow(pattern)) == 1) is opened


@pytest.mark.parametrize(
    ("pattern", "opened"), [("nnnn", True), ("nn.nn", True), ("nn..nn", False), ("nnn....", False), ("n.xx", True)]
)
def test_staying_near_the_limit_opens_a_case_too(frame: Frame, verdict: Verdict, pattern: str, opened: bool) -> None:
    """`n`: a score near the limit, `x`: beyond it. What is near just before belongs to the case."""
    tracker = CaseTracker()
    for index, sign in enumerate(pattern):
        beyond = verdict("pace")
        near = WindowVerdict(raised=beyond.channels)
        tracker.add(frame(index), beyond if sign == "x" else near if sign == "n" else verdict(), [])
    cases = tracker.finish()
    assert bool(cases) is opened
    if pattern == "nn.nn":
        assert indices(cases[0].frames) == [0, 1, 3, 4]


def test_a_window_near_the_limit_is_no_past_to_learn_from() -> None:
    assert not WindowVerdict(raised={}).raised
    assert WindowVerdict().of("pace") is None


def test_a_case_begins_with_the_first_window_that_counted(follow: Callable[..., list[Case]]) -> None:
    (case,) = follow("..x.xx.")

    assert indices(case.frames) == [2, 4, 5]
    assert (case.start, case.last) == (T0 + 2, T0 + 6)


def test_windows_of_different_channels_do_not_add_up(frame: Frame, verdict: Verdict) -> None:
    tracker = CaseTracker()
    tracker.add(frame(0), verdict("pace"), [])
    tracker.add(frame(1), verdict("memory"), [])
    assert tracker.finish() == []

    tracker.add(frame(2), verdict("pace", "memory"), [])
    assert [c.channel for c in tracker.finish()] == ["pace", "memory"]


def test_quiet_windows_close_a_case_and_the_next_one_is_another(follow: Callable[..., list[Case]]) -> None:
    quiet = "." * QUIET_WINDOWS
    assert [c.is_open for c in follow("xx" + quiet[1:])] == [True]
    assert [c.is_open for c in follow("xx" + quiet)] == [False]

    first, second = follow("xx" + quiet + "xx")
    assert (indices(first.frames), indices(second.frames)) == ([0, 1], [7, 8])
    assert (first.is_open, second.is_open) == (False, True)


def test_a_fault_that_comes_and_goes_is_one_case(follow: Callable[..., list[Case]]) -> None:
    (case,) = follow("xx...x....x....x")
    assert indices(case.frames) == [0, 1, 5, 10, 15]


def test_a_warm_up_is_no_quiet_time(follow: Callable[..., list[Case]]) -> None:
    (case,) = follow("xx" + "w" * 3 * QUIET_WINDOWS)
    assert case.is_open


def test_a_hard_fact_opens_a_case_at_once_and_takes_the_window_before(
    follow: Callable[..., list[Case]], fact: MakeFact
) -> None:
    (case,) = follow("..x.", {3: [fact(3.4)]})

    assert indices(case.frames) == [2]
    assert case.start == T0 + 2
    assert case.last == T0 + 3.4


def test_a_fact_alone_is_a_case_without_windows(follow: Callable[..., list[Case]], fact: MakeFact) -> None:
    (case,) = follow("....", {1: [fact(1.5)]})

    assert case.frames == []
    assert (case.start, case.last) == (T0 + 1.5, T0 + 1.5)


@pytest.mark.parametrize("weak", [{"hard": False}, {"role": "context"}])
def test_what_proves_nothing_opens_no_case_but_joins_one(
    follow: Callable[..., list[Case]], fact: MakeFact, weak: dict[str, object]
) -> None:
    assert follow("....", {1: [fact(1.5, **weak)]}) == []

    (case,) = follow("xx..", {2: [fact(2.5, **weak)]})
    assert [f.ts for f in case.facts] == [T0 + 2.5]


def test_facts_go_to_the_case_of_their_channel(follow: Callable[..., list[Case]], fact: MakeFact) -> None:
    cases = follow("xxx.", {2: [fact(2.5, "loss_nan", channel="numbers")]})

    assert {c.channel: [f.name for f in c.facts] for c in cases} == {"pace": [], "numbers": ["loss_nan"]}


def test_a_late_fact_belongs_to_what_it_followed(follow: Callable[..., list[Case]], fact: MakeFact) -> None:
    """Launchers report a death ten seconds late: the case may have been closed by then."""
    closed, late = "xx" + "." * (QUIET_WINDOWS + 40), 2 + AFTERMATH_S
    (case,) = follow(closed, {31: [fact(late)]})
    assert (case.is_open, [f.ts for f in case.facts]) == (False, [T0 + late])

    assert len(follow(closed, {32: [fact(late + 0.1)]})) == 2


def test_what_others_say_of_a_failure_joins_the_failure_of_any_channel(
    follow: Callable[..., list[Case]], fact: MakeFact
) -> None:
    followed = {8: [fact(8.5, "log_cascade_exception", "cascade")]}
    (case,) = follow("xx" + "." * 8, followed, channel="memory")
    assert [f.name for f in case.facts] == ["log_cascade_exception"]

    (alone,) = follow("." * 10, followed)
    assert alone.channel == "pace"


def test_facts_are_kept_in_the_order_of_time(follow: Callable[..., list[Case]], fact: MakeFact) -> None:
    """That a process is gone is only sure after a while; by then the others have complained."""
    (case,) = follow("....", {1: [fact(1.5)], 2: [fact(1.2, "process_gone")]})

    assert [f.name for f in case.facts] == ["process_gone", "log_exception"]
    assert case.start == T0 + 1.2


def test_consequences_do_not_move_the_beginning(follow: Callable[..., list[Case]], fact: MakeFact) -> None:
    facts = {2: [fact(2.1, "log_cascade_exception", "cascade"), fact(2.5)]}
    (case,) = follow("....", facts)
    assert case.start == T0 + 2.5
