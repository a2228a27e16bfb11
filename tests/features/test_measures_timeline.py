"""Measures from the coordinator's timeline: waits, periods, transfers by size, cycles, and who was ready last."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from features.measures.table import Measures, RunMemory
from features.measures.timeline import TRANSFER_HISTORY, learn_transfers, measure_timeline, size_class, transfer_time
from features.records import Collective, Cycles
from features.windows import Window

Make = Callable[..., Collective]
Cut = Callable[..., Window]
Remember = Callable[..., RunMemory]


def measured(window: Window, memory: RunMemory) -> Measures:
    into = Measures(ranks=list(memory.ranks))
    measure_timeline(window, memory, into)
    return into


def column(m: Measures, name: str) -> list[float]:
    return [float(v) for v in m.per_rank[name]]


# --- waits, periods, silence ----------------------------------------------------------------------------------------------


def test_waits_for_the_last_rank(collective: Make, window: Cut, memory: Remember) -> None:
    said = [collective(0.1 * k, negotiate_s=v) for k, v in enumerate((0.01, 0.03, 0.02, 0.5))]
    m = measured(window(*said, collective(0.5), collective(0.6, end=None, negotiate_s=9.0)), memory())
    assert m.run["negotiate"] == 0.025
    assert m.run["negotiate_max"] == 0.5


def test_period_is_from_one_end_of_a_tensor_to_its_next(collective: Make, window: Cut, memory: Remember) -> None:
    run = memory()
    first = measured(window(collective(0.2, "a"), collective(0.3, "b")), run)
    assert math.isnan(first.run["period"])
    m = measured(window(collective(1.2, "a"), collective(1.5, "b"), collective(1.9, "a"), start=1.0), run)
    assert m.run["period"] == pytest.approx(1.0)
    assert run.uses == {"a": 3, "b": 2}
    assert math.isnan(measured(window(start=2.0), run).run["period"])


def test_quiet_counts_from_the_newest_end(collective: Make, window: Cut, memory: Remember) -> None:
    run = memory()
    assert "since_collective" not in measured(window(), run).run
    assert measured(window(collective(0.25), collective(0.75)), run).run["since_collective"] == pytest.approx(0.25)
    m = measured(window(collective(1.5, end=None), start=1.0), run)
    assert m.run["since_collective"] == pytest.approx(1.25)


def test_quiet_of_the_last_window_ends_with_the_records(collective: Make, window: Cut, memory: Remember) -> None:
    last = window(collective(0.25))
    last.until = last.start + 0.3
    assert measured(last, memory()).run["since_collective"] == pytest.approx(0.05)


def test_what_stays_open_is_remembered_by_its_beginning(collective: Make, window: Cut, memory: Remember, t0: float) -> None:
    run = memory()
    measured(window(collective(0.5), collective(0.9, "join", op="join", end=None)), run)
    assert run.dangling_since is None
    measured(window(collective(1.6, end=None), collective(1.5, "b", end=None), start=1.0), run)
    measured(window(collective(2.5, end=None), start=2.0), run)
    assert run.dangling_since == t0 + 1.5 - 0.1


def test_a_join_is_no_collective(collective: Make, window: Cut, memory: Remember) -> None:
    """It lasts until the last rank joins: neither a wait nor a transfer."""
    run = memory()
    m = measured(window(collective(0.5, op="join", negotiate_s=5.0, execute_s=5.0, bytes=4096)), run)
    assert all(math.isnan(v) for v in m.run.values())
    assert run.last_collective_end is None
    assert run.uses == {}
    learn_transfers(window(collective(0.5, op="join", execute_s=5.0, bytes=4096)), run)
    assert run.transfer_past == {}


def test_a_window_without_a_timeline_knows_nothing(window: Cut, memory: Remember) -> None:
    m = measured(window(), memory())
    assert all(math.isnan(v) for v in m.run.values())
    assert m.per_rank == {}


# --- fusion and transfers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        ([(1000, 1)] * 4, 1.0),
        ([(1000, 1)] * 3, math.nan),
        ([(1000, 1), (1000, 1), (1000, 2), (200_000, 4)], 0.5),
        ([(1000, 1), (1000, 1), (1000, 1), (1000, 2), (65_536, 1), (1_000_000, 3)], 0.75),
        ([(65_535, 1)] * 4, 1.0),
        ([(65_536, 1)] * 4, math.nan),
        ([(None, 1)] * 4, math.nan),
    ],
)
def test_share_of_small_tensors_that_travelled_alone(
    collective: Make, window: Cut, memory: Remember, sizes: list[tuple[int | None, int]], share: float
) -> None:
    said = [collective(0.1, f"t{i}", bytes=size, fused=fused) for i, (size, fused) in enumerate(sizes)]
    assert measured(window(*said), memory()).run["unfused_share"] == pytest.approx(share, nan_ok=True)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, 0), (2, 1), (4095, 11), (4096, 12), (8191, 12), (8192, 13), (1 << 40, 40), (0, None), (-4, None), (None, None)],
)
def test_size_class_is_a_power_of_two(collective: Make, size: int | None, expected: int | None) -> None:
    assert size_class(collective(0.1, bytes=size)) == expected


def test_transfer_time_is_that_of_the_library_where_it_is_told(collective: Make) -> None:
    assert transfer_time(collective(0.1, transfer_s=0.0, execute_s=2.0)) == 0.0
    assert transfer_time(collective(0.1, execute_s=2.0)) == 2.0
    assert transfer_time(collective(0.1)) is None


def test_transfers_are_compared_with_the_past_of_their_size(collective: Make, window: Cut, memory: Remember) -> None:
    run = memory()
    learned = window(
        *(collective(0.1, bytes=5000, transfer_s=v) for v in (0.01, 0.02, 0.03)), collective(0.2, bytes=1 << 20, execute_s=0.4)
    )
    before = measured(learned, run)
    assert math.isnan(before.run["transfer"])
    assert math.isnan(before.run["transfer_max"])
    learn_transfers(learned, run)
    assert run.transfer_past == {12: [0.01, 0.02, 0.03], 20: [0.4]}
    now = [
        collective(1.1, bytes=8191, transfer_s=0.08),
        collective(1.2, bytes=4096, transfer_s=0.02),
        collective(1.3, bytes=1 << 20, execute_s=0.8),
        collective(1.4, bytes=1 << 10, transfer_s=9.0),
        collective(1.5, bytes=4096, transfer_s=0.0),
        collective(1.6, bytes=4096),
    ]
    m = measured(window(*now, start=1.0), run)
    assert m.run["transfer"] == pytest.approx(1.0)
    assert m.run["transfer_max"] == pytest.approx(2.0)


def test_a_window_that_is_not_learned_does_not_become_the_past(collective: Make, window: Cut, memory: Remember) -> None:
    run = memory()
    learn_transfers(window(*(collective(0.1, bytes=4096, transfer_s=v) for v in (0.01, 0.0))), run)
    assert run.transfer_past == {12: [0.01]}
    slow = window(collective(1.1, bytes=4096, transfer_s=0.16), start=1.0)
    assert [measured(slow, run).run["transfer"] for _ in range(3)] == pytest.approx([4.0] * 3)


def test_the_past_of_transfers_is_bounded_and_keeps_old_ones(collective: Make, window: Cut, memory: Remember) -> None:
    run = memory()
    times = [0.001 * k for k in range(1, 1001)]
    learn_transfers(window(*(collective(0.1, bytes=4096, transfer_s=v) for v in times)), run)
    past = run.transfer_past[12]
    assert TRANSFER_HISTORY / 2 <= len(past) <= TRANSFER_HISTORY
    assert past == sorted(past)
    assert past[0] < 0.1
    assert past[-1] == 1.0


# --- cycles -----------------------------------------------------------------------------------------------------------------


def test_cycles(window: Cut, memory: Remember, t0: float) -> None:
    gaps = [(0.005, 0.006), (0.004, 0.5), (0.009, None), (None, None)]
    m = measured(window(*(Cycles(ts=t0, count=9, median_gap_s=m, max_gap_s=x) for m, x in gaps)), memory())
    assert m.run["cycle"] == 0.005
    assert m.run["cycle_max"] == 0.5


# --- arrivals ---------------------------------------------------------------------------------------------------------------


def test_who_was_ready_last_and_by_how_much(collective: Make, window: Cut, memory: Remember) -> None:
    arrivals = [{0: 0.0, 1: 0.01, 2: 0.04}, {0: 0.0, 1: 0.02, 2: 0.03}, {0: 0.01, 1: 0.0, 2: 0.05}, {0: 0.07, 1: 0.03, 2: 0.02}]
    m = measured(window(*(collective(0.1 * k, ready=r) for k, r in enumerate(arrivals))), memory(4))
    assert column(m, "last_share") == pytest.approx([1 / 4 - 1 / 3, -1 / 3, 3 / 4 - 1 / 3, math.nan], nan_ok=True)
    # Less the median rank of each: 0.01, 0.02, 0.01, 0.03.
    late = [(-0.01 - 0.02 + 0.0 + 0.04) / 4, (0.0 + 0.0 - 0.01 + 0.0) / 4, (0.03 + 0.01 + 0.04 - 0.01) / 4, math.nan]
    assert column(m, "late") == pytest.approx(late, nan_ok=True)


def test_arrivals_of_two_collectives_say_nothing(collective: Make, window: Cut, memory: Remember) -> None:
    two = [collective(0.1 * k, ready={0: 0.0, 1: 0.5}) for k in range(2)]
    nobody = [collective(0.5), collective(0.6, ready={1: 0.0}), collective(0.7, end=None, ready={0: 0.0, 1: 0.5})]
    m = measured(window(*two, *nobody), memory())
    assert "last_share" not in m.per_rank
    assert "late" not in m.per_rank
    third = measured(window(*two, *nobody, collective(0.8, ready={0: 0.0, 1: 0.5})), memory())
    assert column(third, "last_share") == [-0.5, 0.5]
    assert column(third, "late") == pytest.approx([-0.25, 0.25])


def test_order_in_which_arrivals_are_told_has_no_effect(collective: Make, window: Cut, memory: Remember) -> None:
    there = measured(window(*(collective(0.1, ready={0: 0.0, 1: 0.1, 2: 0.3}) for _ in range(3))), memory(3))
    back = measured(window(*(collective(0.1, ready={2: 0.3, 1: 0.1, 0: 0.0}) for _ in range(3))), memory(3))
    for name in ("last_share", "late"):
        assert np.array_equal(there.per_rank[name], back.per_rank[name])
