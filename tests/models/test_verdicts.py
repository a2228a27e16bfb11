"""Verdicts: where the limit lies, and how the judges' reasons are put together."""

from __future__ import annotations

import numpy as np
import pytest

from models.calibration import Score
from models.limits import Limit
from models.verdicts import Verdict, blend

LIMIT = Limit(value=2.5, rate=0.01, observed=0.0, windows=100, groups=5, forgiven=None, extrapolated=False)


@pytest.mark.parametrize(("value", "expected"), [(2.4, False), (2.5, False), (2.6, True)])
def test_above_the_limit_is_anomalous_and_on_it_is_not(value: float, expected: bool) -> None:
    assert Verdict(Score(value, {}, {}), LIMIT).is_anomalous is expected


def test_score_limit_and_verdict_cannot_be_changed() -> None:
    for record in (Score(1.0, {}, {}), LIMIT, Verdict(Score(1.0, {}, {}), LIMIT)):
        with pytest.raises(AttributeError):
            record.value = 9.0  # type: ignore[union-attr]


def test_a_judge_explains_as_much_as_it_is_surprised() -> None:
    explanations = {"a": np.array([[10.0, 0.0]]), "b": np.array([[0.0, 0.1]])}

    shares = blend(explanations, {"a": np.array([1.0]), "b": np.array([3.0])})

    np.testing.assert_allclose(shares, [[0.25, 0.75]])


def test_a_row_that_no_judge_explains_has_no_shares() -> None:
    shares = blend(
        {"a": np.zeros((2, 3)), "b": np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 2.0]])},
        {
            "a": np.ones(2),
            "b": np.ones(2),
        },
    )

    assert shares.tolist() == [[0.0, 0.0, 0.0], [0.5, 0.0, 0.5]]
