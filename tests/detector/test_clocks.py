"""Clocks that jump, clocks that disagree and jobs that start again: the answer stays the one of good clocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detector.catalog import Catalog
from detector.scoring import score_run
from features.records import Process, Step
from features.rundir import RunData
from features.windows import order_key
from models import Bundle

Call = Callable[..., Any]
Write = Callable[..., Path]
Shift = Callable[[int, int], float]
SLOW = {"slow": (2, 150, 300)}


@pytest.fixture
def write(job: type, line_of: Callable[..., str], tmp_path: Path) -> Write:
    """The logs of a job, each line by a clock that is off by `shift(rank, step)` seconds."""

    def run(name: str, shift: Shift = lambda rank, step: 0.0, **fault: object) -> Path:
        where = tmp_path / name
        where.mkdir()
        lines: dict[int, list[str]] = {}
        for step in job(**fault).steps_of_all():
            lines.setdefault(step.rank, []).append(line_of(step, shift(step.rank, step.step)))
        for rank, text in lines.items():
            (where / f"rank{rank}.log").write_text("\n".join(text) + "\n")
        return where

    return run


def told(call: Call, run: Path) -> dict[str, Any]:
    done = call("score", run, "--format", "json")
    assert done.code in {0, 3}
    report: dict[str, Any] = done.json()
    return report


def gist(report: dict[str, Any]) -> list[tuple[str, list[int], str, int]]:
    return [(i["cause"], i["ranks"], i["start"], i["first_step"]) for i in report["incidents"]]


BACK = {
    "all ranks": lambda rank, step: -3600.0 if step >= 120 else 0.0,
    "one rank": lambda rank, step: -3600.0 if rank == 1 and step >= 120 else 0.0,
    "the slow rank, amid the fault": lambda rank, step: -3600.0 if rank == 2 and step >= 200 else 0.0,
    "twice": lambda rank, step: -3600.0 * ((step >= 100) + (step >= 200)),
}


@pytest.mark.parametrize("which", BACK)
def test_a_clock_that_goes_back_an_hour_changes_nothing(call: Call, write: Write, which: str) -> None:
    healthy = told(call, write("healthy", BACK[which]))
    assert healthy["incidents"] == []
    assert any("goes back by about 3600.0 s" in n["text"] for n in healthy["notices"])

    assert gist(told(call, write("sick", BACK[which], **SLOW))) == gist(told(call, write("good", **SLOW)))


@pytest.mark.parametrize("claim", ["1e999", "1e300", "-1e300", "nan"])
def test_an_absurd_duration_where_the_clock_goes_back(call: Call, write: Write, claim: str) -> None:
    run = write("healthy", BACK["one rank"])
    lines = (run / "rank1.log").read_text().splitlines()
    lines[120] = lines[120].rsplit("=", 1)[0] + "=" + claim
    (run / "rank1.log").write_text("\n".join(lines) + "\n")
    report = told(call, run)
    assert report["incidents"] == []
    assert report["windows"]["count"] <= 17


@pytest.mark.parametrize("by_s", [90.0, -90.0, 3.0, 0.7])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_clock_is_off_changes_nothing(call: Call, write: Write, rank: int, by_s: float) -> None:
    """What its log says without naming the rank, such as its host, is moved along."""
    report = told(call, write("healthy", lambda r, _: by_s if r == rank else 0.0))
    assert report["incidents"] == []
    assert report["windows"]["count"] <= 17, "no empty windows beside the run"
    assert any("times corrected" in n["text"] for n in report["notices"])


def test_a_fault_is_found_under_a_clock_that_is_off(call: Call, write: Write) -> None:
    off = told(call, write("off", lambda rank, _: 90.0 if rank == 1 else 0.0, **SLOW))
    assert gist(off) == gist(told(call, write("good", **SLOW)))


def test_a_job_that_starts_again_from_step_0_after_an_hour(call: Call, write: Write, job: type, tmp_path: Path) -> None:
    """Appended to the same logs: the second life is scored like the first, and what lay between is no incident."""
    first = write("first", steps=200)
    second = write("second", steps=300, start=job().start + 4000, slow=(1, 150, 300))
    both = tmp_path / "both"
    both.mkdir()
    for log in first.iterdir():
        (both / log.name).write_bytes(log.read_bytes() + (second / log.name).read_bytes())

    assert told(call, first)["incidents"] == []
    report = told(call, both)
    assert [(i["cause"], i["ranks"]) for i in report["incidents"]] == [("slow-rank", [1])]
    assert gist(report)[0][2:] == gist(told(call, second))[0][2:]


def test_files_of_a_restarted_job_side_by_side(call: Call, write: Write, job: type, tmp_path: Path) -> None:
    """Each attempt wrote logs of its own, below one directory."""
    both = tmp_path / "both"
    both.mkdir()
    write("first", steps=200).rename(both / "attempt0")
    write("second", steps=200, start=job().start + 4000).rename(both / "attempt1")

    report = told(call, both)
    assert report["incidents"] == []
    assert report["run"]["world_size"] == 4


def restarted(job: type, pause_s: float, *, with_samples: bool) -> RunData:
    """A job whose ranks were started again by the launcher: new processes, and steps that count from 0."""
    first = job(steps=200)
    ended = first.last_step_end
    second = job(steps=200, start=ended + pause_s)
    between = [
        Process(ts=ended + 0.2 * i, rank=rank, node="n0", pid=100 + rank, status="gone", interval_s=0.2)
        for i in range(1, round(5 * pause_s))
        for rank in range(4)
    ]
    lives = [*first.records(), *between]
    lives += [msgspec.structs.replace(r, pid=r.pid + 50) if isinstance(r, Process) else r for r in second.records()]
    run: RunData = first.run()
    run.records = sorted([r for r in lives if with_samples or isinstance(r, Step)], key=order_key)
    return run


@pytest.mark.parametrize("pause_s", [2.0, 10.0, 60.0])
def test_a_restart_whose_processes_were_seen_is_no_fault(job: type, shipped: Bundle, catalog: Catalog, pause_s: float) -> None:
    assert score_run(restarted(job, pause_s, with_samples=True), shipped, catalog).incidents == []


@pytest.mark.parametrize("pause_s", [2.0, 10.0, 60.0])
def test_a_restart_that_only_logs_tell_of_is_a_pause_of_nobody(
    job: type, shipped: Bundle, catalog: Catalog, pause_s: float
) -> None:
    told = score_run(restarted(job, pause_s, with_samples=False), shipped, catalog).incidents
    assert len(told) <= 1
    assert all(i.ranks == [] and i.end is not None for i in told)


def test_steps_that_carry_no_time_at_all(call: Call, job: type, line_of: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(
        "".join(line_of(s).split("] ", 1)[1] + "\n" for s in job(steps=200).steps_of_all() if s.rank == 0)
    )
    report = told(call, tmp_path)
    assert (report["run"]["steps"], report["incidents"]) == (200, [])


def test_a_log_whose_times_never_change(call: Call, job: type, line_of: Callable[..., str], tmp_path: Path) -> None:
    first = job().steps_of_all()[0].ts
    for rank in range(4):
        lines = [line_of(s, first - s.ts) for s in job(steps=100).steps_of_all() if s.rank == rank]
        (tmp_path / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    assert told(call, tmp_path)["incidents"] == []
