"""System metrics of SageMaker Debugger: cores and GPUs of several nodes, one value a line."""

from __future__ import annotations

import json
from typing import Any

from features.notices import Notices
from features.parsers.gpu_smdebug import DAMAGED, SmdebugMetrics
from features.records import Gpu, Host, Record

NOON = 1_777_896_000.0  # 2026-05-04 12:00:00 UTC


def value(ts: float, kind: str, name: str, dimension: str, amount: float, node: str = "algo-1") -> dict[str, Any]:
    """One line of the source."""
    return {"Type": kind, "Name": name, "Dimension": dimension, "Value": amount, "NodeId": node, "Timestamp": ts}


def parse(*values: dict[str, Any], tail: str = "") -> tuple[list[Record], dict[str, int]]:
    """Records and notices."""
    notices = Notices()
    parser = SmdebugMetrics("system.json", notices)
    text = "".join(json.dumps(v) + "\n" for v in values) + tail
    records = parser.feed(text.encode()) + parser.finish()
    return records, {n.text: n.count for n in notices.items()}


def test_cores_are_averaged_and_gpus_are_samples() -> None:
    records, told = parse(
        value(NOON, "cpu", "cpu0", "CPUUtilization", 10.0),
        value(NOON, "cpu", "cpu1", "CPUUtilization", 50.0),
        value(NOON, "cpu", "cpu0", "I/OWaitPercentage", 8.0),
        value(NOON + 0.01, "gpu", "gpu0", "GPUUtilization", 75.0),
        value(NOON + 0.01, "gpu", "gpu0", "GPUMemoryUtilization", 40.0),
        value(NOON + 0.01, "network", "eth0", "ReceiveBytesPerSecond", 100.0),
        value(NOON + 0.02, "cpu", "cpu0", "CPUUtilization", 90.0, "algo-2"),
        value(NOON + 5, "cpu", "cpu1", "CPUUtilization", 70.0),
        tail='{"Type": "gpu", "Name": "gp',
    )
    assert records == [
        Host(
            ts=NOON, node="algo-1", cpus=2, cpu_ratio=0.3, iowait_ratio=0.08, net_rx_bytes_per_s=100.0, source="system.json:1"
        ),
        Gpu(ts=NOON, gpu="algo-1/0", node="algo-1", utilization_ratio=0.75, source="system.json:1"),
        Host(ts=NOON + 5, node="algo-1", cpu_ratio=0.4, source="system.json:8"),
        Host(ts=NOON + 0.02, node="algo-2", cpu_ratio=0.9, source="system.json:7"),
    ]
    assert told == {DAMAGED: 1}
