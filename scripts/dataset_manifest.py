"""Writes datasets/manifest.json: origin, licence, meaning of the labels and the checksum of every recorded file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "datasets"
DEMO = "slow_data_r1"

HEADER = {
    "origin": "recorded by this project: Horovod 0.28.1 with PyTorch 2.13 on a two-core machine without GPU, 2 to 4 ranks",
    "licence": "Apache-2.0",
    "personal_data": "none; hosts are called localhost or node0 to node3",
    "label_file": "truth.json: what was injected; read for training and evaluation, never when scoring",
    "label_meaning": {
        "fault": "name of the injected fault; detector/labels.py maps it to a cause of the catalog",
        "accept": "categories that are right",
        "ranks": "ranks at fault; empty = a host",
        "start_time": "seconds since the epoch at which the fault began; null in healthy runs",
        "end_time": "when it ended; null = it stayed to the end of the run",
        "start_step": "0 = present from the first step: there is no healthy part",
        "seen_in": "sources that can show it",
        "foreign_cpu_percent": "load of other programs on the machine: real noise, 100 = one core of two",
    },
    "roles": {
        "train": "the shipped bundle has learned from it; evaluation leaves it out in turn",
        "demo": "scored by `rankwatch demo`; the shipped bundle has never seen it",
    },
}


def manifest() -> str:
    """The manifest's text for the files that are there."""
    runs = {}
    for run in sorted(p for p in (ROOT / "runs").iterdir() if p.is_dir()):
        files = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(run.iterdir())}
        fault = json.loads((run / "truth.json").read_text())["fault"]
        runs[run.name] = {"role": "demo" if run.name == DEMO else "train", "fault": fault, "files": files}
    return json.dumps({**HEADER, "runs": runs}, indent=1) + "\n"


if __name__ == "__main__":
    (ROOT / "manifest.json").write_text(manifest())
