"""The table of measures and the run's memory: what is not known is NaN, and nothing is shared between runs."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from features.measures.table import Measures, RunMemory, known, mean, median, per_rank


def test_a_rank_without_a_value_is_nan() -> None:
    vector = per_rank({2: 0, 5: 1, 9: 2}, {9: 1.5, 2: 0.0})
    assert vector[[0, 2]].tolist() == [0.0, 1.5]
    assert np.isnan(vector[1])
    assert per_rank({}, {}).shape == (0,)


def test_known_keeps_zeros_and_leaves_out_what_is_no_number() -> None:
    assert known([0.0, None, math.nan, math.inf, -math.inf, -1.0, 0]) == [0.0, -1.0, 0]


def test_median_and_mean_of_nothing_are_nan() -> None:
    assert math.isnan(median([]))
    assert math.isnan(mean([]))
    assert median([4.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0]) == 2.5
    assert mean([4.0, 1.0, 1.0]) == 2.0


def test_ranks_are_remembered_in_order_and_for_good() -> None:
    memory = RunMemory()
    memory.see_ranks([3, 1])
    memory.see_ranks([])
    memory.see_ranks(iter([2, 3]))
    assert memory.ranks == [1, 2, 3]
    assert memory.position() == {1: 0, 2: 1, 3: 2}


def test_a_list_of_ranks_that_was_given_away_does_not_grow() -> None:
    memory = RunMemory(ranks=[0])
    given = memory.ranks
    memory.see_ranks([1])
    assert given == [0]


@pytest.mark.parametrize(
    ("finished", "gone", "is_over"),
    [({}, {}, False), ({0: 1.0}, {}, False), ({0: 1.0}, {1: 2.0}, True), ({0: 0.0, 1: 0.0}, {}, True), ({}, {0: 1.0}, False)],
)
def test_a_run_is_over_when_every_rank_is_done_or_gone(
    finished: dict[int, float], gone: dict[int, float], is_over: bool
) -> None:
    assert RunMemory(ranks=[0, 1], finished=finished, gone=gone).is_over() is is_over


def test_a_run_without_ranks_is_not_over() -> None:
    assert not RunMemory().is_over()


def test_two_runs_share_nothing() -> None:
    first, second = RunMemory(), RunMemory()
    m, n = Measures(ranks=[]), Measures(ranks=[])
    for name in RunMemory.__struct_fields__:
        if isinstance(value := getattr(first, name), list | dict):
            assert value is not getattr(second, name), name
    assert m.run is not n.run
    assert m.per_rank is not n.per_rank


def test_memory_survives_a_snapshot() -> None:
    memory = RunMemory(ranks=[0, 4], step_values={7: {0: (1.0, math.nan, 2.0, math.nan)}}, transfer_past={12: [0.1]})
    memory.gone[4] = 3.5
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(memory), type=RunMemory)
    assert repr(again) == repr(memory)
