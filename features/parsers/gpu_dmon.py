"""Reads the scrolling tables of `nvidia-smi dmon` and `dcgmi dmon`."""

from __future__ import annotations

import re

from features.notices import Notices
from features.parsers.gpu_columns import DMON, TAGS, Column
from features.parsers.gpu_csv import NOT_A_ROW, ODD_LENGTH
from features.parsers.gpu_events import remark_in
from features.parsers.gpu_rows import ROW_CAP, clean
from features.parsers.gpu_samples import Samples
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.records import Record

OF_DMON = frozenset(
    {"pwr", "gtemp", "temp", "mtemp", "sm", "mem", "enc", "dec", "mclk", "pclk", "pviol", "tviol", "fb", "bar1", "sbecc"}
    | {"dbecc", "rxpci", "txpci"}
)
"""Columns of `nvidia-smi dmon` (not pmon, which has a column of processes)."""
_UNITS_ROW = frozenset({"idx", "id", "w", "c", "%", "mhz", "mb", "mb/s", "errs", "bool", "yyyymmdd", "hh:mm:ss"})
_TAG = re.compile(r"[A-Z][A-Z0-9]{2,9}")
_ENTITY = re.compile(r"\s*(GPU(?:-[CI]+)?|Switch|vGPU|CPU|Core|Link) (\d+)\s+")


def sniff(head: bytes) -> bool:
    """Whether the first line that says anything heads such a table."""
    lines = [line for line in clean(head).splitlines() if line.strip()]
    while lines and remark_in(lines[0]) is not None and len(lines) > 1:
        lines.pop(0)
    if not lines or not lines[0].lstrip().startswith("#"):
        return False
    names = _names(lines[0])
    lowered = [name.lower() for name in names]
    if lowered[:1] == ["entity"]:
        return len(names) > 1 and all(_TAG.fullmatch(name) for name in names[1:])
    return "gpu" in lowered[:3] and "pid" not in lowered and bool(OF_DMON & set(lowered))


def _names(line: str) -> list[str]:
    return [name for name in re.split(r"[,\s]+", line.strip().lstrip("#").strip()) if name]


class Dmon:
    """Feed it bytes in any chunking. The header decides what the columns are; it comes again, and may change."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices, ROW_CAP)
        self._samples = Samples(file, notices)
        self._columns: list[Column | None] = []
        self._is_dcgm = False

    @property
    def absolute(self) -> bool:
        """Whether the times are since the Unix epoch."""
        return self._samples.clock.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Records of the rows that `data` completes."""
        return [record for line in self._lines.feed(data) for record in self._read(clean(line))]

    def finish(self) -> list[Record]:
        """Records of a last row without end of line."""
        return [record for line in self._lines.finish() for record in self._read(clean(line))]

    def _read(self, line: str) -> list[Record]:
        if not line.strip() or self._is_header(line):
            return []
        place = f"line {self._lines.number}"
        remark = remark_in(line)
        if remark is not None:
            return self._samples.remark(remark, place)
        cells = self._cells(line)
        if not self._columns or len(cells) != len(self._columns):
            text = NOT_A_ROW if not self._columns or len(cells) < 2 else ODD_LENGTH
            self._notices.add("warning", text, file=self._file, place=place)
            return []
        known = [(c, text) for c, text in zip(self._columns, cells, strict=True) if c is not None]
        if self._is_dcgm and cells[0] == "":
            return []  # an NVSwitch or a part of a GPU: no GPU
        return self._samples.add(self._time(known, place), known, place)

    def _is_header(self, line: str) -> bool:
        """A line of names or of units; names are taken as the header from here on."""
        names = _names(line)
        lowered = [name.lower() for name in names]
        if set(lowered) <= _UNITS_ROW:
            return True
        if not line.lstrip().startswith("#"):
            return False
        self._is_dcgm = lowered[:1] == ["entity"]
        if self._is_dcgm:
            self._columns = [Column("index"), *(TAGS.get(name) for name in names[1:])]
        else:
            self._columns = [DMON.get(name) for name in lowered]
        return True

    def _cells(self, line: str) -> list[str]:
        """The cells of a row. dcgmi writes two words for the device: of GPUs the number is taken, of others nothing."""
        if not self._is_dcgm:
            return [cell for cell in re.split(r"[,\s]+", line.strip()) if cell]
        entity = _ENTITY.match(line)
        if entity is None:
            return line.split()
        return [entity[2] if entity[1] == "GPU" else "", *line[entity.end() :].split()]

    def _time(self, cells: list[tuple[Column, str]], place: str) -> float | None:
        said = {c.key: text for c, text in cells if c.key in {"date", "clock"}}
        if "clock" not in said:
            return None
        return self._samples.clock.read_parts(said.get("date", ""), said["clock"], place)


DMON_ROW = ParserRow("gpu", sniff, Dmon)
