"""Training the judges: calibrated on runs that they have not seen, and the same again for the same input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from features.errors import InputError
from models import Bundle, train_detectors
from models.training import FittedDetectors, HealthyRows

FAST = ("extreme", "pca")


def test_held_out_windows_keep_the_stated_rate(fitted: FittedDetectors) -> None:
    assert fitted.limit.rate == 0.01
    assert fitted.limit.windows == 120
    assert fitted.limit.groups == 6
    assert fitted.limit.observed <= 0.01 + 1.0 / 120.0


def test_every_judge_is_fitted_and_scaled(fitted: FittedDetectors) -> None:
    assert set(fitted.judges) == set(fitted.scales) == {"autoencoder", "extreme", "iforest", "pca"}
    assert fitted.heldout.shape == (480,)
    assert fitted.scaler.seen.tolist() == [i != 5 for i in range(14)]


def test_a_run_is_scored_by_judges_that_never_saw_it(simulation: Any) -> None:
    """The odd run is odd to the others' judges; had they learned from it too, it would be far less so."""
    rows: HealthyRows = simulation.rows()
    x = rows.x.copy()
    odd = rows.groups == "run-2"
    x[odd, 0] += 3.0

    apart = train_detectors(replace(rows, x=x), seed=0, false_alarm_rate=0.01, judges=FAST)
    mixed = train_detectors(replace(rows, x=x, groups=np.arange(len(x)) % 6), seed=0, false_alarm_rate=0.01, judges=FAST)

    assert np.median(apart.heldout[odd]) > np.median(mixed.heldout[odd]) + 0.2
    assert apart.limit.forgiven == "run-2"


def test_same_rows_and_seed_give_the_same_bytes(simulation: Any, fitted: FittedDetectors) -> None:
    again = train_detectors(simulation.rows(), seed=3, false_alarm_rate=0.01)
    other = train_detectors(simulation.rows(), seed=4, false_alarm_rate=0.01)

    first = Bundle.assemble(fitted)
    assert Bundle.assemble(again).manifest.canonical() == first.manifest.canonical()
    assert Bundle.assemble(again).files == first.files
    assert Bundle.assemble(other).id != first.id


def test_a_single_run_can_be_learned_from(simulation: Any) -> None:
    rows: HealthyRows = simulation.rows()
    single = replace(rows, x=rows.x[:80], groups=rows.groups[:80], blocks=None)

    trained = train_detectors(single, seed=0, false_alarm_rate=0.01, judges=FAST)

    assert trained.limit.groups == 1
    assert trained.limit.value >= trained.heldout.max()


def test_training_leaves_its_input_alone(simulation: Any) -> None:
    rows: HealthyRows = simulation.rows()
    before = rows.x.copy()

    train_detectors(rows, seed=0, false_alarm_rate=0.01, judges=FAST, folds=2)

    np.testing.assert_array_equal(rows.x, before)


def test_too_few_rows_are_an_error_that_says_how_many_are_needed(simulation: Any) -> None:
    rows: HealthyRows = simulation.rows()

    with pytest.raises(InputError, match="at least 30 rows with values, found 7 rows"):
        train_detectors(replace(rows, x=rows.x[:7], groups=rows.groups[:7], blocks=None), seed=0, false_alarm_rate=0.01)
    with pytest.raises(InputError, match="found 480 rows, 0 values"):
        train_detectors(replace(rows, x=np.full_like(rows.x, np.nan)), seed=0, false_alarm_rate=0.01)


@pytest.mark.parametrize(
    "wrong",
    [{"names": ["a", "b"]}, {"names": ["same"] * 14}, {"units": ["s"]}, {"floors": np.ones(3)}, {"groups": ["a"]}],
    ids=["few names", "repeated names", "units", "floors", "groups"],
)
def test_parts_that_do_not_fit_together_are_refused(simulation: Any, wrong: dict[str, object]) -> None:
    rows = replace(simulation.rows(), **wrong)

    with pytest.raises(ValueError, match=r"shape \(480, 14\)"):
        train_detectors(rows, seed=0, false_alarm_rate=0.01)
