"""Bad input through the command line: an answer from what could be used, or an error in words; never a traceback."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Call = Callable[..., Any]
JUNK = np.random.default_rng(1).bytes(5000)
READ = "expected a Horovod timeline, training or launcher logs, or telemetry, found "


@pytest.fixture
def run(job: type, tmp_path: Path) -> Path:
    """The logs of a healthy job, to be damaged."""
    written: Path = job(steps=200).write(tmp_path / "run")
    return written


def notices(call: Call, run: Path, code: int = 0) -> list[tuple[str, str, str]]:
    done = call("score", run, "--format", "json")
    assert done.code == code, done.err
    return [(n["level"], n["source"], n["text"]) for n in done.json()["notices"]]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, "an empty directory"),
        ({"a.log": b""}, "a.log: empty file"),
        ({"a.log": b"", "b": b""}, "a.log: empty file; b: empty file"),
        ({"a.log": b"\0" * 5000}, "a.log: not a format that is read here"),
        ({"a.bin": JUNK}, "a.bin: not a format that is read here"),
        ({"a.log": "step=1 loss=2.0\n".encode("utf-16")}, "a.log: not a format that is read here"),
        ({"a.gz": b"\x1f\x8b"}, "a.gz: compressed file is cut or damaged"),
        ({"a.gz": b"\x1f\x8b" + b"junk" * 99}, "a.gz: compressed file is cut or damaged"),
        ({"a.gz": gzip.compress(gzip.compress(b"twice"))}, "a.gz: not a format that is read here"),
        ({"truth.json": b'{"fault": "nan"}'}, "an empty directory"),
        ({".hidden.log": b"step=1 loss=2.0\n"}, "an empty directory"),
    ],
)
def test_a_directory_that_holds_nothing_of_use(call: Call, tmp_path: Path, files: dict[str, bytes], found: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    done = call("score", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert f"{tmp_path}: {READ}{found}" in done.err
    assert "\nhint: " in done.err


@pytest.mark.parametrize(
    ("given", "found"), [("nowhere", "nothing"), ("x" * 300, "File name too long"), ("run/rank0.log/x", "Not a directory")]
)
def test_a_path_that_leads_nowhere(call: Call, run: Path, given: str, found: str) -> None:
    done = call("score", run.parent / given)
    assert (done.code, done.out) == (1, "")
    assert f"{given}: expected a run directory or a file, found {found}" in done.err


def test_a_link_to_nothing_is_told_and_the_rest_is_used(call: Call, run: Path) -> None:
    (run / "gone.log").symlink_to(run / "was.log")
    (run / "a").symlink_to(run / "b")
    (run / "b").symlink_to(run / "a")
    assert notices(call, run) == [
        ("error", "a", "cannot be opened: Too many levels of symbolic links"),
        ("error", "b", "cannot be opened: Too many levels of symbolic links"),
        ("error", "gone.log", "cannot be opened: No such file or directory"),
    ]


def test_a_directory_or_pipe_that_looks_like_a_file_is_passed_by(call: Call, run: Path) -> None:
    (run / "timeline.json").mkdir()
    os.mkfifo(run / "telemetry.jsonl")
    assert notices(call, run) == []


def test_junk_among_good_files_is_told(call: Call, run: Path) -> None:
    (run / "core.1234").write_bytes(JUNK)
    (run / "empty").write_bytes(b"")
    assert notices(call, run) == [
        ("warning", "core.1234", "not a format that is read here"),
        ("warning", "empty", "empty file"),
    ]


@pytest.mark.parametrize("form", ["json", "jsonl", "table"])
def test_names_need_not_be_text(call: Call, job: type, tmp_path: Path, form: str) -> None:
    run = job(steps=200, slow=(1, 100, 200)).write(tmp_path / os.fsdecode(b"run-\xff"))
    (run / "rank0.log").rename(run / os.fsdecode(b"rank0-\xfe.log"))
    (run / os.fsdecode(b"empty-\xfd")).write_bytes(b"")

    done = call("score", run, "--format", form)
    assert done.code == 3
    done.out.encode("utf-8")
    assert "run-" in done.out
    assert "empty-" in done.out


def test_a_cut_archive_is_used_up_to_the_cut(call: Call, run: Path, job: type) -> None:
    """Its text is smaller than one read: nothing of it may be kept back."""
    whole = (run / "rank1.log").read_bytes()
    (run / "rank1.log").unlink()
    (run / "rank1.log.gz").write_bytes(gzip.compress(whole)[:-400])

    done = call("score", run, "--format", "json")
    assert done.code == 0
    assert [(n["level"], n["source"]) for n in done.json()["notices"]] == [("warning", "rank1.log.gz")]
    assert done.json()["run"]["world_size"] == 4

    alone = call("score", run / "rank1.log.gz", "--format", "json").json()
    assert 100 < alone["run"]["steps"] < 200


def test_a_damaged_archive_is_used_up_to_the_damage(call: Call, run: Path) -> None:
    packed = bytearray(gzip.compress((run / "rank1.log").read_bytes()))
    packed[-6] ^= 0xFF  # the checksum at its end
    (run / "rank1.log").write_bytes(packed)
    ((level, source, text),) = notices(call, run)
    assert (level, source) == ("warning", "rank1.log")
    assert "what came before is used" in text


def test_a_rank_without_a_log(call: Call, job: type, tmp_path: Path) -> None:
    """Healthy stays healthy, and a slow rank is found among those that wrote one."""
    fine = job().write(tmp_path / "fine")
    (fine / "rank1.log").unlink()
    assert call("score", fine).code == 0

    sick = job(slow=(2, 150, 300)).write(tmp_path / "sick")
    (sick / "rank1.log").unlink()
    told = call("score", sick, "--format", "json").json()
    assert [(i["cause"], i["ranks"]) for i in told["incidents"]] == [("slow-rank", [2])]


def test_one_rank_is_a_run_too(call: Call, run: Path) -> None:
    told = call("score", run / "rank2.log", "--format", "json").json()
    assert (told["run"]["id"], told["run"]["steps"], told["incidents"]) == ("rank2.log", 200, [])


@pytest.mark.parametrize(
    "line",
    [
        b"step=99999999999999999999999 epoch=99999999999999999999 loss=1.0 step_time=1e308 batch=99999999999999999999",
        b"step=500 loss=1e400 step_time=1e-320",
        b'{"step": 1e300, "loss": 1.0, "rank": 1e300, "epoch": 1e300}',
        b'{"step": 1, "loss": ' + b"[" * 100_000,
        b'{"a":' * 50_000,
        b"[rank99999999999999999999]: Traceback (most recent call last):",
        b"9999-12-31T23:59:59.999999+00:00 INFO [rank=0 host=n0] step=300 loss=1.0 step_time=0.05",
        b"0001-01-01T00:00:00.000000+00:00 INFO [rank=0 host=n0] step=300 loss=1.0 step_time=0.05",
        b"2026-02-30T25:61:61.000000+99:99 INFO [rank=0 host=n0] step=300 loss=1.0 step_time=0.05",
        b"Process 99999999999999999999 exit with status code 99999999999999999999999.",
        b"NVRM: Xid (PCI:0000:3b:00): 99999999999999999999999, pid=1, x",
        b"\x00\x01\x02 \x85 \xe2\x80\xa8 \xf0\x9f\x92\xa9 \xff\xfe",
        b"x" * 2_000_000,
    ],
)
def test_a_strange_line_in_a_log(call: Call, run: Path, line: bytes) -> None:
    with (run / "rank0.log").open("ab") as log:
        log.write(line + b"\n")
    done = call("score", run, "--format", "json")
    assert done.code in {0, 3}
    assert done.json()["run"]["world_size"] >= 4


@pytest.mark.parametrize(
    "sample",
    [
        b'{"ts":1e308,"host":{"load1":1}}',
        b'{"ts":-5,"host":{"load1":1}}',
        b'{"ts":1772000005,"host":{"load1":1e308,"mem_used_mb":1e308,"mem_available_mb":1e308,"cpu_times":{"user":1}}}',
        b'{"ts":1772000005,"host":{},"ranks":{"0":{"pid":1e300,"rss_mb":-1,"status":"","threads":1e300,"workers":{"n":-1}}}}',
        b'{"ts":1772000005,"host":' + b'{"a":' * 50_000 + b"}" * 50_001,
        b'{"ts":1772000005,"node":"\\ud800","host":{"load1":1}}',
    ],
)
def test_strange_telemetry(call: Call, run: Path, sample: bytes) -> None:
    (run / "telemetry.jsonl").write_bytes(sample + b"\n" + sample.replace(b"1772000005", b"1772000006") + b"\n")
    assert call("score", run, "--format", "json").code == 0


@pytest.mark.parametrize(
    "timeline",
    [
        b"[",
        b"[]",
        b"[\n" * 50_000,
        b'[{"name":"process_name","ph":"M","pid":1,"args":{"name":"a"}},{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":1e300,"pid":1}]',
        b'[{"ph":"E","ts":-9223372036854775809,"pid":99999999999999999999}]',
    ],
)
def test_a_strange_timeline_beside_logs(call: Call, run: Path, timeline: bytes) -> None:
    (run / "timeline.json").write_bytes(timeline)
    assert call("score", run, "--format", "json").code == 0
    assert call("score", run / "timeline.json").code in {0, 1}
