"""Tables, traces and dumps from file to report: who is named, since when, and what is not called a fault."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector.report import Report
from detector.wiring import score
from features.errors import SettingsError
from features.parsers.steptable_map import StepMap

LEVELS = (420, 430, 440, 455, 470, 500)
"""Steady differences between workers, in no unit."""


def table(path: Path, slow: tuple[int, int, int] | None = None, steps: int = 240) -> Path:
    """Steps of six workers; `slow`: worker, first and last step + 1 in which it takes 1.7 times as long."""
    random, lines = np.random.default_rng(5), ["host,it,took_norm"]
    for k in range(steps):
        for worker, level in enumerate(LEVELS):
            factor = 1.7 if slow is not None and slow[0] == worker and slow[1] <= k < slow[2] else 1.0
            lines.append(f"{worker},{10 * k},{level * factor * random.uniform(0.97, 1.03):.0f}")
    path.write_text("\n".join(lines) + "\n")
    return path


MAP = StepMap.parse("rank=host,step=it,duration_s=took_norm")


def test_a_worker_that_turns_slow_is_named_with_its_step(tmp_path: Path) -> None:
    report = score(table(tmp_path / "t.csv", slow=(3, 130, 170)), step_map=MAP)
    (incident,) = report.incidents
    assert (incident.category, incident.cause, incident.ranks) == ("compute", "slow-rank", [3])
    assert any(e.text.startswith("rank 3 turns slow at step 1300: 1.") for e in incident.evidence)
    assert any(e.text == "rank 3 is back at its usual pace from step 1700 on" for e in incident.evidence)
    assert incident.impact.slowdown is not None
    assert incident.impact.slowdown > 1.2
    assert incident.end is not None


def test_steady_differences_are_no_incident(tmp_path: Path) -> None:
    report = score(table(tmp_path / "t.csv"), step_map=MAP)
    assert report.incidents == []
    assert any("the rank's own time" in n.text for n in report.notices)


def test_a_map_that_fits_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"rank=x,duration=y"):
        score(table(tmp_path / "t.csv"), step_map=StepMap.parse("rank=x,duration_s=y"))


def trace(path: Path, slow: float = 2.0) -> Path:
    """Eight data-parallel workers, twelve steps; worker 5 computes `slow` times as long."""
    lines = ["rank,dp_rank,stage,step,optype,start_ts,duration"]
    for step in range(12):
        for rank in range(8):
            lasts = slow if rank == 5 else 1.0
            lines.append(f"{rank},{rank},0,{step},forward-compute,0,{lasts}")
            lines.append(f"{rank},{rank},0,{step},grads-reduce-scatter,{lasts},{slow + 0.1 - lasts}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_trace_tells_what_a_slow_worker_costs(tmp_path: Path) -> None:
    (incident,) = score(trace(tmp_path / "ops.csv")).incidents
    assert (incident.cause, incident.ranks, incident.end) == ("slow-rank", [5], None)
    ideal = 9 / 8 + 0.1
    assert incident.impact.slowdown == pytest.approx(2.1 / ideal, abs=0.01)
    assert incident.impact.lost_s == pytest.approx(12 * (2.1 - ideal), abs=0.01)


def test_a_healthy_trace_is_healthy(tmp_path: Path) -> None:
    assert score(trace(tmp_path / "ops.csv", slow=1.01)).incidents == []


def dumps(directory: Path, stopped: int) -> Path:
    """Four ranks wait in the seventh collective for the fourth."""
    directory.mkdir()
    for rank in range(4):
        done = rank == stopped
        value: dict[str, Any] = {
            "nccl_version": "2.27.3",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {"0": {"last_enqueued_collective": 6 if done else 7, "last_completed_collective": 6}},
            "entries": [] if done else [
                {"pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 7, "is_p2p": False,
                 "profiling_name": "nccl:all_reduce", "state": "started", "retired": False, "input_sizes": [[8]],
                 "time_created_ns": 1_750_000_000_000_000_000 + rank * 10**9}
            ],
        }  # fmt: skip
        (directory / f"dump_{rank}").write_bytes(pickle.dumps(value, 2))
    return directory


def test_dumps_name_the_rank_that_did_not_come(tmp_path: Path) -> None:
    report: Report = score(dumps(tmp_path / "fr", stopped=2))
    (incident,) = report.incidents
    assert (incident.category, incident.cause, incident.ranks) == ("communication", "collective-stall", [2])
    assert (incident.start, incident.severity) == ("2025-06-15T15:06:40.000Z", "critical")
    assert report.run.world_size == 4
