"""Reads system metrics of SageMaker Debugger: JSON lines, one value of one core or GPU each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from features.notices import Notices
from features.parsers.gpu_columns import Column
from features.parsers.gpu_rows import ROW_CAP
from features.parsers.gpu_samples import Cell, Samples
from features.parsers.hostcounters import number, table
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.records import Host, Record

GROUP_S = 0.1
"""Values of one node this close together are one sample: the sampler takes milliseconds for all of them."""
CORES_MAX = 4096
NODES_MAX = 10_000

DAMAGED = "damaged line left out: not one value with Type, Name, Dimension, Value and Timestamp"
TOO_MANY = "more nodes or cores than a job can have: those beyond are left out"

KEYS = ("Type", "Name", "Dimension", "Value", "Timestamp")
_decode = msgspec.json.Decoder().decode

_HOST_RATES = {
    "ReceiveBytesPerSecond": "net_rx_bytes_per_s",
    "TransmitBytesPerSecond": "net_tx_bytes_per_s",
    "ReadThroughputInBytesPerSecond": "disk_read_bytes_per_s",
    "WriteThroughputInBytesPerSecond": "disk_write_bytes_per_s",
}


def sniff(head: bytes) -> bool:
    """Whether the first line is such a value; a line cut by the end of `head` is judged by its keys."""
    line, newline, _ = head.lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if not newline and not line.rstrip().endswith(b"}"):
        return all(f'"{key}"'.encode() in line for key in KEYS[:3])
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(value, dict) and all(key in value for key in KEYS)


class _Node:
    """What one node has said at one moment, and the newest value of each of its cores."""

    def __init__(self) -> None:
        self.ts: float | None = None
        self.place = ""
        self.cores: dict[tuple[str, str], float] = {}  # (dimension, core) -> percent, the newest one
        self.fresh: Counter[str] = Counter()  # dimension -> cores that have said it now
        self.rates: dict[str, float] = {}
        self.gpus: dict[str, Cell] = {}


class SmdebugMetrics:
    """Feed it bytes in any chunking. A sample ends where the next one of the same node begins.

    Cores that do not report at a moment count with their last value. GPUMemoryUtilization is how busy the memory
    controller is, not how full the memory: no field of a record stands for it.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices, ROW_CAP)
        self._samples = Samples(file, notices)
        self._nodes: dict[str, _Node] = {}

    def feed(self, data: bytes) -> list[Record]:
        """Records of the samples that `data` completes."""
        return [record for line in self._lines.feed(data) for record in self._read(line)]

    def finish(self) -> list[Record]:
        """Records of the last sample of each node."""
        records = [record for line in self._lines.finish() for record in self._read(line)]
        return records + [record for name, node in self._nodes.items() for record in self._close(name, node)]

    def _read(self, line: bytes) -> list[Record]:
        if not line.strip():
            return []
        try:
            value = table(_decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = {}
        ts, amount = number(value.get("Timestamp")), number(value.get("Value"))
        if ts is None or amount is None or not all(isinstance(value.get(key), str) for key in KEYS[:3]):
            self._note(DAMAGED)
            return []
        name = value.get("NodeId")
        name = name if isinstance(name, str) and name else "localhost"
        if name not in self._nodes and len(self._nodes) >= NODES_MAX:
            self._note(TOO_MANY)
            return []
        node = self._nodes.setdefault(name, _Node())
        records: list[Record] = []
        if node.ts is not None and abs(ts - node.ts) > GROUP_S:
            records = list(self._close(name, node))
        if node.ts is None:
            node.ts, node.place = ts, f"line {self._lines.number}"
        self._take(node, value, amount)
        return records

    def _take(self, node: _Node, value: dict[str, Any], amount: float) -> None:
        dimension, name = value["Dimension"], value["Name"]
        if dimension in ("CPUUtilization", "I/OWaitPercentage"):
            if len(node.cores) >= 2 * CORES_MAX and (dimension, name) not in node.cores:
                self._note(TOO_MANY)
                return
            node.cores[(dimension, name)] = amount
            node.fresh[dimension] += 1
        elif dimension == "GPUUtilization" and len(node.gpus) < CORES_MAX:
            node.gpus[name] = (Column("utilization", "%"), str(amount))
        elif dimension in _HOST_RATES and amount >= 0:
            key = _HOST_RATES[dimension]
            node.rates[key] = node.rates.get(key, 0.0) + amount

    def _close(self, name: str, node: _Node) -> Iterator[Record]:
        """The sample of a node that ends here: one of the host, one of each GPU."""
        ts, node.ts = node.ts, None
        if ts is None:
            return
        if node.fresh or node.rates:
            yield Host(
                ts=ts,
                node=name,
                cpus=node.fresh["CPUUtilization"] if node.fresh["CPUUtilization"] > 1 else None,  # one alone is not all
                cpu_ratio=_mean(node, "CPUUtilization"),
                iowait_ratio=_mean(node, "I/OWaitPercentage"),
                source=f"{self._file}:{node.place.removeprefix('line ')}",
                **node.rates,
            )
        for gpu, cell in node.gpus.items():
            yield from self._samples.add(ts, [(Column("index"), gpu), (Column("node"), name), cell], node.place)
        node.fresh, node.rates, node.gpus = Counter(), {}, {}

    def _note(self, text: str) -> None:
        self._notices.add("warning", text, file=self._file, place=f"line {self._lines.number}")


def _mean(node: _Node, dimension: str) -> float | None:
    """The mean over the cores as a ratio; None where no core said it now."""
    if not node.fresh[dimension]:
        return None
    values = [percent for (said, _), percent in node.cores.items() if said == dimension]
    return min(1.0, max(0.0, sum(values) / len(values) / 100.0))


SMDEBUG_ROW = ParserRow("gpu", sniff, SmdebugMetrics)
