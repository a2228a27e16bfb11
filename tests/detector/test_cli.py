"""The command line: exit codes, what goes to which stream, several runs of which one is bad, readers that leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.cli import COMMANDS

Call = Callable[..., Any]
RANKWATCH = str(Path(sys.executable).with_name("rankwatch"))


@pytest.fixture(scope="module")
def healthy(job: type, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = job(steps=200).write(tmp_path_factory.mktemp("runs") / "fine")
    return written


@pytest.fixture(scope="module")
def sick(job: type, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = job(slow=(2, 150, 300)).write(tmp_path_factory.mktemp("runs") / "sick")
    return written


def test_exit_codes(call: Call, healthy: Path, sick: Path, tmp_path: Path) -> None:
    assert call("score", healthy).code == 0
    assert call("score", tmp_path).code == 1
    assert call("score", healthy, "--no-such-option").code == 2
    assert call("score", sick).code == 3
    assert call("score", healthy, sick).code == 3


@pytest.mark.parametrize(
    "wrong",
    [
        ("score",),
        ("scroe", "x"),
        ("score", "x", "--format", "xml"),
        ("score", "x", "--bundle", "a", "--unseen-bundle", "b"),
        ("evaluate", "/no/such/directory"),
        ("evaluate", ".", "--jobs", "0"),
        ("train",),
        ("train", "--out", "x", "--false-alarms", "1"),
        ("explain",),
        ("demo", "--format", "yaml"),
    ],
)
def test_wrong_use_is_told_on_stderr_with_how_to_get_help(call: Call, wrong: tuple[str, ...]) -> None:
    done = call(*wrong)
    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err
    assert "--help" in done.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(call: Call, name: str) -> None:
    for option in ("--help", "-h"):
        done = call(name, option)
        assert (done.code, done.err) == (0, "")
        assert f"rankwatch {name}" in done.out


def test_help_lists_every_command_in_order(call: Call) -> None:
    done = call("--help")
    places = [done.out.index(f"  {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert call("--version").out.startswith("rankwatch, version ")


def test_one_bad_run_does_not_take_the_results_of_the_others(call: Call, healthy: Path, sick: Path, tmp_path: Path) -> None:
    for form in ("json", "jsonl", "table"):
        done = call("score", healthy, tmp_path, sick, tmp_path / "nowhere", "--format", form)
        assert done.code == 1
        assert done.err.count("rankwatch: ") == 2
        assert f"rankwatch: {tmp_path}: expected " in done.err
        assert f"rankwatch: {tmp_path / 'nowhere'}: expected " in done.err
        if form != "table":
            told = json.loads(done.out) if form == "json" else [json.loads(line) for line in done.out.splitlines()]
            assert [report["run"]["id"] for report in told] == ["fine", "sick"]
        else:
            assert "fine  4 ranks" in done.out
            assert "compute/slow-rank" in done.out


def test_nothing_is_written_where_nothing_could_be_scored(call: Call, tmp_path: Path) -> None:
    for form in ("json", "jsonl", "table"):
        done = call("score", tmp_path, "--format", form)
        assert (done.code, done.out) == (1, "")
        assert "Traceback" not in done.err


def test_a_table_says_what_where_since_when_why_and_what_to_do(call: Call, sick: Path) -> None:
    out = call("score", sick).out
    for piece in (
        "sick  4 ranks, 300 steps, 2026-02-25T06:13:20",
        "sources: log;",
        "WARNING compute/slow-rank",
        "rank 2 on n0",
        "2026-02-25T06:13:27.000Z to the end of the records",
        "how sure",
        "s lost",
        "why",
        "what to do",
        "1. ",
    ):
        assert piece in out
    assert "\x1b" not in out, "no colours where nobody watches"
    assert max(map(len, out.splitlines())) <= 120


def test_a_healthy_table_says_so(call: Call, healthy: Path) -> None:
    done = call("score", healthy)
    assert "no incident" in done.out
    assert done.err == ""


def test_markup_and_control_characters_of_a_log_stay_text(call: Call, job: type, tmp_path: Path) -> None:
    run = job().write(tmp_path / "[bold]run")
    said = b"uncaught exception ValueError: \x1b]0;x\x07[red]a[/] :boom:"
    with (run / "rank0.log").open("ab") as log:
        log.write(b"2026-02-25T06:13:35+00:00 ERROR [rank=0 host=n0] " + said + b"\n")
    out = call("score", run).out
    assert "[bold]run  4 ranks" in out
    assert "[red]a[/] :boom:" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_demo_finds_the_fault_and_ends_well(call: Call) -> None:
    done = call("demo", "--format", "json")
    assert done.code == 0
    assert [(i["category"], i["ranks"]) for i in done.json()["incidents"]] == [("io", [1])]
    assert done.err.startswith("$ rankwatch score ")


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_a_reader_that_leaves_is_no_failure(sick: Path, form: str) -> None:
    """`rankwatch score ... | head -1`: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        command = [RANKWATCH, "score", str(sick), "--format", form]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is a thing of Linux")
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_full_disk_is_told(sick: Path, form: str) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [RANKWATCH, "score", str(sick), "--format", form]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"rankwatch: " in done.stderr
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_bar_is_drawn_on_a_terminal_and_data_stays_data(sick: Path) -> None:
    watching, terminal = os.openpty()
    command, env = [RANKWATCH, "score", str(sick), str(sick), "--format", "json"], {**os.environ, "TERM": "xterm"}
    with os.fdopen(terminal, "wb") as stderr:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, env=env, check=False)
    drawn = os.read(watching, 1 << 16)
    os.close(watching)
    assert done.returncode == 3
    assert [report["run"]["id"] for report in json.loads(done.stdout)] == ["sick", "sick"]
    assert b"scoring" in drawn
    assert b"2/2" in drawn
