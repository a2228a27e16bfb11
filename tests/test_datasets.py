"""The manifest of the recorded runs tells the truth about every file, and the shipped bundle has not seen the demo's run."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from models import read_bundle

ROOT = Path(__file__).resolve().parents[1]


def test_the_manifest_is_current() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "dataset_manifest.py"))["manifest"]()
    assert (ROOT / "datasets" / "manifest.json").read_text() == made, "run python scripts/dataset_manifest.py"


def test_the_shipped_bundle_learned_from_all_runs_but_the_demo() -> None:
    runs = json.loads((ROOT / "datasets" / "manifest.json").read_text())["runs"]
    learned = {run.name for run in read_bundle(ROOT / "detector" / "bundle").manifest.runs}
    assert learned == {name for name, run in runs.items() if run["role"] == "train"}
    assert [name for name, run in runs.items() if run["role"] == "demo"] == ["slow_data_r1"]
