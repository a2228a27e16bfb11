"""Runs that were cut off: a full disk, a killed job, an early copy. What is left is answered, or refused in words."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from detector.render import render_report
from detector.report import Report
from detector.wiring import score
from features.errors import UnreadableRun

SMALLEST = "hang_main_r1_mpi"
FILES = ("launcher.log", "telemetry.jsonl.gz", "timeline.json.gz", "train_rank0.log", "train_rank1.log")
CUT = st.floats(0.0, 1.0)


def answer(run: Path) -> Report | None:
    """The report, which can be written in every form; None where the run was refused in words."""
    try:
        report = score(run)
    except UnreadableRun:
        return None
    assert Report.model_validate_json(report.to_json()) == report
    render_report(report, Console(file=io.StringIO(), width=100))
    return report


def test_it_is_the_smallest_recorded_run(recorded: Path) -> None:
    sizes = {run.name: sum(f.stat().st_size for f in run.iterdir()) for run in recorded.iterdir() if run.is_dir()}
    assert min(sizes, key=lambda name: sizes[name]) == SMALLEST
    assert {f.name for f in (recorded / SMALLEST).iterdir()} == {*FILES, "truth.json"}


@settings(max_examples=25)
@given(cuts=st.tuples(*[CUT] * len(FILES)))
def test_every_file_cut_anywhere(recorded: Path, tmp_path_factory: pytest.TempPathFactory, cuts: tuple[float, ...]) -> None:
    run = tmp_path_factory.mktemp("cut")
    for name, share in zip(FILES, cuts, strict=True):
        content = (recorded / SMALLEST / name).read_bytes()
        (run / name).write_bytes(content[: round(share * len(content))])
    answer(run)
    shutil.rmtree(run)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=5)
@given(share=CUT)
def test_one_file_cut_anywhere_leaves_the_others(
    recorded: Path, tmp_path_factory: pytest.TempPathFactory, name: str, share: float
) -> None:
    run = shutil.copytree(recorded / SMALLEST, tmp_path_factory.mktemp("cut") / "run")
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[: round(share * len(content))])

    report = answer(run)
    assert report is not None
    assert report.run.world_size == 2
    assert {"log", "telemetry", "timeline"} - set(report.run.sources) <= {name.split(".")[0]}
    shutil.rmtree(run.parent)


@settings(max_examples=12)
@given(kept=st.sets(st.sampled_from(FILES)))
def test_any_of_the_files(recorded: Path, tmp_path_factory: pytest.TempPathFactory, kept: set[str]) -> None:
    run = tmp_path_factory.mktemp("some")
    for name in kept:
        shutil.copy(recorded / SMALLEST / name, run)
    assert (answer(run) is None) is (not kept)
    shutil.rmtree(run)


@settings(max_examples=15)
@given(st.data())
def test_bytes_turned_over(recorded: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bad memory, bad copies: some bytes of one file are others."""
    run = shutil.copytree(recorded / SMALLEST, tmp_path_factory.mktemp("flipped") / "run")
    path = run / data.draw(st.sampled_from(FILES))
    content = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=20)):
        content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert answer(run) is not None
    shutil.rmtree(run.parent)
