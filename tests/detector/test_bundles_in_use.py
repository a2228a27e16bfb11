"""Bundles that are not what they say: a changed byte, a missing file, other features. Nothing is judged with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector.wiring import SHIPPED_BUNDLE
from features.vocabulary import NAMES
from models import Bundle, HealthyRows, train_detectors, write_bundle

FILES = sorted(path.name for path in SHIPPED_BUNDLE.iterdir())
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def run(job: type, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = job(steps=60).write(tmp_path_factory.mktemp("runs") / "run")
    return written


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED_BUNDLE, tmp_path / "bundle"))


def refused(call: Call, run: Path, bundle: Path) -> str:
    """What is said to a bundle that cannot be used: once, though two runs were given."""
    done = call("score", run, run, "--bundle", bundle, "--format", "json")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("rankwatch: ") == 1
    message: str = done.err
    return message


@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", FILES)
def test_one_byte_that_is_another(call: Call, run: Path, copied: Path, name: str, where: float) -> None:
    content = bytearray((copied / name).read_bytes())
    content[round(where * (len(content) - 1))] ^= 0x01
    (copied / name).write_bytes(content)
    assert f"{copied / name}: expected " in refused(call, run, copied)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing(call: Call, run: Path, copied: Path, name: str) -> None:
    (copied / name).unlink()
    assert str(copied / name) in refused(call, run, copied)


def test_a_file_that_does_not_belong(call: Call, run: Path, copied: Path) -> None:
    (copied / "extra.pkl").write_bytes(b"cos\nsystem\n")
    assert str(copied / "extra.pkl") in refused(call, run, copied)


@pytest.mark.parametrize("place", ["nowhere", "run/rank0.log"])
def test_what_is_no_bundle(call: Call, run: Path, place: str) -> None:
    assert "expected the manifest of a bundle, found no such file" in refused(call, run, run.parent / place)


def test_the_shipped_bundle_passes_the_same_checks(call: Call, run: Path, copied: Path) -> None:
    assert call("score", run, "--bundle", copied).code == 0


def test_features_of_another_version_are_named(call: Call, run: Path, tmp_path: Path) -> None:
    """A bundle that was really trained on one feature more and one less than are made here."""
    names = ["nvlink_error_rate", *NAMES[1:]]
    x = np.random.default_rng(1).normal(size=(60, len(names)))
    rows = HealthyRows(x, names, ["ratio"] * len(names), np.full(len(names), 0.1), np.repeat(np.arange(6), 10))
    strange = Bundle.assemble(train_detectors(rows, seed=1, false_alarm_rate=0.05, folds=2, judges=["pca", "extreme"]))

    said = refused(call, run, write_bundle(tmp_path / "strange", strange))
    assert f"extra: ['{NAMES[0]}']" in said
    assert "missing: ['nvlink_error_rate']" in said
    assert "hint: " in said


def test_a_bundle_that_knows_no_causes_says_so_where_one_is_needed(
    call: Call, job: type, run: Path, shipped: Bundle, tmp_path: Path
) -> None:
    content = shipped.manifest.model_dump(mode="json", by_alias=True, exclude={"id"})
    files = {name: payload for name, payload in shipped.files.items() if name != "classifier.onnx"}
    content |= {"classifier": None, "files": {name: content["files"][name] for name in files}}
    blind = write_bundle(tmp_path / "blind", Bundle(type(shipped.manifest).of(content), files))

    assert call("score", run, "--bundle", blind).code == 0
    sick = job(slow=(1, 150, 300)).write(tmp_path / "sick")
    assert "trained on healthy runs alone" in refused(call, sick, blind)
