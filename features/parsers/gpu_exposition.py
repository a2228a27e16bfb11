"""Reads scrapes of GPU exporters in the text format of Prometheus: dcgm-exporter and its like, one or many in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from features.notices import Notices
from features.parsers.gpu_columns import METRICS, Column
from features.parsers.gpu_rows import ROW_CAP, clean
from features.parsers.gpu_samples import Cell, Samples
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.records import Record

METRIC_MAX = 8192  # characters of one line; the longest labels of Kubernetes take some hundreds
HELD_MAX = 100_000  # GPUs in one scrape; beyond, what is held is let go

NOT_A_METRIC = "line that is no metric left out"

_METRIC = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d{1,19}))?\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_OURS = re.compile(rb"^(?:DCGM_(?:FI|EXP)_|nvidia_smi_|nvidia_gpu_)\w+\{", re.MULTILINE)
_FIRST = re.compile(r"# (?:HELP|TYPE) [a-zA-Z_:]|[a-zA-Z_:][\w:]*(?:\{|\s+[\d+-.NI])")
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
"""How often an Xid came of late, with its code as a label; absent until one came."""

_WHO = {
    "UUID": "uuid", "uuid": "uuid", "gpu_uuid": "uuid", "pci_bus_id": "pci", "gpu": "index", "minor_number": "index",
    "Hostname": "node", "hostname": "node", "node": "node", "GPU_I_ID": "mig", "rank": "rank",
}  # fmt: skip
"""Labels that say which GPU, of all exporters; those of the workload (pod, container) say nothing of it."""


def sniff(head: bytes) -> bool:
    """Whether this is a scrape with metrics of GPUs."""
    first = next((line for line in clean(head).splitlines() if line.strip()), "")
    return _FIRST.match(first) is not None and _OURS.search(head) is not None


def labels_of(text: str) -> dict[str, str]:
    """The labels between the braces of a metric.

    >>> labels_of('gpu="0", UUID="GPU-1"')
    {'gpu': '0', 'UUID': 'GPU-1'}
    """
    return {name: value.replace('\\"', '"') for name, value in _LABEL.findall(text)}


def names_in(labels: Mapping[str, str]) -> dict[str, str]:
    """What labels say of who: keys of gpu_columns.WHO_AND_WHEN. The scraped address stands in for a missing node."""
    names: dict[str, str] = {}
    for label, key in _WHO.items():
        if label in labels:
            names.setdefault(key, labels[label])
    if "node" not in names and "instance" in labels:
        names["node"] = labels["instance"].partition(":")[0]
    return names


def cells_of(metric: str, labels: Mapping[str, str], value: str) -> list[Cell]:
    """What one value of one series says; nothing where its metric is not read here."""
    if metric == XID_COUNT and "xid" in labels and value.strip("0.") != "":
        return [(Column("xid"), labels["xid"])]
    column = METRICS.get(metric)
    return [] if column is None else [(column, value)]


def device_key(names: Mapping[str, str]) -> tuple[str, ...]:
    """Equal for series of one GPU: its UUID where they have one, else all that they say of it."""
    if "uuid" in names:
        return (names["uuid"], names.get("mig", ""))
    return tuple(f"{key}={text}" for key, text in sorted(names.items()))


class _Held(NamedTuple):
    number: int
    names: dict[str, str]
    cells: list[Cell]


class Exposition:
    """Feed it bytes in any chunking. A scrape ends where one of its series comes again, or the time changes."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices, ROW_CAP)
        self._samples = Samples(file, notices)
        self._series: set[str] = set()
        self._ts: float | None = None
        self._held: dict[tuple[str, ...], _Held] = {}

    @property
    def absolute(self) -> bool:
        """Whether the times are since the Unix epoch: scrapes seldom carry one."""
        return self._samples.clock.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Records of the scrapes that `data` completes."""
        return [record for line in self._lines.feed(data) for record in self._read(clean(line))]

    def finish(self) -> list[Record]:
        """Records of the last scrape."""
        return [record for line in self._lines.finish() for record in self._read(clean(line))] + self._close()

    def _read(self, line: str) -> list[Record]:
        if not line.strip() or line.startswith("#"):
            return []
        match = _METRIC.fullmatch(line) if len(line) <= METRIC_MAX else None
        if match is None:
            self._notices.add("warning", NOT_A_METRIC, file=self._file, place=f"line {self._lines.number}")
            return []
        metric, inside, value, stamp = match.groups()
        labels = labels_of(inside or "")
        cells = cells_of(metric, labels, value)
        names = names_in(labels)
        if not cells or not names:
            return []
        ts = None if stamp is None else self._samples.clock.read(stamp, f"line {self._lines.number}")
        series = f"{metric}{{{inside}}}"
        ended = series in self._series or ts != self._ts or len(self._held) >= HELD_MAX
        records = self._close() if ended else []
        self._series.add(series)
        self._ts = ts
        held = self._held.setdefault(device_key(names), _Held(self._lines.number, {}, []))
        held.names.update({key: text for key, text in names.items() if key not in held.names})
        held.cells.extend(cells)
        return records

    def _close(self) -> list[Record]:
        """The samples of the scrape that ends here, GPU by GPU."""
        held, self._held = self._held, {}
        self._series.clear()
        records: list[Record] = []
        for gpu in held.values():
            named = [(Column(key), text) for key, text in gpu.names.items()]
            records += self._samples.add(self._ts, [*named, *gpu.cells], f"line {gpu.number}")
        return records


EXPOSITION_ROW = ParserRow("gpu", sniff, Exposition)
