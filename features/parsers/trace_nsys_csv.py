"""What `nsys stats --format csv` prints: kernels and marked ranges one by one, or summed up by kernel."""

from __future__ import annotations

import csv
import re
from typing import Final, NamedTuple

from features.notices import Notices
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.parsers.trace_build import Whose, records_of
from features.parsers.trace_model import RankTrace, Transfer
from features.parsers.trace_names import Known, Message, asked_of, counted_step, phase_of, transfer_of
from features.parsers.trace_place import rank_of_file
from features.records import Record

MICROS: Final = {"ns": 1e-3, "nsec": 1e-3, "us": 1.0, "usec": 1.0, "μs": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "sec": 1e6}
LARGEST: Final = 1e15  # microseconds: thirty years, more is damage
BY_DEVICE: Final = "several GPUs and no ranks named: ranks are taken in the order of the GPUs"
NO_CLOCK: Final = "no absolute clock: times count from the start of the report"
DAMAGED: Final = "a row that does not fit its header was left out"

_HEADER: Final = re.compile(
    rb'^"?(?:Time ?\(%\)"?,"?Total Time ?\(\w+\)"?,"?(?:Instances|Num Calls|Count|Operations)"?,'
    rb'|Start ?\(\w+\)"?,"?(?:Duration|End) ?\(\w+\)"?,)',
    re.MULTILINE,
)
_CELL: Final = re.compile(r"([^()]*?)\s*(?:\(([^)]*)\))?$")
_DEVICE: Final = re.compile(r"\((\d{1,4})\)$")


def sniff(head: bytes) -> bool:
    """Whether these first bytes hold a table of `nsys stats`."""
    return b"\x00" not in head and _HEADER.search(head.replace(b"\r\n", b"\n").removeprefix(b"\xef\xbb\xbf")) is not None


class Header(NamedTuple):
    """Where the columns of a table stand, by their names without units; and the unit of its times in microseconds."""

    columns: dict[str, int]
    unit: float

    def text(self, row: list[str], *names: str) -> str:
        """The cell in the first of these columns that is there."""
        at = next((self.columns[n] for n in names if n in self.columns), len(row))
        return row[at] if at < len(row) else ""

    def micros(self, row: list[str], name: str) -> float | None:
        """A time; None if it is none."""
        try:
            value = float(self.text(row, name)) * self.unit
        except ValueError:
            return None
        return value if 0 <= value < LARGEST else None


class Sum(NamedTuple):
    """Time that a kind of kernel took in all."""

    times: int = 0
    total_us: float = 0.0
    longest_us: float = 0.0


class NsysTable:
    """Feed it bytes in any chunking. Sums have no place in time: they come out as a notice, the rest out of `finish`."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices)
        self._header: Header | None = None
        self._traces: dict[str, RankTrace] = {}  # by device; those that people marked under ""
        self._sums: dict[str, Sum] = {}  # by collective, "" for all kernels
        self._transfers, self._asked = Known(transfer_of), Known(asked_of)
        self._steps, self._phases = Known(counted_step), Known(phase_of)
        self.absolute = False

    def feed(self, data: bytes) -> list[Record]:
        """Nothing yet."""
        for line in self._lines.feed(data):
            self._line(line)
        return []

    def finish(self) -> list[Record]:
        """All records of the tables, once."""
        for line in self._lines.finish():
            self._line(line)
        self._tell_sums()
        traces = {device: trace for device, trace in sorted(self._traces.items()) if trace}
        self._traces, self._sums = {}, {}
        if not traces:
            return []
        self._notices.add("info", NO_CLOCK, file=self._file)
        rank = rank_of_file(self._file)
        order = sorted(traces, key=lambda d: (int(m[1]) if (m := _DEVICE.search(d)) else -1, d))
        if len(order) > 1:
            self._notices.add("info", BY_DEVICE, file=self._file)
        out: list[Record] = []
        for place, device in enumerate(order):
            whose = Whose(self._file, rank if len(order) == 1 else place, 0.0)
            out += records_of(traces[device], whose, self._notices)
        return out

    def _line(self, line: bytes) -> None:
        try:
            row = next(csv.reader([line.decode("utf-8-sig", "replace")]), [])
        except csv.Error:
            self._damaged()
            return
        if _HEADER.match(line.removeprefix(b"\xef\xbb\xbf")):
            self._header = _header_of(row)
        elif len(row) < 2:
            self._header = None  # a blank line or a message ends a table
        elif self._header is not None and not self._row(row, self._header):
            self._damaged()

    def _damaged(self) -> None:
        self._notices.add("warning", DAMAGED, file=self._file, place=f"line {self._lines.number}")

    def _row(self, row: list[str], header: Header) -> bool:
        """Take a row; whether it is sound."""
        name = header.text(row, "name", "range", "operation")
        if "start" not in header.columns:
            return self._sum(row, header, name)
        start, length, end = (header.micros(row, c) for c in ("start", "duration", "end"))
        if end is None and start is not None and length is not None:
            end = start + length
        if start is None or end is None or end < start or not name:
            return False
        if "corrid" in header.columns or "device" in header.columns:
            self._kernel(row, header, name, (start, end))
        else:
            self._range(name, header.text(row, "tid"), (start, end))
        return True

    def _kernel(self, row: list[str], header: Header, name: str, span: tuple[float, float]) -> None:
        if name.startswith("[CUDA mem"):  # copies
            return
        trace = self._traces.setdefault(header.text(row, "device"), RankTrace(self._file, self._notices))
        message = self._transfers[name]
        if message is None:
            trace.computing.add(*span)
            return
        trace.on_gpu = True
        trace.add_transfer(Transfer(*span, message, None, f"stream {header.text(row, 'strm')}"))

    def _range(self, name: str, thread: str, span: tuple[float, float]) -> None:
        trace = self._traces.setdefault("", RankTrace(self._file, self._notices))
        text = name.removeprefix(":")  # nsys puts the domain before it, the default one has no name
        is_step, step = self._steps[text]
        if is_step:
            trace.add_step(len(trace.steps) if step is None else step, *span)
            return
        phase = self._phases[text]
        if phase is not None:
            trace.phases[phase].add(*span)
            return
        message = self._asked[text]
        if message is None:  # in a domain of its own: "NCCL:ncclAllReduce"
            message = self._asked[text.partition(":")[2]]
        if message is not None:
            trace.add_ask(thread, *span, message)

    def _sum(self, row: list[str], header: Header, name: str) -> bool:
        total, longest = header.micros(row, "total time"), header.micros(row, "max")
        count = header.text(row, "instances")
        if "instances" not in header.columns or "name" not in header.columns:
            return True  # sums of other things than kernels
        if total is None or not count.isdecimal() or len(count) > 15:
            return False
        message = self._transfers[name]
        for key in {"", _kind(message)}:
            before = self._sums.get(key, Sum())
            peak = max(before.longest_us, longest if longest is not None else 0.0)
            self._sums[key] = Sum(before.times + int(count), before.total_us + total, peak)
        return True

    def _tell_sums(self) -> None:
        everything = self._sums.pop("", Sum())
        if not self._sums or everything.total_us <= 0:
            return
        parts = ", ".join(
            f"{kind} {s.times} x {s.total_us / s.times / 1e3:.2f} ms (at most {s.longest_us / 1e3:.2f} ms)"
            for kind, s in sorted(self._sums.items(), key=lambda item: -item[1].total_us)
            if s.times > 0
        )
        share = sum(s.total_us for s in self._sums.values()) / everything.total_us
        self._notices.add("info", f"collectives took {share:.0%} of the time of all kernels: {parts}", file=self._file)


def _kind(message: Message | None) -> str:
    return "" if message is None else message.op or "collective"


def _header_of(row: list[str]) -> Header:
    columns: dict[str, int] = {}
    unit = MICROS["ns"]
    for at, cell in enumerate(row):
        match = _CELL.match(cell.strip())
        name = match[1].lower() if match else cell.lower()
        columns.setdefault("max" if name == "maximum" else name, at)
        if match and name in ("start", "total time"):
            unit = MICROS.get(match[2] or "", unit)
    return Header(columns, unit)


NSYS_CSV: Final = ParserRow("trace", sniff, NsysTable)
