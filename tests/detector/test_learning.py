"""What to learn from: each run once, healthy ones by somebody's word, and errors that say which option was wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.learning import gather
from features.errors import InputError


@pytest.fixture
def labelled(tmp_path: Path) -> Callable[[str, str], Path]:
    def make(name: str, fault: str) -> Path:
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "truth.json").write_text(json.dumps({"fault": fault, "world_size": 4}))
        return run

    return make


def test_runs_come_once_in_order_of_name(labelled: Callable[[str, str], Path], tmp_path: Path) -> None:
    b, a, c = labelled("b", "nan"), labelled("a", "healthy"), labelled("c", "healthy")
    bare = tmp_path / "bare"
    bare.mkdir()

    found = gather(healthy=[bare, c, tmp_path / "runs" / ".." / "runs" / "a"], labelled=[b], runs=[tmp_path / "runs"])
    assert [(run.name, run.label.fault) for run in found] == [
        ("a", "healthy"),
        ("b", "nan"),
        ("bare", "healthy"),
        ("c", "healthy"),
    ]
    assert found[0].path == a.resolve()


def test_the_place_may_be_relative(
    labelled: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled("a", "nan")
    monkeypatch.chdir(tmp_path)
    assert [run.name for run in gather(runs=[Path("runs")], labelled=[Path("runs/a")])] == ["a"]


def test_runs_are_left_out_by_name(labelled: Callable[[str, str], Path], tmp_path: Path) -> None:
    labelled("a", "nan")
    labelled("b", "healthy")
    assert [r.name for r in gather(runs=[tmp_path / "runs"], leave_out=["a"])] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "place", "found"),
    [
        ({}, "train", "none"),
        ({"runs": ["nowhere"]}, "train", "none"),
        ({"runs": ["runs"], "leave_out": ["sick", "fine"]}, "train", "none"),
        ({"runs": ["runs"], "leave_out": ["typo", "other"]}, "--leave-out", "other, typo"),
        ({"healthy": ["runs/sick"]}, "runs/sick", "a label of nan"),
        ({"labelled": ["bare"]}, "bare", "none"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    labelled: Callable[[str, str], Path], tmp_path: Path, arguments: dict[str, list[str]], place: str, found: str
) -> None:
    labelled("sick", "nan")
    labelled("fine", "healthy")
    (tmp_path / "bare").mkdir()
    given: dict[str, Any] = {
        name: values if name == "leave_out" else [tmp_path / value for value in values] for name, values in arguments.items()
    }

    with pytest.raises(InputError) as refused:
        gather(**given)
    assert refused.value.place in {place, str(tmp_path / place)}
    assert refused.value.found == found
    assert refused.value.remedy


def test_a_malformed_label_stops_learning(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "truth.json").write_text("[]")
    with pytest.raises(InputError, match="list instead of an object"):
        gather(runs=[tmp_path])
