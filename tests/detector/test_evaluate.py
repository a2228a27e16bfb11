"""Evaluate: each labelled run judged by a bundle that never saw it; the same numbers whatever the number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.evaluation import GradedRun, by_fault, graded_table, records_of, summary
from detector.grading import Grade
from features.rundir import load_run
from models import read_bundle

Rankwatch = Callable[..., Any]
RUNS = ("healthy_np2_conv_b128", "healthy_np4_disk", "nan_r2", "slow_compute_r1_np3_full")


def graded(name: str, without: str | None = None, **of: object) -> GradedRun:
    return GradedRun(name, "healthy" if of.get("found") is None else "nan", without, Grade(**of))  # type: ignore[arg-type]


HEALTHY = (graded("a", false_alarms=2, hours=0.5), graded("b", false_alarms=0, hours=0.25))
FAULTY = (
    graded("c", found=True, rank=True, category=True, cause=False, delay_s=2.0, false_alarms=1, extra=1),
    graded("d", found=True, rank=False, category=True, cause=True, delay_s=5.0),
    graded("e", found=False, rank=False, category=False, cause=False),
    graded("c", "log", found=True, rank=True, category=False, cause=False, delay_s=None),
)


def test_sums_are_right() -> None:
    whole, no_log = records_of(summary(graded_table([*HEALTHY, *FAULTY])))
    assert whole == {
        "without": None,
        "faulty": 3,
        "healthy": 2,
        "found": 2,
        "rank": 1,
        "category": 2,
        "cause": 1,
        "median_delay_s": 3.5,
        "false_alarms_faulty": 1,
        "false_alarms_healthy": 2,
        "healthy_hours": 0.75,
        "false_alarms_per_hour": 2.67,
        "extra": 1,
    }
    assert (no_log["without"], no_log["faulty"], no_log["category"], no_log["median_delay_s"]) == ("log", 1, 0, None)


def test_sums_by_fault_are_of_whole_runs() -> None:
    (row,) = records_of(by_fault(graded_table([*HEALTHY, *FAULTY])))
    assert row == {"fault": "nan", "runs": 3, "found": 2, "rank": 1, "category": 2, "cause": 1, "median_delay_s": 3.5}


def test_healthy_runs_alone_and_faulty_ones_alone_can_be_summed() -> None:
    (row,) = records_of(summary(graded_table(HEALTHY)))
    assert (row["faulty"], row["found"], row["median_delay_s"], row["false_alarms_healthy"]) == (0, 0, None, 2)
    assert records_of(by_fault(graded_table(HEALTHY))) == []
    (row,) = records_of(summary(graded_table(FAULTY[:1])))
    assert (row["healthy"], row["false_alarms_healthy"], row["false_alarms_per_hour"], row["found"]) == (0, 0, None, 1)


@pytest.fixture
def label(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "truth.json").write_text(json.dumps({"fault": "healthy", "world_size": 4}))
        return tmp_path / name

    return write


def test_nothing_labelled(rankwatch: Rankwatch, tmp_path: Path) -> None:
    done = rankwatch("evaluate", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "expected runs to learn from, found none" in done.err


def test_a_labelled_run_that_cannot_be_read(rankwatch: Rankwatch, label: Callable[[str], Path], tmp_path: Path) -> None:
    """The error comes from a worker process and has to survive the way."""
    label("a")
    label("b")
    done = rankwatch("evaluate", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert f"rankwatch: {tmp_path / 'a'}: expected a Horovod timeline" in done.err
    assert "Traceback" not in done.err


def test_one_run_leaves_nothing_to_learn_from(
    rankwatch: Rankwatch, label: Callable[[str], Path], job: type, tmp_path: Path
) -> None:
    label("a")
    job(steps=100).write(tmp_path / "a")
    done = rankwatch("evaluate", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "expected runs with healthy windows" in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_four_recorded_runs(rankwatch: Rankwatch, recorded: Path, tmp_path: Path) -> None:
    runs = [recorded / name for name in RUNS]
    done = rankwatch("evaluate", *runs, "--format", "json", "--jobs", "2", "--keep", tmp_path / "family")
    assert (done.code, done.err) == (0, "")
    told = done.json()

    # Shape: each run whole and without each of its sources, with one summary for each set.
    assert set(told) >= {"runs", "summary"}
    assert {row["name"] for row in told["runs"]} == set(RUNS)
    for row in told["runs"]:
        assert set(row) == {"name", "fault", "without", "grade"}
        assert set(row["grade"]) == set(Grade.__struct_fields__)
    whole = {row["name"]: row["grade"] for row in told["runs"] if row["without"] is None}
    assert list(whole) == sorted(RUNS)
    assert [s["without"] for s in told["summary"]] == [None, "timeline", "log", "telemetry"]
    assert (told["summary"][0]["faulty"], told["summary"][0]["healthy"]) == (2, 2)

    # A loss of NaN is a fact: no bundle can miss it, however little it has learned.
    assert whole["nan_r2"]["found"]
    assert whole["nan_r2"]["rank"]
    assert whole["healthy_np2_conv_b128"]["found"] is None

    # The bundle that was kept for a run has not seen it.
    for name in RUNS:
        seen = {digest for run in read_bundle(tmp_path / "family" / name).manifest.runs for digest in run.files.values()}
        assert seen
        assert not seen & {f.sha256 for f in load_run(recorded / name).files}

    # One process gives the same bytes as two.
    assert rankwatch("evaluate", *runs, "--format", "json", "--jobs", "1").out == done.out
