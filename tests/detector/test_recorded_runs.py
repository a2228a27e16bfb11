"""Every recorded run scored with the shipped bundle.

The bundle has learned from all of them but the demo: this is training data, so nothing here proves how well detection works
(`make evaluate` does, with bundles that have not seen the run). It is a regression test: what was right once stays right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from detector.catalog import Catalog
from detector.grading import grade
from detector.labels import read_label
from detector.report import Report
from detector.scoring import score_run
from features.rundir import load_run
from models import Bundle

RUNS = sorted(path.name for path in (Path(__file__).resolve().parents[2] / "datasets" / "runs").iterdir() if path.is_dir())

pytestmark = pytest.mark.slow


@pytest.fixture
def report(recorded: Path, shipped: Bundle, catalog: Catalog) -> Callable[[str], Report]:
    return lambda name: score_run(load_run(recorded / name), shipped, catalog)


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("healthy")])
def test_healthy_training_data_raises_no_alarm(report: Callable[[str], Report], name: str) -> None:
    """Training data: a regression test, not proof."""
    told = report(name)
    assert [f"{i.category}/{i.cause}" for i in told.incidents if i.severity != "info"] == []
    assert told.windows.count > 10


@pytest.mark.parametrize("name", [name for name in RUNS if not name.startswith("healthy")])
def test_faults_of_the_training_data_are_found(
    report: Callable[[str], Report], recorded: Path, catalog: Catalog, name: str
) -> None:
    """Training data, but for the demo: a regression test, not proof."""
    label = read_label(recorded / name)
    assert label is not None
    told = report(name)

    assert grade(label, told).found, [(i.category, i.cause, i.start) for i in told.incidents]
    assert Report.model_validate_json(told.to_json()) == told
    for incident in told.incidents:
        assert incident.evidence
        assert incident.cause == "unknown" or f"{incident.category}/{incident.cause}" in catalog.causes
        assert set(incident.ranks) <= set(range(label.world_size))
        assert bool(incident.fixes) == (incident.cause != "unknown")


@pytest.mark.parametrize("name", ["kill9_r2", "net_loss_n1", "slow_ckpt"])
def test_the_same_run_gives_the_same_report(report: Callable[[str], Report], name: str) -> None:
    assert report(name).to_json() == report(name).to_json()
