"""The length of windows: exact choices, from the beginning of the run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from features.records import Collective, Host, Process, Record, Step
from features.rhythm import ENOUGH, LENGTHS_S, window_length

Make = Callable[..., Step]


@pytest.mark.parametrize(
    ("step_s", "length_s"),
    [
        (0.001, 1.0),
        (1.0 / 12, 1.0),
        (0.0834, 2.0),
        (2.0 / 12, 2.0),
        (0.17, 5.0),
        (0.5, 10.0),
        (0.99, 15.0),
    ],
)
def test_a_window_is_the_shortest_length_that_holds_a_dozen_steps(step: Make, step_s: float, length_s: float) -> None:
    assert window_length([step(0, k, k * step_s, duration_s=step_s) for k in range(20)]) == length_s


@pytest.mark.parametrize(
    ("step_s", "length_s"),
    [
        (1.0, 5.0),
        (1.25, 5.0),
        (1.26, 10.0),
        (2.5, 10.0),
        (5.0, 30.0),
        (7.51, 60.0),
        (25.0, 120.0),
        (75.0, 300.0),
        (5000.0, 300.0),
    ],
)
def test_of_steps_that_take_seconds_four_are_enough(step: Make, step_s: float, length_s: float) -> None:
    assert window_length([step(0, k, k * step_s, duration_s=step_s) for k in range(20)]) == length_s


def test_every_length_can_be_chosen(step: Make) -> None:
    chosen = {window_length([step(0, 0, 0.0, duration_s=k / 12)]) for k in range(1, 1000)}
    assert chosen == set(LENGTHS_S)


@pytest.mark.parametrize(("every", "length_s"), [(1, 2.0), (5, 2.0), (10, 5.0), (100, 30.0)])
def test_a_window_holds_three_lines_of_a_log_that_prints_every_so_many_steps(step: Make, every: int, length_s: float) -> None:
    printed = [step(r, k, 0.1 * k + 0.01 * r, duration_s=0.1) for k in range(0, 500, every) for r in (0, 1)]
    assert window_length(printed) == length_s


def test_the_usual_step_decides_not_the_long_one(step: Make) -> None:
    durations = [40.0, 0.1, 0.1, 0.1, 0.1]
    assert window_length([step(0, k, 0.1 * k, duration_s=d) for k, d in enumerate(durations)]) == 2.0


def test_only_the_first_steps_decide(step: Make) -> None:
    first = [step(0, k, k * 0.1, duration_s=0.1) for k in range(ENOUGH)]
    later = [step(0, ENOUGH + k, 10.0 + k, duration_s=20.0) for k in range(10 * ENOUGH)]
    assert window_length(first + later) == window_length(first) == 2.0


def test_a_stream_need_not_wait_for_more_than_the_first_steps(step: Make) -> None:
    read = 0

    def stream() -> Iterator[Record]:
        nonlocal read
        for k in range(1000):
            read += 1
            yield step(0, k, k * 0.1, duration_s=0.1)

    assert window_length(stream()) == 2.0
    assert read == ENOUGH


def test_steps_without_a_duration_say_nothing(step: Make) -> None:
    assert window_length([step(0, k, 100.0 * k) for k in range(20)]) == LENGTHS_S[0]


def test_the_timeline_speaks_where_no_log_does(collective: Callable[..., Collective], step: Make) -> None:
    """The step time as the coordinator sees it: from one end of a tensor to its next, not from tensor to tensor."""
    uses = [c for k in range(10) for c in (collective(0.5 * k, "a"), collective(0.5 * k + 0.1, "b"))]
    assert window_length(uses) == 10.0
    assert window_length([*uses, step(0, 0, 9.0, duration_s=0.1)]) == 2.0
    assert window_length([collective(0.0, "a"), collective(3.0, "b")]) == LENGTHS_S[0]


def test_only_the_first_periods_and_samples_decide(collective: Callable[..., Collective], host: Callable[..., Host]) -> None:
    first = [collective(0.1 * k) for k in range(10 * ENOUGH + 1)]
    assert window_length([*first, *(collective(100.0 + 20.0 * k) for k in range(1000))]) == 2.0
    samples = [host(k, interval_s=1.0) for k in range(10 * ENOUGH)]
    assert window_length([*samples, *(host(1000.0 + 20.0 * k, interval_s=20.0) for k in range(1000))]) == 5.0
    assert window_length([*first[: 5 * ENOUGH], *(collective(100.0 + 20.0 * k) for k in range(1000))]) == 300.0


def test_open_collectives_say_nothing(collective: Callable[..., Collective]) -> None:
    assert window_length([collective(0.0), collective(50.0, end=None)]) == LENGTHS_S[0]


@pytest.mark.parametrize(("interval_s", "length_s"), [(0.2, 2.0), (0.5, 2.0), (1.0, 5.0), (2.5, 10.0), (15.0, 60.0)])
def test_a_window_holds_four_samples(
    step: Make, host: Callable[..., Host], process: Callable[..., Process], interval_s: float, length_s: float
) -> None:
    steps = [step(0, k, 0.1 * k, duration_s=0.1) for k in range(3)]
    assert window_length([*steps, host(0.0, interval_s=interval_s)]) == length_s
    assert window_length([*steps, process(0, 0.0, interval_s=interval_s)]) == length_s


def test_samples_alone_choose_a_length(host: Callable[..., Host]) -> None:
    assert window_length([host(0.0), *(host(10.0 * k, interval_s=10.0) for k in range(1, 5))]) == 60.0


def test_nothing_known_gives_the_shortest_length(host: Callable[..., Host]) -> None:
    assert window_length([]) == window_length([host(0.0)]) == LENGTHS_S[0]


def test_a_sparse_log_beside_other_sources_does_not_lengthen_windows() -> None:
    lines = [Step(ts=float(k), rank=0, step=10 * k, duration_s=0.06) for k in range(60)]
    samples = [Host(ts=0.2 * k, node="a", interval_s=0.2) for k in range(300)]
    assert window_length(lines) == 5.0
    assert window_length(sorted([*lines, *samples], key=lambda r: r.ts)) == 1.0
