"""Reading a run: everything that is readable once, nothing that must not be read, and a word on the rest."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from features.errors import UnreadableRun
from features.records import Collective, Host, Log, Phase, Process, RunInfo, Step
from features.rundir import RunData, SourceFile, load_run, merge_records
from features.windows import order_key

Make = Callable[..., Any]


@pytest.fixture
def run(layout: Make, tmp_path: Path) -> Path:
    """A run directory with a file of every kind."""
    return layout().write(tmp_path / "job-17")  # type: ignore[no-any-return]


def names(run: RunData) -> list[str]:
    return [f.name for f in run.files]


def said(run: RunData) -> list[tuple[str, str, str, int]]:
    return [(n.level, n.text, n.source, n.count) for n in run.notices.items()]


def steps(run: RunData) -> list[tuple[int, int]]:
    return [(r.rank, r.step) for r in run.records if isinstance(r, Step)]


# --- what is read -------------------------------------------------------------------------------------------------------------


def test_a_directory_with_all_kinds(run: Path) -> None:
    got = load_run(run)
    assert (got.id, got.path) == ("job-17", run.as_posix())
    assert names(got) == ["launcher.log", "telemetry.jsonl", "timeline.json", "train_rank0.log", "train_rank1.log"]
    assert [f.kind for f in got.files] == ["log", "telemetry", "timeline", "log", "log"]
    assert got.sources == ["log", "telemetry", "timeline"]
    assert {RunInfo, Step, Phase, Collective, Host, Process} <= {type(r) for r in got.records}
    assert got.records == sorted(got.records, key=order_key)
    assert got.notices.items() == []


def test_every_file_has_the_checksum_of_its_content(run: Path) -> None:
    """Of what was compressed, not of how: the same log is the same material to learn from."""
    text = (run / "train_rank0.log").read_bytes()
    (run / "train_rank0.log").unlink()
    (run / "train_rank0.log.gz").write_bytes(gzip.compress(text))
    got = {f.name: f.sha256 for f in load_run(run).files}
    assert got["train_rank0.log.gz"] == hashlib.sha256(text).hexdigest()
    assert got["train_rank1.log"] == hashlib.sha256((run / "train_rank1.log").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["timeline.json", "telemetry.jsonl", "train_rank1.log"])
def test_a_single_file_is_a_run_of_its_own(run: Path, name: str) -> None:
    got = load_run(run / name)
    assert got.id == name
    assert names(got) == [name]
    assert got.records == sorted(got.files[0].records, key=order_key)


def test_what_a_file_is_its_content_tells(run: Path) -> None:
    for i, path in enumerate(sorted(run.iterdir())):
        path.rename(run / f"{i}.txt")
    assert [f.kind for f in load_run(run).files] == ["log", "telemetry", "timeline", "log", "log"]


def test_folders_are_looked_into_but_not_for_ever(run: Path) -> None:
    log = (run / "train_rank0.log").read_text()
    for depth in range(1, 6):
        folder = run.joinpath(*(f"d{i}" for i in range(1, depth + 1)))
        folder.mkdir()
        (folder / "log.txt").write_text(log)
    nested = [name for name in names(load_run(run)) if "/" in name]
    assert nested == ["d1/d2/d3/log.txt", "d1/d2/log.txt", "d1/log.txt"]


def test_progress_names_each_file(run: Path) -> None:
    told: list[str] = []
    load_run(run, told.append)
    assert list(dict.fromkeys(told)) == names(load_run(run))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_file_is_read_piece_by_piece(layout: Make, tmp_path: Path, compressed: bool) -> None:
    """In pieces of about a mebibyte: what is held of a file does not grow with it, compressed or not."""
    text = layout(steps=10_000).log(0).encode()
    assert 2 << 20 < len(text) < 3 << 20
    (tmp_path / "rank0.log").write_bytes(gzip.compress(text) if compressed else text)
    told: list[str] = []
    got = load_run(tmp_path, told.append)
    assert 2 <= len(told) <= 3
    assert [k for _, k in steps(got)] == list(range(10_000))


# --- what is never read -------------------------------------------------------------------------------------------------------


def test_labels_are_never_read(run: Path) -> None:
    """Neither in the run nor below it, nor when somebody points at them: poisoned labels change nothing at all."""
    clean = load_run(run)
    poison = (run / "train_rank0.log").read_text().replace("rank=0", "rank=66").replace("loss=2.25", "loss=nan")
    (run / "checkpoints").mkdir()
    for folder in (run, run / "checkpoints"):
        (folder / "truth.json").write_text(poison)
    got = load_run(run)
    assert names(got) == names(clean)
    assert got.records == clean.records
    assert said(got) == said(clean)
    with pytest.raises(UnreadableRun):
        load_run(run / "truth.json")


def test_hidden_files_are_not_read(run: Path) -> None:
    clean = names(load_run(run))
    text = (run / "train_rank0.log").read_text()
    (run / ".git").mkdir()
    (run / "logs").mkdir()
    for path in (run / ".rank7.log", run / ".git" / "rank7.log", run / "logs" / ".rank7.log"):
        path.write_text(text)
    assert names(load_run(run)) == clean


def test_a_run_below_a_hidden_folder_is_read(run: Path, tmp_path: Path) -> None:
    """Only what is hidden within the run is left out."""
    moved = tmp_path / ".cache" / "run"
    shutil.copytree(run, moved)
    assert names(load_run(moved)) == names(load_run(run))


def test_what_is_no_file_is_left_out(run: Path) -> None:
    os.mkfifo(run / "pipe.log")
    (run / "rank9.log").mkdir()
    assert "pipe.log" not in names(load_run(run))


# --- compressed files ---------------------------------------------------------------------------------------------------------


def test_compressed_files_are_read_like_others(run: Path) -> None:
    plain = load_run(run)
    for path in list(run.iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    got = load_run(run)
    assert names(got) == [f"{name}.gz" for name in names(plain)]
    assert [f.kind for f in got.files] == [f.kind for f in plain.files]
    assert steps(got) == steps(plain)
    assert got.notices.items() == []


def test_a_compressed_file_without_its_suffix_is_still_one(run: Path) -> None:
    path = run / "train_rank1.log"
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert {rank for rank, _ in steps(load_run(path))} == {1}


@pytest.mark.parametrize("damage", ["cut", "flipped", "checksum"])
def test_of_a_damaged_archive_what_came_before_is_used(layout: Make, tmp_path: Path, damage: str) -> None:
    whole = layout(steps=4000)
    data = bytearray(gzip.compress(whole.log(0).encode(), mtime=0))
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "flipped":
        data[len(data) // 2 :] = bytes(byte ^ 0x5A for byte in data[len(data) // 2 :])
    else:
        data[-8] ^= 0xFF
    (tmp_path / "rank0.log.gz").write_bytes(bytes(data))
    got = load_run(tmp_path)
    found = [k for _, k in steps(got)]
    assert set(found) >= set(range(1000 if damage != "checksum" else 4000))
    assert damage == "checksum" or len(found) < 3990
    told = [t for t in said(got) if "damaged" in t[1]]
    assert len(told) == 1
    assert told[0][0] == "warning"
    assert told[0][1].startswith("compressed file is cut or damaged; what came before is used (")
    assert told[0][2:] == ("rank0.log.gz", 1)


# --- the same thing told twice ------------------------------------------------------------------------------------------------


def test_what_launcher_and_ranks_both_tell_is_taken_once(run: Path, layout: Make) -> None:
    got = load_run(run)
    assert sorted(steps(got)) == [(r, k) for r in range(2) for k in range(layout().steps)]
    assert [p.rank for p in got.records if isinstance(p, Phase) and p.kind == "done"] == [0, 1]
    assert sum(len([r for r in f.records if isinstance(r, Step)]) for f in got.files) == 2 * len(steps(got))


def test_messages_that_both_tell_are_taken_once(layout: Make, tmp_path: Path) -> None:
    line = (
        "2027-01-15T08:00:01+00:00 ERROR [rank=1 host=node1] RuntimeError: CUDA error: an illegal memory access was encountered"
    )
    (tmp_path / "rank1.log").write_text(layout().log(1) + line + "\n")
    (tmp_path / "launcher.log").write_text(layout().launcher() + f"[1]<stdout>:{line}\n")
    events = [(r.event, r.rank) for r in load_run(tmp_path).records if isinstance(r, Log)]
    assert events == [("cuda_error", 1)]


@pytest.mark.parametrize("name", ["timeline.json", "telemetry.jsonl"])
def test_a_copy_of_a_file_is_not_read_as_a_second_one(run: Path, name: str) -> None:
    """As `gzip -k` leaves, or a backup: every collective would come twice, and the time between two uses would be none."""
    clean = load_run(run)
    (run / f"{name}.gz").write_bytes(gzip.compress((run / name).read_bytes()))
    (run / "backup").mkdir()
    shutil.copy(run / name, run / "backup" / "copy.txt")
    got = load_run(run)
    assert [(type(r), r.ts) for r in got.records] == [(type(r), r.ts) for r in clean.records]
    told = [("info", "copy of backup/copy.txt: read once", copy, 1) for copy in (name, f"{name}.gz")]
    assert said(got) == told


def test_logs_that_say_the_same_are_logs_of_several_ranks(tmp_path: Path) -> None:
    """Only their names tell them apart."""
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.log").write_text("2027-01-15T08:00:00Z step=1 loss=2.0 step_time=0.1\n")
    assert steps(load_run(tmp_path)) == [(0, 1), (1, 1)]


def test_the_same_step_at_another_time_is_another_one(layout: Make, tmp_path: Path) -> None:
    """A rank that was restarted does its step again."""
    run = layout(steps=3)
    (tmp_path / "rank0.log").write_text(run.log(0) + layout(steps=3, start=run.start + 60.0).log(0))
    assert [k for _, k in steps(load_run(tmp_path))] == [0, 1, 2, 0, 1, 2]


def test_merging_does_not_depend_on_the_order_of_files(run: Path) -> None:
    files = load_run(run).files
    there, back = merge_records(files), merge_records(files[::-1])
    plain = [
        [(type(r), r.ts, getattr(r, "rank", None), getattr(r, "step", None)) for r in records] for records in (there, back)
    ]
    assert plain[0] == plain[1]


def test_the_same_files_are_the_same_run_whatever_the_directory_lists_first(run: Path, tmp_path: Path) -> None:
    """Made in the opposite order, among others that come and go, they are listed in another order."""
    other = tmp_path / "elsewhere" / "job-17"
    other.mkdir(parents=True)
    paths = sorted(run.iterdir(), reverse=True)
    for i in range(50):
        (other / f"filler-{i}").touch()
    for path in paths:
        shutil.copy(path, other / path.name)
    for i in range(50):
        (other / f"filler-{i}").unlink()
    there, back = load_run(run), load_run(other)
    assert there.files == back.files
    assert there.records == back.records
    assert (there.id, said(there)) == (back.id, said(back))


# --- what cannot be read ------------------------------------------------------------------------------------------------------


def test_files_that_are_no_telemetry_are_told_of_and_do_no_harm(run: Path) -> None:
    clean = load_run(run)
    (run / "empty.log").touch()
    (run / "weights.pt").write_bytes(bytes(range(256)) * 64)
    got = load_run(run)
    assert got.records == clean.records
    assert said(got) == [
        ("warning", "empty file", "empty.log", 1),
        ("warning", "not a format that is read here", "weights.pt", 1),
    ]


def test_damage_within_a_file_is_counted_and_located(run: Path) -> None:
    lines = (run / "telemetry.jsonl").read_text().splitlines()
    lines[2:2] = ["{damaged", "{}"]
    (run / "telemetry.jsonl").write_text("\n".join(lines) + "\n")
    (notice,) = load_run(run).notices.items()
    assert (notice.level, notice.source, notice.count) == ("warning", "telemetry.jsonl:line 3", 2)


def test_a_link_to_nothing_is_told_of(run: Path) -> None:
    (run / "lost.log").symlink_to(run / "nowhere")
    assert said(load_run(run)) == [("error", "cannot be opened: No such file or directory", "lost.log", 1)]


def test_a_name_that_is_not_utf8_can_be_printed(run: Path) -> None:
    path = os.fsencode(run) + b"/rank\xff.log"
    with open(path, "w") as file:
        file.write((run / "train_rank1.log").read_text())
    assert "rank\\udcff.log" in names(load_run(run))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({}, "an empty directory"),
        ({"a.log": b""}, "a.log: empty file"),
        ({"b.bin": b"\0\1\2\3" * 100}, "b.bin: not a format that is read here"),
        ({"a.log": b"", "b.bin": b"\0\1\2\3" * 100}, "a.log: empty file; b.bin: not a format that is read here"),
        ({".hidden.log": b"step=1 loss=2.0\n"}, "an empty directory"),
        ({"truth.json": b'{"fault": "none"}'}, "an empty directory"),
    ],
)
def test_a_directory_without_anything_to_read_is_an_error_that_says_so(
    tmp_path: Path, content: dict[str, bytes], found: str
) -> None:
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableRun) as caught:
        load_run(tmp_path)
    error = caught.value
    assert (error.place, error.found) == (tmp_path.as_posix(), found)
    assert str(error).startswith(
        f"{tmp_path}: expected a Horovod timeline, training or launcher logs, or telemetry, found {found}"
    )
    assert "hint: point at the directory a run wrote" in str(error)


@pytest.mark.parametrize(("name", "found"), [("nothing-here", "nothing"), ("train_rank0.log/below", "Not a directory")])
def test_a_path_that_leads_nowhere_is_an_error_that_says_so(run: Path, name: str, found: str) -> None:
    with pytest.raises(UnreadableRun, match=rf"expected a run directory or a file, found {found}\nhint: check the path"):
        load_run(run / name)


def test_files_keep_their_own_records(run: Path) -> None:
    """A part of a run can be merged again: what a model sees when a source is missing."""
    got = load_run(run)
    part = merge_records([f for f in got.files if f.kind != "log"])
    assert part == [r for r in got.records if isinstance(r, Collective | Host | Process)]
    assert merge_records([]) == []


def test_runs_do_not_know_of_each_other() -> None:
    first = SourceFile(name="a", kind="log", sha256="", records=[Step(ts=1.0, rank=0, step=1)])
    assert merge_records([first]) == merge_records([first]) == first.records
