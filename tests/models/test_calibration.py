"""Surprise: one monotone scale for all judges, right on distributions whose tails are known."""

from __future__ import annotations

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.arrays import Vector
from models.calibration import CREDIBLE, SurpriseScale, combine
from models.tails import Tail

SCORES = arrays.arrays(np.float64, st.integers(1, 80), elements=st.floats(-1e6, 1e6, width=32))


@given(SCORES, SCORES)
def test_surprise_never_falls_as_the_score_rises(healthy: Vector, asked: Vector) -> None:
    scale = SurpriseScale.fit(healthy)
    every = np.sort(np.concatenate([healthy, asked, [-1e9, 1e9]]))

    surprises = scale.surprise(every)

    assert np.isfinite(surprises).all()
    assert (np.diff(surprises) >= -1e-12).all()


@pytest.mark.parametrize("probability", [0.5, 0.1, 0.02])
def test_within_the_data_it_is_the_empirical_tail(probability: float) -> None:
    healthy = np.random.default_rng(0).normal(size=5000)

    asked = np.quantile(healthy, 1.0 - probability)

    assert SurpriseScale.fit(healthy).surprise([asked])[0] == pytest.approx(-np.log10(probability), abs=0.05)


@pytest.mark.parametrize("probability", [1e-3, 1e-4, 1e-5])
def test_beyond_the_data_an_exponential_tail_goes_on_as_it_should(probability: float) -> None:
    healthy = np.random.default_rng(1).exponential(scale=3.0, size=2000)

    asked = -3.0 * np.log(probability)

    assert SurpriseScale.fit(healthy).surprise([asked])[0] == pytest.approx(-np.log10(probability), rel=0.15)


def test_surprise_does_not_depend_on_the_judge_s_unit() -> None:
    healthy = np.random.default_rng(2).gamma(2.0, size=300)
    asked = np.linspace(0.0, 20.0, 50)

    once, scaled = SurpriseScale.fit(healthy), SurpriseScale.fit(100.0 * healthy + 7.0)

    np.testing.assert_allclose(once.surprise(asked), scaled.surprise(100.0 * asked + 7.0), atol=1e-6)


def test_beyond_one_in_a_million_it_is_an_order_and_no_longer_a_probability() -> None:
    scale = SurpriseScale.fit(np.random.default_rng(3).exponential(size=1000))

    far, farther = scale.surprise([100.0, 10000.0])

    assert CREDIBLE < far < farther < 3.0 * CREDIBLE


def test_equal_scores_are_no_surprise_and_anything_above_them_is() -> None:
    scale = SurpriseScale.fit(np.full(50, 2.0))

    below, equal, above = scale.surprise([1.0, 2.0, 3.0])

    assert below == equal < 0.1
    assert above > 3.0


def test_the_two_judges_that_are_most_surprised_count() -> None:
    assert combine([[0.25, 4.0, 1.0], [0.75, 0.5, 2.0], [0.0, 1.0, 3.0]]).tolist() == [0.5, 2.5, 2.5]


def test_a_single_judge_is_heard() -> None:
    assert combine([[0.25, 4.0]]).tolist() == [0.25, 4.0]


def test_tail_reads_the_same_in_both_directions() -> None:
    tail = Tail.fit(np.random.default_rng(4).exponential(size=500))

    for rate in (0.04, 0.001, 1e-6):
        assert tail.surprise(np.array([tail.quantile(rate)]))[0] == pytest.approx(-np.log10(rate))
    assert tail.quantile(0.001, sigmas=2.0) > tail.quantile(0.001)
