"""The report: its schema to the key, times in UTC, and the same bytes wherever and whenever it is written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from detector.report import EvidenceItem, Impact, Report, iso, rounded

# One key per line of the contract: name -> type, or what is inside.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SCHEMA = {
    "": {"schema", "run", "model", "windows", "incidents", "notices"},
    "run": {"id", "path", "world_size", "nodes", "start", "end", "steps", "sources"},
    "model": {"id", "features"},
    "windows": {"count", "length_s", "anomalous"},
    "incident": {
        *("id", "category", "cause", "title", "confidence", "severity", "ranks", "nodes", "start", "end"),
        *("first_step", "last_step", "score", "limit", "impact", "alternatives", "evidence", "fixes"),
    },
    "impact": {"lost_s", "slowdown"},
    "evidence": {"kind", "text", "source", "time", "value", "baseline"},
    "fix": {"action", "why", "commands", "source", "text", "verify", "undo"},
    "notice": {"level", "text", "source", "count"},
}


def check(report: dict[str, Any]) -> None:
    """Every part has exactly its keys, and values of the kind that the contract promises."""
    assert set(report) == SCHEMA[""]
    assert report["schema"] == "rankwatch.report/1"
    for part in ("run", "model", "windows"):
        assert set(report[part]) == SCHEMA[part], part
    for at in (report["run"]["start"], report["run"]["end"]):
        assert TIME.fullmatch(at)
    for notice in report["notices"]:
        assert set(notice) == SCHEMA["notice"]
        assert notice["level"] in {"info", "warning", "error"}
    for incident in report["incidents"]:
        check_incident(incident)


def check_incident(incident: dict[str, Any]) -> None:
    assert set(incident) == SCHEMA["incident"]
    assert set(incident["impact"]) == SCHEMA["impact"]
    assert incident["severity"] in {"info", "warning", "critical"}
    assert 0.0 <= incident["confidence"] <= 1.0
    assert re.fullmatch(r"i-[0-9a-f]{12}", incident["id"])
    assert TIME.fullmatch(incident["start"])
    assert incident["end"] is None or TIME.fullmatch(incident["end"])
    assert incident["end"] is None or incident["end"] >= incident["start"]
    assert all(isinstance(rank, int) for rank in incident["ranks"])
    assert incident["evidence"]
    for item in incident["evidence"]:
        assert set(item) == SCHEMA["evidence"]
        assert item["kind"] in {"feature", "timeline", "log", "telemetry", "rule"}
        assert item["time"] is None or TIME.fullmatch(item["time"])
    for fix in incident["fixes"]:
        assert set(fix) == SCHEMA["fix"]


@pytest.fixture(scope="module")
def run(job: type, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slow rank that recovers, then a loss that is no number: one incident that ends and one that stays."""
    where = tmp_path_factory.mktemp("runs") / "two-faults"
    written: Path = job(steps=500, slow=(2, 150, 260), nan=(1, 470)).write(where)
    return written


@pytest.fixture(scope="module")
def report(run: Path, rankwatch: Callable[..., Any]) -> dict[str, Any]:
    done = rankwatch("score", run, "--format", "json")
    assert done.code == 3
    told: dict[str, Any] = done.json()
    return told


def test_every_key_is_there_and_no_other(report: dict[str, Any]) -> None:
    check(report)
    assert report["run"]["id"] == "two-faults"
    assert (report["run"]["world_size"], report["run"]["nodes"], report["run"]["sources"]) == (4, ["n0"], ["log"])
    assert report["run"]["steps"] == 500
    assert report["windows"]["anomalous"] <= report["windows"]["count"]
    assert Report.model_validate(report).to_json() + "\n" == json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def test_what_is_over_has_an_end_and_what_is_not_has_none(report: dict[str, Any]) -> None:
    told = {i["cause"]: i for i in report["incidents"]}
    assert told["slow-rank"]["end"] is not None
    assert told["nan"]["end"] is None
    assert [i["severity"] for i in report["incidents"]] == ["critical", "warning"]


@pytest.mark.parametrize("name", ["kill9_r2", "nan_r2", "net_loss_n1", "slow_ckpt", "healthy_np2_conv_b128"])
def test_recorded_runs_keep_the_schema(recorded: Path, call: Callable[..., Any], name: str) -> None:
    check(call("score", recorded / name, "--format", "json").json())


def test_jsonl_is_the_same_on_one_line(run: Path, report: dict[str, Any], call: Callable[..., Any]) -> None:
    done = call("score", run, run, "--format", "jsonl")
    first, second = done.out.splitlines()
    assert first == second
    assert json.loads(first) == report


def test_several_runs_are_a_list_and_one_is_an_object(run: Path, report: dict[str, Any], call: Callable[..., Any]) -> None:
    assert call("score", run, run, "--format", "json").json() == [report, report]


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "PYTHONHASHSEED": "1"},
        {"TZ": "America/St_Johns", "LC_ALL": "C", "LANG": "C", "PYTHONHASHSEED": "2", "PYTHONUTF8": "0", "COLUMNS": "40"},
    ],
)
def test_the_same_bytes_in_every_process_zone_and_language(
    run: Path, rankwatch: Callable[..., Any], report: dict[str, Any], env: dict[str, str]
) -> None:
    again = rankwatch("score", run, "--format", "json", env=env)
    assert again.out == Report.model_validate(report).to_json() + "\n"
    assert again.err == ""


def test_how_the_path_is_given_changes_only_the_path(
    run: Path, call: Callable[..., Any], report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, here in ((".", run), ("two-faults", run.parent), (f"{run}/../{run.name}/", Path("/"))):
        monkeypatch.chdir(here)
        told = call("score", given, "--format", "json").json()
        assert Path(told["run"].pop("path")) == Path(given)
        assert {**told, "run": {**told["run"], "path": str(run)}} == report


def test_the_name_of_a_run_changes_its_ids_and_nothing_else(
    run: Path, tmp_path: Path, call: Callable[..., Any], report: dict[str, Any]
) -> None:
    told = call("score", shutil.copytree(run, tmp_path / "another"), "--format", "json").json()
    assert told["run"]["id"] == "another"
    assert {i["id"] for i in told["incidents"]}.isdisjoint(i["id"] for i in report["incidents"])
    for one, other in zip(told["incidents"], report["incidents"], strict=True):
        assert {**one, "id": ""} == {**other, "id": ""}


def test_times_are_utc_with_milliseconds() -> None:
    assert iso(0.0) == "1970-01-01T00:00:00.000Z"
    assert iso(1_772_000_000.1239) == "2026-02-25T06:13:20.123Z"
    assert iso(-1.0) == "1969-12-31T23:59:59.000Z"


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf"), -float("inf"), 1e18, -1e18])
def test_a_time_that_no_calendar_has_is_unknown(unknown: float | None) -> None:
    assert iso(unknown) is None


def test_numbers_are_rounded_and_the_infinite_is_unknown() -> None:
    assert (rounded(0.123456), rounded(0.0), rounded(None), rounded(float("nan"))) == (0.1235, 0.0, None, None)
    with pytest.raises(ValidationError):
        Impact(lost_s=float("inf"), slowdown=None)
    with pytest.raises(ValidationError):
        EvidenceItem(kind="guess", text="", source="")  # type: ignore[arg-type]
