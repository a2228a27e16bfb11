"""Measures from step lines: levels, phases, progress and pauses, and the numbers that all ranks should share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from features.measures.steps import KEEP_STEPS, PHASES, measure_steps
from features.measures.table import LINE_GAPS, Measures, RunMemory
from features.records import Phase, Record, Step
from features.windows import Window

Make = Callable[..., Step]
Cut = Callable[..., Window]
Remember = Callable[..., RunMemory]


def measured(window: Window, memory: RunMemory) -> Measures:
    into = Measures(ranks=list(memory.ranks))
    measure_steps(window, memory, into)
    return into


def column(m: Measures, name: str) -> list[float]:
    return [float(v) for v in m.per_rank[name]]


# --- level and phases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PHASES)
def test_time_in_a_phase_is_a_mean(step: Make, window: Cut, memory: Remember, name: str) -> None:
    """A mean: what is lost now and then counts, where a median would hide it."""
    said = [step(0, k, 0.1 * k, **{f"{name}_s": v}) for k, v in enumerate((0.1, 0.1, 0.4))]
    m = measured(window(*said, step(1, 0, 0.1, **{f"{name}_s": 0.0})), memory(3))
    assert column(m, name)[:2] == pytest.approx([0.2, 0.0])
    assert math.isnan(column(m, name)[2])
    others = [n for n in PHASES if n != name]
    assert all(np.isnan(m.per_rank[n]).all() for n in others)


@pytest.mark.parametrize(
    ("said", "local"),
    [
        ({"data_s": 0.1, "forward_s": 0.2, "backward_s": 0.3, "optimizer_s": 0.05, "sync_s": 9.0, "duration_s": 1.0}, 0.65),
        ({"forward_s": 0.2, "duration_s": 1.0, "sync_s": 0.1}, 0.2),
        ({"forward_s": 0.0}, 0.0),
        ({"duration_s": 1.0, "sync_s": 0.25}, 0.75),
        ({"duration_s": 1.0}, math.nan),
        ({"sync_s": 1.0}, math.nan),
        ({}, math.nan),
    ],
)
def test_time_outside_collectives(step: Make, window: Cut, memory: Remember, said: dict[str, float], local: float) -> None:
    m = measured(window(step(0, 0, 0.5, **said)), memory(1))
    assert column(m, "local") == pytest.approx([local], nan_ok=True)


def test_time_outside_collectives_is_a_mean(step: Make, window: Cut, memory: Remember) -> None:
    m = measured(window(*(step(0, k, 0.1, forward_s=v) for k, v in enumerate((0.1, 0.1, 0.4)))), memory(1))
    assert column(m, "local") == pytest.approx([0.2])


def test_step_time_of_the_run_is_a_median_and_its_longest_a_maximum(step: Make, window: Cut, memory: Remember) -> None:
    run = memory(2)
    m = measured(window(*(step(k % 2, k, 0.1 * k, duration_s=v) for k, v in enumerate((0.1, 0.3, 0.2, 5.0)))), run)
    assert m.run["step"] == 0.25
    assert m.run["step_max"] == 5.0
    assert run.recent_step_s == 0.25


def test_the_newest_step_time_is_remembered_through_silence(step: Make, window: Cut, memory: Remember) -> None:
    run = memory(1)
    measured(window(step(0, 0, 0.5, duration_s=0.2)), run)
    m = measured(window(start=1.0), run)
    assert math.isnan(m.run["step"])
    assert math.isnan(m.run["step_max"])
    assert run.recent_step_s == 0.2


def test_batch_loss_and_gradients_are_medians(step: Make, window: Cut, memory: Remember) -> None:
    said = [step(0, k, 0.1, batch=b, loss=v, grad_norm=10 * v) for k, (b, v) in enumerate([(64, 1.0), (64, 9.0), (7, 2.0)])]
    m = measured(window(*said), memory(2))
    assert column(m, "batch") == pytest.approx([64.0, math.nan], nan_ok=True)
    assert (m.run["loss"], m.run["grad"]) == (2.0, 20.0)


def test_a_loss_that_is_no_number_is_counted_and_not_averaged(step: Make, window: Cut, memory: Remember) -> None:
    said = [step(0, k, 0.1, loss=v) for k, v in enumerate((1.0, math.nan, math.inf, 3.0))]
    m = measured(window(*said, step(1, 0, 0.1, loss=1.0), step(2, 0, 0.1)), memory(3))
    assert column(m, "nonfinite") == pytest.approx([0.5, 0.0, math.nan], nan_ok=True)
    assert m.run["loss"] == 1.0


def test_an_empty_window_knows_nothing(window: Cut, memory: Remember) -> None:
    m = measured(window(), memory(2))
    assert all(math.isnan(v) for v in m.run.values())
    assert all(np.isnan(v).all() for v in m.per_rank.values())
    assert "since_step" not in m.run
    assert "behind" not in m.per_rank


# --- ranks against each other -------------------------------------------------------------------------------------------


def together(step: Make, values: dict[int, float], name: str, steps: int = 4) -> list[Record]:
    """Some steps in which each rank reports the same value each time."""
    return [step(r, k, 0.1 * k, **{name: v}) for k in range(steps) for r, v in values.items()]


@pytest.mark.parametrize(
    ("values", "decades"),
    [
        ([9.0, 9.0], [0.0, 0.0]),
        ([9.0, 9.0 * (1 + 0.9e-6)], [0.0, 0.0]),
        ([10.0, 10.01], [2.99957, 2.99957]),
        ([10.0, 10.0, 10.01], [0.0, 0.0, 3.0]),
        ([10.0, 10.0, 10.0, 10.1], [0.0, 0.0, 0.0, 4.0]),
        ([10.0, 10.0, 10.2, 10.2], [3.99568] * 4),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    ],
    ids=str,
)
def test_weights_that_differ_are_told_in_decades_above_the_noise(
    step: Make, window: Cut, memory: Remember, values: list[float], decades: list[float]
) -> None:
    m = measured(window(*together(step, dict(enumerate(values)), "param_norm")), memory(len(values)))
    assert column(m, "param_desync") == pytest.approx(decades, abs=1e-5)


def test_gradients_may_differ_by_more_than_weights(step: Make, window: Cut, memory: Remember) -> None:
    m = measured(window(*together(step, {0: 1.0, 1: 1.0, 2: 1.01}, "grad_norm")), memory(3))
    assert column(m, "grad_desync") == pytest.approx([0.0, 0.0, 2.0])


def test_of_two_ranks_nobody_can_say_which_one_is_right(step: Make, window: Cut, memory: Remember) -> None:
    """However far they are apart, and whichever of the two is number 0."""
    there = measured(window(*together(step, {0: 1.0, 1: 10.0}, "param_norm")), memory(2))
    back = measured(window(*together(step, {0: 10.0, 1: 1.0}, "param_norm")), memory(2))
    assert column(there, "param_desync") == column(back, "param_desync") == pytest.approx([5.95424] * 2, abs=1e-5)


def test_a_rank_that_reports_nothing_agrees_with_nobody(step: Make, window: Cut, memory: Remember) -> None:
    """Two of four ranks have logs: the other two are not known to agree."""
    m = measured(window(*together(step, {0: 1.0, 2: 1.0}, "param_norm")), memory(4))
    assert column(m, "param_desync") == pytest.approx([0.0, math.nan, 0.0, math.nan], nan_ok=True)


def test_weights_that_are_no_number_on_one_rank(step: Make, window: Cut, memory: Remember) -> None:
    m = measured(window(*together(step, {0: 1.0, 1: math.nan, 2: 1.0, 3: math.inf}, "param_norm")), memory(4))
    assert column(m, "param_desync") == pytest.approx([0.0, math.nan, 0.0, math.inf], nan_ok=True)


@pytest.mark.parametrize(
    ("values", "ratios"),
    [
        ([2.0, 8.0], [math.log2(2 / 5), math.log2(8 / 5)]),
        ([1.0, 2.0, 8.0], [-1.0, 0.0, 2.0]),
        ([1.0, 1.0, 1.0, 4.0], [0.0, 0.0, 0.0, 2.0]),
        ([1.0, 1.0, 4.0, math.nan], [0.0, 0.0, 2.0, math.nan]),
        ([1.0, 4.0, 0.0, -1.0], [math.log2(1 / 2.5), math.log2(4 / 2.5), math.nan, math.nan]),
        ([1.0, math.nan, math.inf, -1.0], [math.nan] * 4),
    ],
    ids=str,
)
def test_losses_are_told_as_ratios_to_the_median_rank(
    step: Make, window: Cut, memory: Remember, values: list[float], ratios: list[float]
) -> None:
    m = measured(window(*together(step, dict(enumerate(values)), "loss")), memory(len(values)))
    assert column(m, "loss_ratio") == pytest.approx(ratios, nan_ok=True)


def test_losses_of_few_steps_say_nothing(step: Make, window: Cut, memory: Remember) -> None:
    three = measured(window(*together(step, {0: 1.0, 1: 4.0}, "loss", steps=3)), memory(2))
    assert np.isnan(three.per_rank["loss_ratio"]).all()


def test_ranks_are_compared_once_all_have_reported_the_step(step: Make, window: Cut, memory: Remember) -> None:
    """The edge of a window may fall between two ranks' ends of one step."""
    run = memory(2)
    first = measured(
        window(step(0, 0, 0.5, param_norm=1.0), step(1, 0, 0.5, param_norm=1.0), step(0, 1, 0.9, param_norm=1.0)), run
    )
    assert column(first, "param_desync") == [0.0, 0.0]
    assert list(run.step_values) == [1]
    second = measured(window(step(1, 1, 1.1, param_norm=2.0), start=1.0), run)
    assert min(column(second, "param_desync")) > 5
    assert run.step_values == {}


def test_a_rank_whose_log_is_missing_is_not_waited_for(step: Make, window: Cut, memory: Remember) -> None:
    m = measured(window(*together(step, {0: 1.0, 1: 1.0, 3: 2.0}, "param_norm")), memory(4))
    assert column(m, "param_desync")[3] == pytest.approx(6.0)
    assert math.isnan(column(m, "param_desync")[2])


def test_a_rank_that_reported_before_is_waited_for(step: Make, window: Cut, memory: Remember) -> None:
    run = memory(3)
    measured(window(*(step(r, 0, 0.5, param_norm=1.0) for r in range(3))), run)
    m = measured(window(step(0, 1, 1.5, param_norm=1.0), step(1, 1, 1.5, param_norm=1.0), start=1.0), run)
    assert np.isnan(m.per_rank["param_desync"]).all()


def test_one_rank_alone_is_compared_with_nobody(step: Make, window: Cut, memory: Remember) -> None:
    m = measured(window(*together(step, {0: 1.0}, "param_norm")), memory(1))
    assert np.isnan(m.per_rank["param_desync"]).all()


def test_steps_that_never_become_complete_are_forgotten(step: Make, window: Cut, memory: Remember) -> None:
    run = memory(2)
    measured(window(step(0, 0, 0.1), step(1, 0, 0.1)), run)
    measured(window(*(step(0, k, 1.0 + 0.001 * k) for k in range(1, 200)), start=1.0), run)
    assert sorted(run.step_values) == list(range(200 - KEEP_STEPS, 200))


def test_what_differs_in_one_step_alone_does_not_count(step: Make, window: Cut, memory: Remember) -> None:
    """A median over the steps of the window."""
    odd = [
        step(r, k, 0.1 * k, loss=2.0 + 6.0 * (r == 2 and k == 1), param_norm=2.0 + (r == 2 and k == 1))
        for k in range(5)
        for r in range(3)
    ]
    m = measured(window(*odd), memory(3))
    assert column(m, "loss_ratio") == column(m, "param_desync") == [0.0, 0.0, 0.0]


def test_when_ranks_leave_the_collectives(step: Make, window: Cut, memory: Remember) -> None:
    """The end of a step less its optimizer, against the median rank of the same step."""
    ends, optimizer = {0: 0.50, 1: 0.53, 2: 0.62}, {0: 0.01, 1: 0.02, 2: 0.02}
    said = [step(r, k, 0.2 * k + ends[r], optimizer_s=optimizer[r]) for k in range(3) for r in range(3)]
    m = measured(window(*said), memory(3))
    assert column(m, "finish") == pytest.approx([-0.02, 0.0, 0.09], abs=1e-6)
    without = measured(window(*(step(r, 0, ends[r]) for r in range(3))), memory(3))
    assert np.isnan(without.per_rank["finish"]).all()


# --- progress -----------------------------------------------------------------------------------------------------------


def test_silence_counts_from_the_newest_step_of_any_rank(step: Make, window: Cut, memory: Remember) -> None:
    run = memory(3)
    m = measured(window(step(0, 7, 0.25), step(1, 7, 0.5)), run)
    assert m.run["since_step"] == 0.5
    assert column(m, "behind") == pytest.approx([0.25, 0.0, math.nan], nan_ok=True)
    m = measured(window(start=1.0), run)
    assert m.run["since_step"] == 1.5
    assert column(m, "behind")[:2] == [0.25, 0.0]
    m = measured(window(step(1, 8, 2.75), start=2.0), run)
    assert m.run["since_step"] == 0.25
    assert column(m, "behind")[:2] == [2.5, 0.0]
    assert run.last_step == {0: 7, 1: 8}


def test_silence_of_the_last_window_ends_with_the_records(step: Make, window: Cut, memory: Remember) -> None:
    last = window(step(0, 1, 0.25))
    last.until = last.start + 0.3
    assert measured(last, memory(1)).run["since_step"] == pytest.approx(0.05)


def test_a_step_told_late_does_not_take_progress_back(step: Make, window: Cut, memory: Remember) -> None:
    run = memory(1)
    measured(window(step(0, 5, 0.9)), run)
    m = measured(window(step(0, 4, 0.8), start=1.0), run)
    assert m.run["since_step"] == pytest.approx(1.1)
    assert run.last_step == {0: 5}


def test_of_steps_at_one_time_the_last_one_counts(step: Make, window: Cut, memory: Remember) -> None:
    """A log whose clock knows only seconds: no time has passed between them, and that is no gap."""
    run = memory(1)
    measured(window(step(0, 5, 0.0), step(0, 6, 0.0), step(0, 7, 0.0)), run)
    assert run.last_step == {0: 7}
    assert run.line_gaps_s == []


def test_how_often_a_log_tells_of_a_step_is_learned_per_rank(step: Make, window: Cut, memory: Remember) -> None:
    """Two ranks print every tenth step of 0.1 s, half a second apart from each other."""
    run = memory(2)
    measured(window(*(step(r, 10 * k, k + 0.5 * r, duration_s=0.1) for k in range(3) for r in (0, 1))), run)
    assert math.isnan(memory(2).line_gap_s())
    assert run.line_gaps_s == [1.0] * 4
    assert run.line_gap_s() == 1.0
    assert RunMemory(line_gaps_s=[1.0, 9.0, 1.0, 1.0]).line_gap_s() == 1.0
    measured(window(*(step(0, 40 + k, 4.0 + 0.25 * k) for k in range(200)), start=4.0), run)
    assert len(run.line_gaps_s) == LINE_GAPS
    assert run.line_gap_s() == 0.25


# --- pauses -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pause(t0: float) -> Callable[..., Phase]:
    def make(kind: str, at: float, duration_s: float | None, rank: int | None = 0, **said: Any) -> Phase:
        return Phase(ts=t0 + at, kind=kind, duration_s=duration_s, rank=rank, **said)

    return make


def test_share_of_a_pause_is_of_the_time_since_the_first_step(
    step: Make, pause: Callable[..., Phase], window: Cut, memory: Remember
) -> None:
    m = measured(window(step(0, 0, 0.0), pause("checkpoint", 8.0, 2.0), length_s=10.0), memory(1))
    assert m.run["pause_share"] == 0.25


def test_share_of_a_pause_is_of_the_time_since_the_last_one_of_its_kind_and_rank(
    step: Make, pause: Callable[..., Phase], window: Cut, memory: Remember
) -> None:
    run = memory(2)
    first = [pause("checkpoint", 4.0, 1.0), pause("checkpoint", 5.0, 1.0, rank=1), pause("validation", 6.0, 1.0)]
    assert measured(window(step(0, 0, 0.0), *first, length_s=10.0), run).run["pause_share"] == 0.25
    m = measured(window(pause("checkpoint", 14.0, 2.0), start=10.0, length_s=10.0), run)
    assert m.run["pause_share"] == 0.2
    m = measured(window(pause("validation", 26.0, 5.0), start=20.0, length_s=10.0), run)
    assert m.run["pause_share"] == 0.25
    m = measured(window(pause("checkpoint", 35.0, 6.0, rank=1), pause("checkpoint", 34.0, 1.0), start=30.0, length_s=10.0), run)
    assert m.run["pause_share"] == 0.2


def test_no_pause_is_a_share_of_zero_only_where_steps_are_told(
    step: Make, pause: Callable[..., Phase], window: Cut, memory: Remember
) -> None:
    assert measured(window(step(0, 0, 0.5)), memory(1)).run["pause_share"] == 0.0
    assert math.isnan(measured(window(), memory(1)).run["pause_share"])
    assert math.isnan(measured(window(pause("checkpoint", 0.5, 0.1)), memory(1)).run["pause_share"])


@pytest.mark.parametrize("kind", ["start", "exhausted", "join", "done"])
def test_other_phases_are_no_pauses(step: Make, pause: Callable[..., Phase], window: Cut, memory: Remember, kind: str) -> None:
    assert measured(window(step(0, 0, 0.0), pause(kind, 0.5, 0.4)), memory(1)).run["pause_share"] == 0.0


def test_a_pause_that_ends_with_the_first_step_has_no_share(
    step: Make, pause: Callable[..., Phase], window: Cut, memory: Remember
) -> None:
    m = measured(window(step(0, 0, 0.25), pause("checkpoint", 0.25, 0.1), pause("checkpoint", 0.75, 0.1)), memory(1))
    assert m.run["pause_share"] == pytest.approx(0.2)


def test_a_pause_of_unknown_length_has_no_share(step: Make, pause: Callable[..., Phase], window: Cut, memory: Remember) -> None:
    assert measured(window(step(0, 0, 0.0), pause("checkpoint", 0.5, None)), memory(1)).run["pause_share"] == 0.0


# --- the end ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["exhausted", "join", "done"])
def test_a_rank_that_says_so_is_finished(
    pause: Callable[..., Phase], window: Cut, memory: Remember, kind: str, t0: float
) -> None:
    run = memory(2)
    measured(window(pause(kind, 0.25, None, rank=0), pause(kind, 0.75, None, rank=0)), run)
    assert run.finished == {0: t0 + 0.25}
    assert not run.is_over()
    measured(window(pause(kind, 1.5, None, rank=1), start=1.0), run)
    assert run.is_over()


@pytest.mark.parametrize("kind", ["start", "validation", "checkpoint"])
def test_a_rank_that_pauses_is_not_finished(pause: Callable[..., Phase], window: Cut, memory: Remember, kind: str) -> None:
    run = memory(1)
    measured(window(pause(kind, 0.5, 0.1)), run)
    assert run.finished == {}


def test_an_end_that_no_rank_is_named_with_is_nobodys(pause: Callable[..., Phase], window: Cut, memory: Remember) -> None:
    run = memory(1)
    measured(window(pause("done", 0.5, None, rank=None)), run)
    assert run.finished == {}


@pytest.mark.parametrize("kind", ["exhausted", "join", "done"])
def test_a_rank_that_goes_on_was_not_finished(
    step: Make, pause: Callable[..., Phase], window: Cut, memory: Remember, kind: str
) -> None:
    """Scripts that join, or report the end of training, once an epoch: the next step takes it back."""
    run = memory(1)
    measured(window(step(0, 1, 0.25), pause(kind, 0.5, None)), run)
    assert run.is_over()
    measured(window(step(0, 2, 1.25), start=1.0), run)
    assert not run.is_over()
    measured(window(pause(kind, 2.25, None), step(0, 3, 2.5), start=2.0), run)
    assert not run.is_over()
    measured(window(step(0, 4, 3.25), pause(kind, 3.25, None), start=3.0), run)
    assert run.is_over()
