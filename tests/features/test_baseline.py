"""The healthy past: thinned but never forgotten, silent while it is short, frozen while nobody adds to it."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.baseline import DEPTH, ENOUGH, Baseline, Series
from features.measures.table import Measures


def series(*values: float) -> Series:
    out = Series()
    for value in values:
        out.add(value)
    return out


def measured(ranks: list[int], per_rank: dict[str, list[float]] | None = None, **run: float) -> Measures:
    vectors = {name: np.array(values) for name, values in (per_rank or {}).items()}
    return Measures(ranks=ranks, per_rank=vectors, run=run)


def learned(*windows: Measures) -> Baseline:
    out = Baseline()
    for m in windows:
        out.add(m)
    return out


def test_a_short_past_keeps_every_value() -> None:
    s = series(*range(DEPTH - 1))
    assert s.values == list(range(DEPTH - 1))
    assert (s.stride, s.seen) == (1, DEPTH - 1)


@given(st.integers(min_value=0, max_value=5000))
def test_a_long_past_is_thinned_evenly_and_never_forgotten(n: int) -> None:
    s = series(*map(float, range(n)))
    assert s.values == [float(v) for v in range(0, n, s.stride)]
    assert len(s.values) < DEPTH
    assert n < DEPTH or len(s.values) >= DEPTH // 2
    assert s.stride & (s.stride - 1) == 0
    assert s.newest == [float(v) for v in range(max(0, n - 4), n)]


def test_the_middle_of_a_long_past_is_that_of_all_of_it() -> None:
    assert series(*map(float, range(1001))).median() == pytest.approx(500.0, abs=16)


def test_a_slow_drift_does_not_become_the_usual_value() -> None:
    """The last tenth of the run does not move the median by more than a tenth."""
    s = series(*([1.0] * 900), *([9.0] * 100))
    assert s.median() == 1.0


def test_a_past_is_spoken_of_from_three_windows_on() -> None:
    assert ENOUGH == 3
    assert math.isnan(series().median())
    assert math.isnan(series(5.0, 6.0).median())
    assert series(5.0, 100.0, 6.0).median() == 6.0


def test_usual_value_of_the_run_and_of_each_rank() -> None:
    b = learned(*(measured([0, 3], {"cpu": [v, 10 * v]}, step=v / 10) for v in (1.0, 2.0, 9.0)))
    assert b.run("step") == 0.2
    assert b.ranks("cpu", [3, 0]).tolist() == [20.0, 2.0]
    assert np.isnan(b.ranks("cpu", [1])).all()
    assert math.isnan(b.run("nothing"))
    assert math.isnan(b.run("cpu"))


@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf])
def test_what_is_missing_is_not_remembered(missing: float) -> None:
    windows = [measured([0, 1], {"cpu": [1.0, missing]}, step=missing) for _ in range(5)]
    b = learned(*windows)
    assert math.isnan(b.run("step"))
    assert b.ranks("cpu", [0, 1]).tolist()[0] == 1.0
    assert np.isnan(b.ranks("cpu", [1])).all()
    assert set(b.series) == {"cpu/0"}


def test_a_rank_that_comes_later_has_its_own_past() -> None:
    b = learned(*(measured([0], {"cpu": [1.0]}) for _ in range(3)), *(measured([0, 1], {"cpu": [1.0, 5.0]}) for _ in range(2)))
    assert np.isnan(b.ranks("cpu", [1])).all()
    b.add(measured([0, 1], {"cpu": [1.0, 5.0]}))
    assert b.ranks("cpu", [0, 1]).tolist() == [1.0, 5.0]


def test_early_is_the_level_of_the_first_windows() -> None:
    b = learned(*(measured([0], {"rss": [v]}) for v in (1.0, 2.0, 3.0, 4.0, 50.0, 60.0, 70.0)))
    assert b.early("rss", [0]).tolist() == [2.5]
    assert learned(*(measured([0], {"rss": [v]}) for v in (1.0, 2.0, 9.0))).early("rss", [0]).tolist() == [2.0]
    assert np.isnan(b.early("rss", [1])).all()
    assert np.isnan(learned(*(measured([0], {"rss": [1.0]}) for _ in range(2))).early("rss", [0])).all()


@pytest.mark.parametrize("n", [10, 100, 1000, 5000])
def test_early_stays_with_the_beginning_however_long_the_run(n: int) -> None:
    """A leak is measured against the start: of its whole growth, early never holds more than a sixteenth."""
    b = learned(*(measured([0], {"rss": [float(v)]}) for v in range(n)))
    assert b.early("rss", [0])[0] <= max(1.5, n / 16)


def test_recent_is_the_level_of_the_last_windows() -> None:
    b = learned(*(measured([0], grad=v) for v in (100.0, 1.0, 2.0, 3.0, 8.0)))
    assert b.recent("grad") == 2.5
    assert b.run("grad") == 3.0
    assert learned(*(measured([0], grad=v) for v in (1.0, 2.0, 9.0))).recent("grad") == 2.0
    assert math.isnan(b.recent("loss"))
    assert math.isnan(learned(*(measured([0], grad=1.0) for _ in range(2))).recent("grad"))


def test_recent_follows_a_past_that_is_thinned() -> None:
    b = learned(*(measured([0], grad=float(v)) for v in range(1000)))
    assert b.recent("grad") == 997.5


def test_best_is_the_lowest_value() -> None:
    b = learned(*(measured([0], loss=v) for v in (3.0, 0.0, 2.0)))
    assert b.best("loss") == 0.0
    assert math.isnan(learned(measured([0], loss=1.0), measured([0], loss=2.0)).best("loss"))
    assert math.isnan(b.best("grad"))
    assert math.isnan(learned(*(measured([0], loss=1.0) for _ in range(2))).best("loss"))


def test_nothing_changes_while_nobody_adds() -> None:
    """Frozen in an anomaly: to ask is not to learn."""
    b = learned(*(measured([0], {"cpu": [1.0]}, loss=2.0) for _ in range(5)))
    before = msgspec.json.encode(b)
    for _ in range(3):
        b.run("loss"), b.ranks("cpu", [0, 7]), b.early("cpu", [0]), b.recent("loss"), b.best("loss"), b.run("other")
    assert msgspec.json.encode(b) == before


def test_a_past_survives_a_snapshot() -> None:
    b = learned(*(measured([0, 1], {"cpu": [1.0, 2.0 + i]}, loss=2.0 / (i + 1)) for i in range(200)))
    again = msgspec.json.decode(msgspec.json.encode(b), type=Baseline)
    more = measured([0, 1], {"cpu": [4.0, 5.0]}, loss=0.1)
    b.add(more)
    again.add(more)
    assert again == b


def test_two_runs_do_not_share_a_past() -> None:
    first, second = learned(measured([0], loss=1.0)), Baseline()
    assert set(first.series) == {"loss"}
    assert second.series == {}
    assert Series().values == []
