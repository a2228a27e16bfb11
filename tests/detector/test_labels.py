"""Labels: what is known of a run, or a clear error; never a guess."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from detector.catalog import Catalog
from detector.labels import CAUSE_OF_FAULT, Label, labelled_runs, read_label
from features.errors import InputError

FULL = {
    "fault": "slow_rank_compute",
    "accept": ["compute", "resource"],
    "ranks": [2],
    "world_size": 4,
    "start_time": 1000.5,
    "end_time": 1060,
    "launch_time": 990,
    "exit_time": 1100,
    "start_step": 100,
    "seen_in": ["log", "timeline"],
}


def write(run: Path, content: object) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (run / "truth.json").write_text(text)
    return run


def test_a_full_label(tmp_path: Path) -> None:
    assert read_label(write(tmp_path, FULL)) == Label(
        fault="slow_rank_compute",
        accept=("compute", "resource"),
        ranks=(2,),
        world_size=4,
        start=1000.5,
        end=1060.0,
        launch=990.0,
        exit=1100.0,
        from_first_step=False,
        seen_in=("log", "timeline"),
    )


def test_what_a_label_does_not_say_is_open(tmp_path: Path) -> None:
    label = read_label(write(tmp_path, {"fault": "nan", "world_size": 2, "start_time": None, "end_time": None}))
    assert label is not None
    assert (label.start, label.end, label.launch, label.exit) == (-math.inf, math.inf, -math.inf, math.inf)
    assert (label.accept, label.ranks, label.seen_in, label.from_first_step) == ((), (), (), False)


def test_a_fault_from_the_first_step_on(tmp_path: Path) -> None:
    label = read_label(write(tmp_path, {**FULL, "start_step": 0}))
    assert label is not None
    assert label.from_first_step


def test_a_run_without_label_has_none(tmp_path: Path) -> None:
    assert read_label(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("\xff\xfe", "Expecting value"),
        ([1, 2], "list instead of an object"),
        ("null", "NoneType instead of an object"),
        ('"healthy"', "str instead of an object"),
        ("7", "int instead of an object"),
        ({}, "fault"),
        ({"fault": "nan"}, "world_size"),
        ({**FULL, "world_size": "four"}, "four"),
        ({**FULL, "world_size": None}, "NoneType"),
        ({**FULL, "ranks": 3}, "int"),
        ({**FULL, "ranks": ["first"]}, "first"),
        ({**FULL, "accept": 1}, "int"),
        ({**FULL, "start_time": "noon"}, "noon"),
        ({**FULL, "end_time": [1]}, "list"),
        ({**FULL, "launch_time": None}, "NoneType"),
    ],
)
def test_a_malformed_label_is_refused_by_name(tmp_path: Path, content: object, found: str) -> None:
    with pytest.raises(InputError) as refused:
        read_label(write(tmp_path / "run-a", content))
    assert refused.value.place == str(tmp_path / "run-a" / "truth.json")
    assert found in refused.value.found


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="utf-8"):
        read_label(tmp_path)


def test_every_fault_of_the_recorder_is_a_cause_of_the_catalog(catalog: Catalog) -> None:
    assert set(CAUSE_OF_FAULT.values()) <= set(catalog.causes)


def test_causes_of_labels() -> None:
    def cause(fault: str) -> str | None:
        return Label(fault=fault, accept=(), ranks=(), world_size=1).cause

    assert cause("slow_rank_compute") == "compute/slow-rank"
    assert cause("memory/leak") == "memory/leak", "people may name a cause of the catalog"
    assert cause("healthy") is None
    assert cause("never heard of") is None
    assert Label(fault="healthy", accept=(), ranks=(), world_size=1).is_healthy


def test_labelled_runs_are_found_once_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path / "runs" / name, {**FULL, "fault": name})
    (tmp_path / "runs" / "unlabelled").mkdir()
    (tmp_path / "runs" / "file").write_text("")
    write(tmp_path / "aa", {**FULL, "fault": "aa"})

    found = labelled_runs([tmp_path / "runs", tmp_path / "aa", tmp_path / "runs" / "b"])
    assert [(path.name, label.fault) for path, label in found] == [("a", "a"), ("aa", "aa"), ("b", "b"), ("c", "c")]


def test_every_recorded_run_is_labelled_with_a_known_cause(recorded: Path, catalog: Catalog) -> None:
    runs = labelled_runs([recorded])
    assert len(runs) == sum(path.is_dir() for path in recorded.iterdir())
    assert all(label.is_healthy or label.cause in catalog.causes for _, label in runs)
    assert all(label.is_healthy or label.accept for _, label in runs)
