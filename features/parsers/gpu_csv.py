"""Reads tables of GPU samples in comma-separated values: nvidia-smi --query-gpu, amd-smi, rocm-smi, and scripts' own."""

from __future__ import annotations

from typing import Literal

from features.notices import Notices
from features.parsers.gpu_columns import TRAINING_WORDS, WHO_AND_WHEN, Column, column_of, words_of
from features.parsers.gpu_events import remark_in
from features.parsers.gpu_noheader import columns_without_header, says_nothing
from features.parsers.gpu_rows import CELL_CAP, Row, RowReader, clean, delimiter_of
from features.parsers.gpu_samples import Cell, Samples
from features.parsers.gpu_values import FIELDS, number_of
from features.parsers.protocol import ParserRow
from features.records import Record

NO_HEADER = "no header: columns told from units, addresses and order"
NO_MEANING = "neither header nor units: only names and times can be read (leave out noheader or nounits)"
ODD_LENGTH = "row with another number of cells than its header left out"
CUT_ROW = "last row is cut: left out"
NOT_A_ROW = "line that is neither header nor row left out"

LINES_SNIFFED = 5
"""Rows without header must look like rows of nvidia-smi this many times: one line of a log may do so by chance."""


def sniff(head: bytes) -> bool:
    """Whether a file starts with the header or the rows of a table of GPU samples."""
    *lines, rest = clean(head).replace("\r", "").split("\n")
    lines = [line for line in (lines if lines and len(head) > len(rest) else [rest]) if line.strip()]
    while lines and remark_in(lines[0]) is not None and len(lines) > 1:
        lines.pop(0)
    if not lines:
        return False
    cells = _cells(lines[0])
    if is_gpu_header(cells):
        return True
    rows = [columns_without_header(_cells(line)) for line in lines[:LINES_SNIFFED] if remark_in(line) is None]
    return bool(rows) and all(row is not None for row in rows)


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"')[:CELL_CAP] for cell in line.split(delimiter_of(line))]


def is_gpu_header(cells: list[str]) -> bool:
    """Whether these names of columns can only be those of GPU samples."""
    columns = [column_of(cell) for cell in cells]
    if any(TRAINING_WORDS & set(words_of(cell)) for cell in cells) or any(number_of(cell) for cell in cells):
        return False
    known = [c for c in columns if c is not None]
    measured = [c for c in known if c.key not in WHO_AND_WHEN]
    if any(c.is_certain for c in measured):
        return True
    return len(measured) >= 2 and any("gpu" in words_of(cell) for cell in cells)


class GpuCsv:
    """Feed it bytes in any chunking; headers may come again, change, or be missing."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._rows = RowReader(file, notices)
        self._samples = Samples(file, notices)
        self._header: list[str] = []
        self._columns: list[Column | None] = []

    @property
    def absolute(self) -> bool:
        """Whether the times are since the Unix epoch."""
        return self._samples.clock.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Records of the rows that `data` completes."""
        return [record for row in self._rows.feed(data) for record in self._read(row)]

    def finish(self) -> list[Record]:
        """Records of a last row without end of line."""
        return [record for row in self._rows.finish() for record in self._read(row)]

    def _read(self, row: Row) -> list[Record]:
        cells = row.cells
        if cells == self._header or self._is_header(row):
            return []
        if len(cells) == 1 or len(cells) != len(self._columns):
            remark = remark_in(row.text)
            if remark is not None:
                return self._samples.remark(remark, f"line {row.number}")
        if not self._columns and not self._guess(row):
            self._note("warning", NOT_A_ROW, row)
            return []
        while len(cells) > len(self._columns) and not cells[-1]:
            cells = cells[:-1]
        if len(cells) != len(self._columns):
            self._note("warning", ODD_LENGTH if row.has_end or len(cells) > len(self._columns) else CUT_ROW, row)
            return []
        return self._sample([(c, text) for c, text in zip(self._columns, cells, strict=True) if c is not None], row)

    def _is_header(self, row: Row) -> bool:
        """Take the row as the header from here on, if it is one."""
        if row.cells[0][:1].isdigit() or any(number_of(cell) for cell in row.cells):
            return False
        columns = [column_of(cell) for cell in row.cells]
        if not any(c is not None and (c.is_certain or c.key in WHO_AND_WHEN) for c in columns):
            return False
        self._header, self._columns = row.cells, columns
        return True

    def _guess(self, row: Row) -> bool:
        columns = columns_without_header(row.cells)
        if columns is None:
            return False
        self._columns = columns
        self._note(*(("warning", NO_MEANING) if says_nothing(columns) else ("info", NO_HEADER)), row)
        return True

    def _sample(self, cells: list[Cell], row: Row) -> list[Record]:
        """One sample, or one for each GPU that has columns of its own."""
        place = f"line {row.number}"
        ts, is_timed = self._time(cells, place)
        if ts is None and is_timed:
            return []
        numbers = sorted({c.gpu for c, _ in cells if c.gpu is not None}, key=int)
        if not numbers:
            return self._samples.add(ts, cells, place)
        shared = [cell for cell in cells if cell[0].gpu is None and cell[0].key not in FIELDS]
        records: list[Record] = []
        for number in numbers:
            own = [cell for cell in cells if cell[0].gpu == number]
            records += self._samples.add(ts, [*shared, (Column("index"), number), *own], place)
        return records

    def _time(self, cells: list[Cell], place: str) -> tuple[float | None, bool]:
        """When the row was sampled, and whether its table has times at all."""
        times = {c.key: text for c, text in reversed(cells) if c.key in {"time", "date", "clock", "elapsed"} and c.gpu is None}
        clock = self._samples.clock
        if "date" in times and ("time" in times or "clock" in times):
            return clock.read_parts(times["date"], times.get("clock", times.get("time", "")), place), True
        if "time" in times or "date" in times:
            return clock.read(times.get("time", times.get("date", "")), place), True
        if "elapsed" in times:
            return clock.elapsed(times["elapsed"], place), True
        return None, False

    def _note(self, level: str, text: str, row: Row) -> None:
        chosen: Literal["info", "warning"] = "info" if level == "info" else "warning"
        self._notices.add(chosen, text, file=self._file, place=f"line {row.number}")


GPU_CSV = ParserRow("gpu", sniff, GpuCsv)
