"""Folds: a run is on one side only, whatever the runs are like."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.folds import fold_numbers, held_out, is_grouped


@given(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=60), st.integers(2, 6))
def test_no_run_is_ever_on_both_sides_and_every_row_is_held_out_once(groups: list[str], folds: int) -> None:
    times = np.zeros(len(groups), dtype=int)
    for learn, hold in held_out(groups, folds):
        assert not (learn & hold).any()
        assert learn.any()
        assert hold.any()
        times += hold
        if is_grouped(groups):
            assert set(np.array(groups)[learn]).isdisjoint(np.array(groups)[hold])
    assert (times == 1).all()


def test_folds_have_about_as_many_rows() -> None:
    groups = np.repeat(np.arange(9), [90, 10, 10, 10, 30, 30, 30, 45, 45])

    sizes = np.bincount(fold_numbers(groups, 3))

    assert sizes.sum() == 300
    assert np.ptp(sizes) <= 10


def test_a_single_run_is_cut_into_stretches() -> None:
    assert fold_numbers(["only"] * 10, 3).tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert not is_grouped(["only"] * 10)


def test_folds_depend_on_the_runs_and_not_on_the_order_of_rows() -> None:
    groups = np.repeat(np.arange(7), [5, 9, 2, 7, 7, 3, 1])
    order = np.random.default_rng(0).permutation(len(groups))

    np.testing.assert_array_equal(fold_numbers(groups[order], 3), fold_numbers(groups, 3)[order])
