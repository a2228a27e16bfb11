"""Serving needs onnxruntime alone: no library of the training extra is ever imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from models import Bundle, write_bundle

PROGRAM = """
import json, sys
import numpy as np
from models import read_bundle
bundle = read_bundle(sys.argv[1])
judgement = bundle.judge(np.full((2, 14), 9.0), bundle.names)
probabilities = bundle.classify(np.full((1, 5), 0.5), bundle.manifest.classifier.names)
loaded = {name.split(".")[0] for name in sys.modules}
print(json.dumps([judgement.combined.tolist(), probabilities.tolist(), sorted(loaded)]))
"""

TRAINING_ONLY = {"sklearn", "pyod", "onnx", "scipy", "joblib", "torch", "pickle5", "skl2onnx"}


def test_judging_and_classifying_import_no_training_library(bundle: Bundle, tmp_path: Path) -> None:
    place = write_bundle(tmp_path / "bundle", bundle)

    answer = subprocess.run([sys.executable, "-c", PROGRAM, str(place)], capture_output=True, check=True, text=True)

    combined, probabilities, loaded = json.loads(answer.stdout)
    assert answer.stderr == ""
    assert "onnxruntime" in loaded
    assert TRAINING_ONLY.isdisjoint(loaded)
    assert combined[0] == combined[1] > bundle.limit.value
    assert abs(sum(probabilities[0]) - 1.0) < 1e-6


def test_importing_the_package_does_not_start_the_runtime() -> None:
    program = "import sys, models; print('onnxruntime' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    assert answer.stdout == "False\n"


def test_judging_calls_nobody(tmp_path: Path) -> None:
    """The library that serves the graphs reports usage to its maker unless told not to, and leaves an id in the user's home."""
    code = "from detector import score; import sys; score(sys.argv[1])"
    run = Path(__file__).resolve().parents[2] / "datasets" / "runs" / "healthy_np2_conv_b128"
    clean = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code, str(run)], check=True, env={**clean, "HOME": str(tmp_path)}, cwd=tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
