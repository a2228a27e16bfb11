"""Explain: an incident by its id, from what `score` wrote or from the run itself, and a cause from the catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.catalog import Catalog

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(job: type, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    where = tmp_path_factory.mktemp("runs")
    return job(slow=(2, 150, 300)).write(where / "slow"), job(nan=(1, 200)).write(where / "nan")


@pytest.fixture
def saved(call: Call, runs: tuple[Path, Path], tmp_path: Path) -> Callable[[str], tuple[Path, list[str]]]:
    """What `score` wrote of both runs, and the ids in it."""

    def write(form: str) -> tuple[Path, list[str]]:
        out = call("score", *runs, "--format", form).out
        path = tmp_path / f"report.{form}"
        path.write_text(out)
        reports = json.loads(out) if form == "json" else [json.loads(line) for line in out.splitlines()]
        return path, [i["id"] for report in reports for i in report["incidents"]]

    return write


def shows_everything(out: str, catalog: Catalog) -> None:
    cause = catalog.causes["compute/slow-rank"]
    flat = " ".join(out.split())
    assert cause.title in flat
    for fix in cause.fixes:
        for words in (fix.text, fix.why, fix.verify, fix.undo, fix.source):
            assert " ".join(words.split()) in flat
    for heading in ("why:", "verify:", "undo:", "source:"):
        assert heading in flat


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_an_incident_of_a_saved_report(
    call: Call, saved: Callable[[str], tuple[Path, list[str]]], catalog: Catalog, form: str
) -> None:
    path, (slow, nan) = saved(form)

    done = call("explain", slow, path)
    assert (done.code, done.err) == (0, "")
    assert f"({slow})" in done.out
    assert nan not in done.out
    shows_everything(done.out, catalog)
    assert "numerical/nan" in call("explain", nan, path).out


def test_a_report_of_one_run(call: Call, runs: tuple[Path, Path], tmp_path: Path) -> None:
    report = call("score", runs[1], "--format", "json")
    (tmp_path / "one.json").write_text(report.out)
    (incident,) = report.json()["incidents"]
    assert "rank 1 on n0" in call("explain", incident["id"], tmp_path / "one.json").out


def test_an_incident_of_a_run_which_is_then_scored(call: Call, runs: tuple[Path, Path], catalog: Catalog) -> None:
    (incident,) = call("score", runs[0], "--format", "json").json()["incidents"]
    shows_everything(call("explain", incident["id"], runs[0]).out, catalog)


def test_a_file_that_is_no_report_is_a_run_of_one_file(call: Call, runs: tuple[Path, Path]) -> None:
    log = runs[1] / "rank1.log"
    (incident,) = call("score", log, "--format", "json").json()["incidents"]
    assert "numerical/nan" in call("explain", incident["id"], log).out


def test_the_beginning_of_an_id_is_enough_if_it_is_the_only_one(
    call: Call, saved: Callable[[str], tuple[Path, list[str]]]
) -> None:
    path, (slow, nan) = saved("json")
    unique = next(slow[:k] for k in range(3, 14) if not nan.startswith(slow[:k]))
    assert call("explain", unique, path).out == call("explain", slow, path).out

    several = call("explain", "i-", path)
    assert (several.code, several.out) == (1, "")
    assert f"found 2 of these: {slow}, {nan}" in several.err


def test_a_run_that_was_scored_again_is_told_once(call: Call, runs: tuple[Path, Path], tmp_path: Path) -> None:
    """Reports are appended line by line: the same incident comes again with each."""
    line = call("score", runs[0], "--format", "jsonl").out
    (tmp_path / "all.jsonl").write_text(3 * line)
    (incident,) = json.loads(line)["incidents"]
    assert f"({incident['id']})" in call("explain", incident["id"], tmp_path / "all.jsonl").out


def test_an_id_that_nobody_knows(call: Call, saved: Callable[[str], tuple[Path, list[str]]], runs: tuple[Path, Path]) -> None:
    path, ids = saved("json")
    for where in (path, runs[0]):
        done = call("explain", "i-ffffffffffff", where)
        assert (done.code, done.out) == (1, "")
        assert f"{where}: expected one incident i-ffffffffffff, found 0 of these: {ids[0]}" in done.err
        assert "hint: give the id as the report has it" in done.err


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2]", b'{"schema": "rankwatch.report/2"}', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_holds_neither_report_nor_run(call: Call, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    done = call("explain", "i-0", tmp_path / "x.json")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"rankwatch: {tmp_path / 'x.json'}: expected ")


def test_a_place_that_is_not_there(call: Call, tmp_path: Path) -> None:
    done = call("explain", "i-0", tmp_path / "nowhere")
    assert (done.code, done.out) == (1, "")
    assert "found nothing" in done.err


@pytest.mark.parametrize("cause", ["communication/network-loss", "process/rank-killed"])
def test_a_cause_of_the_catalog(call: Call, catalog: Catalog, cause: str) -> None:
    done = call("explain", cause)
    flat = " ".join(done.out.split())
    assert (done.code, done.err) == (0, "")
    assert cause in flat
    assert catalog.causes[cause].title in flat
    assert " ".join(catalog.causes[cause].meaning.split())[:60] in flat


def test_a_cause_that_the_catalog_does_not_know(call: Call) -> None:
    done = call("explain", "communication/gremlins")
    assert (done.code, done.out) == (1, "")
    assert "communication/gremlins: expected a cause of the catalog" in done.err
