"""Nsight Systems reports that were exported to SQLite: steps and collectives of the processes in them."""

from __future__ import annotations

import sqlite3
import tempfile
from typing import IO, Final

from features.notices import Notices
from features.parsers.protocol import ParserRow
from features.parsers.trace_build import MICROS, Whose, records_of
from features.parsers.trace_model import RankTrace
from features.parsers.trace_nsys_tables import Report, Tables, read_report
from features.parsers.trace_place import rank_of_file
from features.records import Record, RunInfo

MAX_FILE_BYTES: Final = 8 << 30  # a report of minutes on eight GPUs takes some 2 GB
MAX_VALUE_BYTES: Final = 1 << 24  # of one cell; damage may claim any length

TOO_LARGE: Final = "the database is larger than 8 GiB and was left out"
NO_SPACE: Final = "the database could not be laid down in a temporary file and was left out"
UNREADABLE: Final = "the database cannot be read"
NOT_NSYS: Final = "an SQLite database without the tables of Nsight Systems"
NOTHING: Final = "the report tells of no step and of no collective"
NO_CLOCK: Final = "no absolute clock: times count from an unknown start"
BY_GPU: Final = "several processes and no ranks named: ranks are taken in the order of their GPUs"

_MAGIC: Final = b"SQLite format 3\x00"
_MARKS: Final = (b"NVTX_EVENTS", b"CUPTI_ACTIVITY_KIND_", b"TARGET_INFO_", b"ENUM_NSYS_", b"StringIds")


def sniff(head: bytes) -> bool:
    """Whether these first bytes are an SQLite export of Nsight Systems."""
    return head.startswith(_MAGIC) and any(mark in head for mark in _MARKS)


class NsysDatabase:
    """Feed it bytes in any chunking: they go to a temporary file, which is read as a database in `finish`."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._size = 0
        self._lost: str | None = None  # why nothing can be read
        self._temporary: IO[bytes] | None = None
        self._finished = False
        self.absolute = True

    def feed(self, data: bytes) -> list[Record]:
        """Nothing yet."""
        self._size += len(data)
        if self._size > MAX_FILE_BYTES:
            self._lost = TOO_LARGE
        if self._lost is None:
            try:
                if self._temporary is None:
                    self._temporary = tempfile.NamedTemporaryFile(suffix=".sqlite")  # noqa: SIM115 - until finish
                self._temporary.write(data)
            except OSError:
                self._lost = NO_SPACE
        return []

    def finish(self) -> list[Record]:
        """All records of the report, once."""
        if self._finished:
            return []
        self._finished = True
        if self._temporary is None:
            self._notices.add("error", self._lost if self._lost is not None else UNREADABLE, file=self._file)
            return []
        with self._temporary:
            try:
                self._temporary.flush()
            except OSError:
                self._lost = NO_SPACE
            if self._lost is not None:
                self._notices.add("error", self._lost, file=self._file)
                return []
            report = self._read(self._temporary.name)
        return [] if report is None else self._records(report)

    def _read(self, path: str) -> Report | None:
        try:
            database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error:
            self._notices.add("error", UNREADABLE, file=self._file)
            return None
        try:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            tables = Tables(database, self._file, self._notices)
            if not tables.columns:
                self._notices.add("warning", NOT_NSYS, file=self._file)
                return None
            return read_report(tables, self._file, self._notices)
        except sqlite3.Error as error:
            text = f"{UNREADABLE} ({type(error).__name__})"
            self._notices.add("error", text, file=self._file)
            return None
        finally:
            database.close()

    def _records(self, report: Report) -> list[Record]:
        traces = {process: trace for process, trace in report.traces.items() if trace}
        if not traces:
            self._notices.add("warning", NOTHING, file=self._file)
            return []
        if report.epoch_ns is None:
            self.absolute = False
            self._notices.add("info", NO_CLOCK, file=self._file)
        epoch_us = 0.0 if report.epoch_ns is None else report.epoch_ns / 1e3
        ranks = self._ranks(report, traces)
        firsts = [trace.first for trace in traces.values() if trace.first is not None]
        nodes = {rank: report.host for rank in ranks.values() if rank is not None and report.host is not None}
        out: list[Record] = [
            RunInfo(
                ts=(epoch_us + min(firsts)) / MICROS if firsts else epoch_us / MICROS,
                world_size=report.world_size,
                nodes=nodes,
                settings=report.settings,
                source=self._file,
            )
        ]
        for process, trace in traces.items():
            prefix = f"process {report.pid(process)} " if len(traces) > 1 else ""
            out += records_of(trace, Whose(self._file, ranks[process], epoch_us, prefix), self._notices)
        return out

    def _ranks(self, report: Report, traces: dict[int, RankTrace]) -> dict[int, int | None]:
        """The rank of each process: as MPI or the environment tells, else by the name of the file."""
        if all(process in report.ranks for process in traces):
            return {process: report.ranks[process] for process in traces}
        if len(traces) == 1:
            (process,) = traces
            return {process: report.rank if report.rank is not None else rank_of_file(self._file)}
        self._notices.add("info", BY_GPU, file=self._file)
        order = sorted(traces, key=lambda process: (report.devices.get(process, process), process))
        return {process: place for place, process in enumerate(order)}


NSYS: Final = ParserRow("trace", sniff, NsysDatabase)
