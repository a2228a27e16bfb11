"""Scaling: centre and spread that a few bad rows cannot move, and what becomes of the missing and the infinite."""

from __future__ import annotations

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.arrays import Matrix
from models.scaling import CLIP, MAD_TO_SIGMA, Scaler

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, width=32)


def test_centre_is_the_median_and_scale_the_normalised_mad() -> None:
    x = np.array([[1.0], [2.0], [3.0], [4.0], [1000.0]])

    scaler = Scaler.learn(x, 0.0)

    assert scaler.centre.tolist() == [3.0]
    assert scaler.scale.tolist() == [MAD_TO_SIGMA * 1.0]
    assert scaler.transform(np.array([[3.0 + MAD_TO_SIGMA]])).item() == pytest.approx(1.0)


def test_floor_is_the_smallest_scale_of_its_own_feature() -> None:
    x = np.column_stack([np.linspace(-0.001, 0.001, 9), np.linspace(-9.0, 9.0, 9)])

    scaler = Scaler.learn(x, np.array([0.5, 0.5]))

    assert scaler.scale[0] == 0.5
    assert scaler.scale[1] > 5.0


def test_a_constant_feature_without_floor_is_extreme_as_soon_as_it_changes() -> None:
    scaler = Scaler.learn(np.full((5, 1), 2.0), 0.0)

    assert scaler.transform(np.array([[2.0], [2.1], [1.9]])).ravel().tolist() == [0.0, CLIP, -CLIP]


def test_missing_is_no_evidence_and_infinite_is_the_most_there_is() -> None:
    scaler = Scaler.learn(np.array([[5.0], [6.0], [7.0]]), 1.0)

    assert scaler.transform(np.array([[np.nan], [np.inf], [-np.inf]])).ravel().tolist() == [0.0, CLIP, -CLIP]


def test_missing_and_infinite_training_values_do_not_move_the_centre() -> None:
    x = np.array([[1.0], [np.nan], [2.0], [np.inf], [3.0], [-np.inf], [np.inf]])

    assert Scaler.learn(x, 0.1).centre.tolist() == [2.0]


def test_a_column_never_seen_stays_zero_whatever_comes_later() -> None:
    scaler = Scaler.learn(np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.inf]]), 0.1)

    assert scaler.seen.tolist() == [True, False]
    assert scaler.transform(np.array([[2.0, 7.0], [2.0, np.inf]]))[:, 1].tolist() == [0.0, 0.0]


@given(
    arrays.arrays(np.float64, (6, 3), elements=ANY_FLOAT),
    arrays.arrays(np.float64, (4, 3), elements=ANY_FLOAT),
)
def test_any_input_gives_finite_values_within_the_clip_and_is_left_alone(learn: Matrix, x: Matrix) -> None:
    before = x.copy()

    scaled = Scaler.learn(learn, 0.01).transform(x)

    assert np.abs(scaled).max() <= CLIP
    np.testing.assert_array_equal(x, before)
