"""Tables of training steps (CSV, JSON lines, Parquet): a row for each step of each rank, or for each traced operation."""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from features.errors import MissingExtra
from features.notices import Notices
from features.optrace import OpTable, columns_of
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.parsers.steptable_build import Builder
from features.parsers.steptable_map import StepMap
from features.records import Record

KIND: Final = "table"
PARQUET: Final = b"PAR1"
DELIMITERS: Final = ",;\t|"
MOST_ROWS: Final = 50_000_000
"""A Parquet file of a few kilobytes can claim more rows than any memory holds."""
SHORT_ROW: Final = "row with fewer cells than the header has names: what is missing is not known"
NO_OBJECT: Final = "line that is no JSON object left out"


class _TableParser:
    """What the parsers of tables share: the records of a table need all of it, so they come at the end."""

    def __init__(self, file: str, notices: Notices, step_map: StepMap | None = None) -> None:
        self._file, self._notices = file, notices
        self._builder = Builder(step_map, file, notices)

    @property
    def absolute(self) -> bool:
        """Whether the table's times are since the Unix epoch."""
        return self._builder.absolute

    @property
    def ops(self) -> OpTable | None:
        """The operations, where the table is a trace of them."""
        return self._builder.ops


class CsvTable(_TableParser):
    """Values separated by commas, semicolons, tabs or bars, with a header; a cell may be quoted, but holds no line break."""

    def __init__(self, file: str, notices: Notices, step_map: StepMap | None = None) -> None:
        super().__init__(file, notices, step_map)
        self._lines = LineSplitter(file, notices)
        self._names: list[str] | None = None
        self._delimiter = ","
        self._place: dict[str, int] = {}

    def feed(self, data: bytes) -> list[Record]:
        """Take bytes, cut anywhere."""
        for line in self._lines.feed(data):
            self._line(line)
        return []

    def finish(self) -> list[Record]:
        """All records."""
        for line in self._lines.finish():
            self._line(line)
        return self._builder.finish()

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8-sig" if self._names is None else "utf-8", errors="replace")
        if not text.strip():
            return
        if self._names is None:
            self._delimiter = _delimiter(text)
            self._names = _cells(text, self._delimiter)
            wanted = self._builder.begin(self._names)
            self._place = {name: self._names.index(name) for name in wanted}
            return
        cells = _cells(text, self._delimiter)
        if len(cells) < len(self._names):
            self._notices.add("warning", SHORT_ROW, file=self._file, place=f"line {self._lines.number}")
        self._builder.add(self._lines.number, lambda name: cells[k] if (k := self._place[name]) < len(cells) else None)


class JsonTable(_TableParser):
    """A JSON object a line; keys that the first object lacks may come later where a map names them."""

    def __init__(self, file: str, notices: Notices, step_map: StepMap | None = None) -> None:
        super().__init__(file, notices, step_map)
        self._lines = LineSplitter(file, notices)
        self._begun = False

    def feed(self, data: bytes) -> list[Record]:
        """Take bytes, cut anywhere."""
        for line in self._lines.feed(data):
            self._line(line)
        return []

    def finish(self) -> list[Record]:
        """All records."""
        for line in self._lines.finish():
            self._line(line)
        return self._builder.finish()

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        row = _object(line)
        if row is None:
            self._notices.add("warning", NO_OBJECT, file=self._file, place=f"line {self._lines.number}")
            return
        if not self._begun:
            self._begun = True
            self._builder.begin(list(row), may_grow=True)
        self._builder.add(self._lines.number, row.get)


class ParquetTable(_TableParser):
    """A Parquet file; its directory stands at its end, so all of it is held until then."""

    def __init__(self, file: str, notices: Notices, step_map: StepMap | None = None) -> None:
        super().__init__(file, notices, step_map)
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[Record]:
        """Take bytes, cut anywhere."""
        self._parts.append(data)
        return []

    def finish(self) -> list[Record]:
        """All records. Raises MissingExtra where no library for Parquet is installed."""
        parquet = _parquet(self._file)
        whole, self._parts = b"".join(self._parts), []
        try:
            source = parquet.ParquetFile(io.BytesIO(whole))
            if source.metadata.num_rows > MOST_ROWS:
                raise ValueError("more rows than can be read")
            wanted = self._builder.begin(list(source.schema_arrow.names))
            columns = {n: source.read(columns=[n]).column(0).to_pylist() for n in wanted}
        except (ValueError, OSError, KeyError, NotImplementedError, MemoryError) as error:  # Arrow's own errors are of these
            self._notices.add("error", f"not a Parquet file that can be read ({type(error).__name__})", file=self._file)
            return []
        for i in range(source.metadata.num_rows if columns else 0):
            self._builder.add(i + 1, partial(_in_row, columns, i))
        return self._builder.finish()


def _in_row(columns: Mapping[str, Sequence[object]], row: int, name: str) -> object:
    return columns[name][row]


def _parquet(file: str) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtra(
            file,
            expected="pyarrow to read Parquet",
            found="an installation without it",
            remedy="pip install 'rankwatch[parquet]', or write the table as CSV",
        ) from error


def _delimiter(header: str) -> str:
    return max(DELIMITERS, key=header.count)


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:  # a quote that is never closed, or a cell beyond the limit
        return [cell.strip() for cell in text.split(delimiter)]


def _object(line: bytes) -> dict[str, object] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _first_line(head: bytes) -> bytes:
    return head.lstrip().partition(b"\n")[0].rstrip()


def _names_of(head: bytes) -> list[str]:
    text = _first_line(head).decode("utf-8-sig", errors="replace")
    return _cells(text, _delimiter(text)) if text.isprintable() or "\t" in text else []


def _is_table(names: Sequence[str], step_map: StepMap | None) -> bool:
    if step_map is not None:  # one of its columns is enough: what is then missing can be named
        return len(step_map.fitted(names).missing(names)) < len(step_map.columns)
    return columns_of(names) is not None or StepMap.automatic(names) is not None


def sniff_csv(head: bytes, step_map: StepMap | None = None) -> bool:
    """Whether the first line is a header that names a rank and the duration of a step, or what the map says."""
    return not head.lstrip().startswith((b"{", b"[")) and _is_table(_names_of(head), step_map)


_LOG_KEYS: Final = frozenset({"message", "msg", "level", "levelname", "event", "logger"})


def sniff_jsonl(head: bytes, step_map: StepMap | None = None) -> bool:
    """Whether the first line is an object with such keys. Objects that carry messages are logs, which are read as such."""
    row = _object(_first_line(head)) or {}
    if step_map is None and (_LOG_KEYS & set(row) or not {"ts", "timestamp", "time"}.isdisjoint(row)):
        return False
    return _is_table(list(row), step_map)


def sniff_parquet(head: bytes) -> bool:
    """Whether this begins as Parquet files do."""
    return head.startswith(PARQUET)


def table_rows(step_map: StepMap | None = None) -> tuple[ParserRow, ...]:
    """The rows for the table of parsers. With a map they take the files that have the map's columns, before all others."""
    if step_map is None:
        return (
            ParserRow(KIND, sniff_parquet, ParquetTable),
            ParserRow(KIND, sniff_csv, CsvTable),
            ParserRow(KIND, sniff_jsonl, JsonTable),
        )
    return (
        ParserRow(KIND, sniff_parquet, partial(ParquetTable, step_map=step_map)),
        ParserRow(KIND, partial(sniff_csv, step_map=step_map), partial(CsvTable, step_map=step_map)),
        ParserRow(KIND, partial(sniff_jsonl, step_map=step_map), partial(JsonTable, step_map=step_map)),
    )


TABLE_ROWS: Final = table_rows()
