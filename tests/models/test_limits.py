"""The limit keeps the rate that it states, counts windows and not rows, and is honest when runs are few."""

from __future__ import annotations

import numpy as np
import pytest

from models.limits import FORGIVE_FROM, Limit, rate_per_window


def limits(rate: float, *, windows: int = 600, runs: int = 10, times: int = 40) -> list[Limit]:
    random = np.random.default_rng(0)
    groups = np.arange(windows) * runs // windows
    return [Limit.fit(random.exponential(size=windows), groups, rate=rate) for _ in range(times)]


@pytest.mark.parametrize("rate", [0.05, 0.01, 0.001])
def test_new_healthy_windows_alarm_about_as_often_as_stated(rate: float) -> None:
    """Of exponential scores exp(-limit) are above a limit; it errs on the quiet side, but not wildly."""
    true_rates = [float(np.exp(-limit.value)) for limit in limits(rate)]

    assert 0.2 * rate < np.mean(true_rates) <= 1.05 * rate


@pytest.mark.parametrize("rate", [0.05, 0.01, 0.001])
def test_held_out_windows_alarm_no_more_often_than_stated(rate: float) -> None:
    for limit in limits(rate):
        assert limit.observed <= rate + 1.0 / limit.windows


def test_a_lower_rate_never_has_a_lower_limit() -> None:
    scores, groups = np.random.default_rng(1).exponential(size=400), np.repeat(np.arange(8), 50)

    values = [Limit.fit(scores, groups, rate=rate).value for rate in np.geomspace(0.5, 1e-6, 60)]

    assert (np.diff(values) >= 0.0).all()


def test_rows_of_a_window_count_once() -> None:
    """Eight ranks alarm together: by row it is eight false alarms, by window one."""
    random = np.random.default_rng(2)
    windows = random.exponential(size=400)
    scores = np.repeat(windows, 8)
    groups, blocks = np.repeat(np.arange(400) // 50, 8), np.repeat(np.arange(400) % 50, 8)

    by_window = Limit.fit(scores, groups, rate=0.05, blocks=blocks)

    assert by_window == Limit.fit(windows, np.arange(400) // 50, rate=0.05)
    assert by_window.windows == 400


def test_a_window_is_as_high_as_its_highest_row() -> None:
    scores, groups, blocks = np.zeros((4, 10, 3)), np.zeros((4, 10, 3)), np.zeros((4, 10, 3))
    groups += np.arange(4)[:, np.newaxis, np.newaxis]
    blocks += np.arange(10)[:, np.newaxis]
    scores[:, :5, 2] = 1.0

    limit = Limit.fit(scores.ravel(), groups.ravel(), rate=0.6, blocks=blocks.ravel())

    assert (limit.windows, limit.groups, limit.value) == (40, 4, 0.0)
    assert limit.observed == 0.5


def test_with_little_data_no_held_out_run_alarms() -> None:
    scores, groups = np.array([0.1, 0.2, 0.3, 5.0, 0.2, 0.1]), ["a", "a", "b", "b", "c", "c"]

    limit = Limit.fit(scores, groups, rate=0.001)

    assert limit.value >= 5.0
    assert limit.forgiven is None
    assert limit.extrapolated


def test_a_single_high_window_of_a_healthy_run_is_below_the_limit() -> None:
    """The fitted tail alone would pass it off as chance."""
    scores = np.random.default_rng(5).exponential(size=300)
    scores[7] = 80.0

    assert Limit.fit(scores, np.arange(300) // 100, rate=0.001).value >= 80.0


def test_of_many_runs_one_that_is_not_healthy_after_all_hardly_moves_the_limit() -> None:
    random = np.random.default_rng(3)
    runs = FORGIVE_FROM + 3
    groups = np.repeat([f"run-{i}" for i in range(runs)], 40)
    scores = random.exponential(size=len(groups))
    clean = Limit.fit(scores, groups, rate=0.001).value
    scores[40:80] += 1000.0

    limit = Limit.fit(scores, groups, rate=0.001)

    assert limit.forgiven == "run-1"
    assert limit.value < 2.0 * clean
    assert limit.value >= np.delete(scores, np.s_[40:80]).max()
    assert limit.observed == pytest.approx(1.0 / runs)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, float("nan")])
def test_a_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        Limit.fit([1.0, 2.0], ["a", "b"], rate=rate)


def test_alarms_per_hour_become_a_rate_per_window() -> None:
    assert rate_per_window(1.0, hop_s=2.0) == pytest.approx(1.0 / 1800.0)
