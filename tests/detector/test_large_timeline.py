"""A timeline of 200 MB: scored without holding it in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MEGABYTES = 200
MOST_MEMORY_BYTES = 1.5e9
TENSORS, STEP_US = 16, 50_000
SPANS = ("MEMCPY_IN_FUSION_BUFFER", "GLOO_ALLREDUCE", "MEMCPY_OUT_FUSION_BUFFER")

CHILD = """
import json, resource, sys
from detector.cli import main
try:
    main(["score", sys.argv[1], "--format", "json"])
except SystemExit as left:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"code": left.code, "peak_bytes": peak}), file=sys.stderr)
"""
"""Scores and says how much memory it had at its most (Linux counts kilobytes)."""


def step(k: int) -> str:
    """The events of one step: each tensor is negotiated, copied in, reduced and copied out; the cycle goes on."""
    lines = []
    for pid in range(1, TENSORS + 1):
        at = k * STEP_US + pid * 1000
        lines.append(f'{{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": {at}, "pid": {pid}}},\n')
        lines.append(f'{{"ph": "E", "ts": {at + 200 + 7 * k % 50}, "pid": {pid}}},\n')
        lines.append(f'{{"ph": "B", "name": "ALLREDUCE", "ts": {at + 300}, "pid": {pid}}},\n')
        for i, name in enumerate(SPANS):
            lines.append(f'{{"ph": "B", "name": "{name}", "ts": {at + 300 + 100 * i}, "pid": {pid}}},\n')
            lines.append(f'{{"ph": "E", "ts": {at + 390 + 100 * i}, "pid": {pid}}},\n')
        args = '{"dtype": "float32", "shape": "[64, 64, 3, 3]"}'
        lines.append(f'{{"ph": "E", "ts": {at + 620}, "pid": {pid}, "args": {args}}},\n')
    cycles = (k * STEP_US + 20_000 + 5000 * c for c in range(5))
    return "".join([*lines, *(f'{{"ph": "i", "name": "CYCLE_START", "ts": {at}, "s": "g"}},\n' for at in cycles)])


def write_timeline(path: Path, megabytes: int) -> int:
    """A timeline of at least that size, as Horovod writes it; how many steps are in it."""
    size = steps = 0
    with path.open("w") as file:
        epoch = '{"start_time_since_epoch_in_micros":1772000000000000}'
        file.write(f'[\n{{"name": "process_name", "ph": "M", "pid": 0, "args": {epoch}}},\n')
        for pid in range(1, TENSORS + 1):
            file.write(f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "grad.layer{pid}"}}}},\n')
        while size < megabytes * 1_000_000:
            size += file.write(step(steps))
            steps += 1
        file.write(f'{{"ph": "i", "name": "CYCLE_START", "ts": {steps * STEP_US}, "s": "g"}}\n]\n')
    return steps


@pytest.mark.slow
def test_a_timeline_of_200_megabytes(tmp_path: Path) -> None:
    steps = write_timeline(tmp_path / "timeline.json", MEGABYTES)
    assert (tmp_path / "timeline.json").stat().st_size > MEGABYTES * 1_000_000

    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, check=True, text=True)
    assert "Traceback" not in done.stderr
    ended = json.loads(done.stderr.splitlines()[-1])
    assert ended["code"] == 0
    assert ended["peak_bytes"] < MOST_MEMORY_BYTES

    told = json.loads(done.stdout)
    assert told["run"]["sources"] == ["timeline"]
    assert abs(told["windows"]["count"] - steps * STEP_US / 1e6) <= 2
    assert told["incidents"] == []
    assert [n["text"] for n in told["notices"] if n["level"] != "info"] == []
