"""Reads the tables of a Nsight Systems export, of any version: a column or table that is not there tells nothing.

Tables and columns as in the SQLite schema reference of the Nsight Systems user guide, 2021.5 to 2025.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from features.notices import Notices
from features.parsers.trace_model import RankTrace, Transfer
from features.parsers.trace_names import Known, Message, asked_of, counted_step, op_of, phase_of, transfer_of

NS_PER_US: Final = 1e3
THREAD_BITS: Final = 24  # of a global thread id; above them stand process, machine and hardware
PID_MASK: Final = (1 << THREAD_BITS) - 1
KERNELS: Final = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")
LAUNCHES: Final = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
NAMES: Final = ("demangledName", "shortName", "mangledName", "name")
BROKEN_TABLE: Final = "a table of the report cannot be read to its end"

# The environment of the process is stored in full; only these names are ever looked at.
_ENVIRONMENT: Final = re.compile(
    r"(?:^|(?<=[\s;,\"'\x00]))(RANK|WORLD_SIZE|HOROVOD_\w+|NCCL_\w+|OMPI_COMM_WORLD_(?:RANK|SIZE)|PMI_(?:RANK|SIZE)|"
    r"PMIX_RANK|SLURM_(?:PROCID|NTASKS))=([^\s;,\"'\x00]{1,128})"
)
_COUNT: Final = re.compile(r"[0-9]{1,7}")
_RANKS: Final = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")
_SIZES: Final = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS")


class Tables:
    """A database whose tables may lack columns, and may break off."""

    def __init__(self, database: sqlite3.Connection, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices."""
        self._database, self._file, self._notices = database, file, notices
        # Tables alone: a view could be anything.
        names = [str(name) for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self.columns = {
            name: {str(row[1]) for row in database.execute(f"PRAGMA table_info({_quoted(name)})")}
            for name in names
            if name == "StringIds" or name.startswith(("CUPTI_", "NVTX_", "TARGET_INFO_", "MPI_"))
        }
        self._strings: Known[str] = Known(self._string)

    def rows(self, table: str, needed: tuple[str, ...], *more: str) -> Iterator[tuple[Any, ...]]:
        """The rows of `table`, None for a column of `more` that is not there; no rows without all that are `needed`."""
        columns = self.columns.get(table, set())
        if not columns.issuperset(needed):
            return
        wanted = ", ".join(_quoted(c) if c in columns else "NULL" for c in (*needed, *more))
        try:
            yield from self._database.execute(f"SELECT {wanted} FROM {_quoted(table)}")  # noqa: S608 - quoted names
        except sqlite3.Error:
            self._notices.add("warning", BROKEN_TABLE, file=self._file, place=table)

    def first(self, table: str, column: str) -> object:
        """One value of the first row; None if there is none."""
        return next((row[0] for row in self.rows(table, (column,))), None)

    def text(self, value: object, identity: object = None) -> str:
        """A text that stands in its row, or by its number in StringIds."""
        if isinstance(value, str):
            return value
        number = identity if identity is not None else value
        return self._strings[str(number)] if isinstance(number, int) else ""

    def _string(self, number: str) -> str:
        try:
            row = self._database.execute("SELECT value FROM StringIds WHERE id = ?", (int(number),)).fetchone()
        except (sqlite3.Error, OverflowError):
            return ""
        return str(row[0]) if row is not None and row[0] is not None else ""


class Report:
    """What a report tells, by process."""

    def __init__(self, file: str, notices: Notices, *, by_process: bool) -> None:
        """`by_process`: kernels say whose they are; else all is one process."""
        self._file, self._notices, self._by_process = file, notices, by_process
        self.traces: dict[int, RankTrace] = {}
        self.devices: dict[int, int] = {}  # the lowest GPU of each process
        self.ranks: dict[int, int] = {}
        self.rank: int | None = None  # of the environment
        self.world_size: int | None = None
        self.epoch_ns: int | None = None
        self.host: str | None = None
        self.settings: dict[str, str] = {}

    def process(self, thread: object) -> int:
        """The process of a thread (or of itself)."""
        return thread - thread % (1 << THREAD_BITS) if isinstance(thread, int) and self._by_process else 0

    def pid(self, process: int) -> int:
        """Its number on its machine."""
        return process >> THREAD_BITS & PID_MASK

    def trace(self, process: int) -> RankTrace:
        """What is gathered of a process."""
        return self.traces.setdefault(process, RankTrace(self._file, self._notices))

    def saw(self, process: int, begin: float) -> RankTrace:
        """The same, and something in it began then."""
        trace = self.trace(process)
        trace.first = begin if trace.first is None else min(trace.first, begin)
        return trace


def read_report(tables: Tables, file: str, notices: Notices) -> Report:
    """Read all that matters."""
    report = Report(file, notices, by_process=all("globalPid" in tables.columns[k] for k in KERNELS if k in tables.columns))
    _read_target(tables, report)
    horovod = _read_ranges(tables, report)
    for table in KERNELS:
        _read_kernels(tables, table, report)
    _read_mpi(tables, report)
    for process, transfer in horovod:
        if not report.trace(process).on_gpu:  # else the kernels tell it better
            report.trace(process).add_transfer(transfer)
    wanted = {t.correlation for trace in report.traces.values() for t in trace.transfers if t.correlation is not None}
    for table in LAUNCHES if wanted else ():
        for start, correlation, thread, name in tables.rows(table, ("start", "correlationId"), "globalTid", "nameId"):
            if correlation in wanted and isinstance(start, int) and (name is None or "Launch" in tables.text(name)):
                report.trace(report.process(thread)).add_launch(thread, start / NS_PER_US, correlation)
    return report


def _read_target(tables: Tables, report: Report) -> None:
    epoch = tables.first("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    report.epoch_ns = epoch if isinstance(epoch, int) and epoch > 0 else None
    gpu = tables.first("TARGET_INFO_GPU", "name")
    if isinstance(gpu, str):
        report.settings["gpu"] = gpu
    for name, value in tables.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")):
        if name == "Hostname" and isinstance(value, str):
            report.host = value
        elif name == "DeviceEnvironment" and isinstance(value, str):
            _read_environment(dict(_ENVIRONMENT.findall(value)), report)
    for thread, rank in tables.rows("MPI_RANKS", ("globalTid", "rank")):
        if isinstance(rank, int) and 0 <= rank < 2**31:
            report.ranks[report.process(thread)] = rank


def _read_environment(told: dict[str, str], report: Report) -> None:
    report.rank = next((int(told[k]) for k in _RANKS if _COUNT.fullmatch(told.get(k, ""))), None)
    report.world_size = next((int(told[k]) for k in _SIZES if _COUNT.fullmatch(told.get(k, ""))), None)
    report.settings.update((k, v) for k, v in sorted(told.items()) if k.startswith(("HOROVOD_", "NCCL_")))


def _span(start: object, end: object) -> tuple[float, float] | None:
    """Begin and end in microseconds."""
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end < 2**62:
        return None
    return start / NS_PER_US, end / NS_PER_US


def _read_ranges(tables: Tables, report: Report) -> list[tuple[int, Transfer]]:
    """Ranges that libraries and people mark; those of Horovod come back, since kernels may tell the same."""
    steps, phases, asked = Known(counted_step), Known(phase_of), Known(asked_of)
    horovod: list[tuple[int, Transfer]] = []
    columns = ("text", "textId", "globalTid", "int64Value", "uint64Value")
    for start, end, text, number, thread, signed, unsigned in tables.rows("NVTX_EVENTS", ("start", "end"), *columns):
        span = _span(start, end)
        name = tables.text(text, number)
        if span is None or not name:
            continue
        process = report.process(thread)
        is_step, step = steps[name]
        message = asked[name]
        if is_step:
            trace = report.saw(process, span[0])
            trace.add_step(len(trace.steps) if step is None else step, *span)
        elif (phase := phases[name]) is not None:
            report.saw(process, span[0]).phases[phase].add(*span)
        elif message is not None and name.startswith("Horovod"):
            size = next((v for v in (signed, unsigned) if isinstance(v, int) and v > 0), None)
            horovod.append((process, Transfer(*span, message._replace(bytes=size), None, "NVTX")))
        elif message is not None:
            report.saw(process, span[0]).add_ask(thread, *span, message)
    return horovod


def _read_kernels(tables: Tables, table: str, report: Report) -> None:
    transfers: Known[Message | None] = Known(transfer_of)
    label = next((c for c in NAMES if c in tables.columns.get(table, ())), "name")
    columns = ("globalPid", "deviceId", "streamId", "correlationId")
    for start, end, name, pid, device, stream, correlation in tables.rows(table, ("start", "end", label), *columns):
        span = _span(start, end)
        if span is None:
            continue
        process = report.process(pid)
        if isinstance(device, int):
            report.devices[process] = min(report.devices.get(process, device), device)
        message = transfers[tables.text(name)]
        if message is None:
            report.trace(process).computing.add(*span)
        else:
            whole = correlation if isinstance(correlation, int) and correlation >= 0 else None
            report.saw(process, span[0]).add_transfer(Transfer(*span, message, whole, f"stream {stream}"))


def _read_mpi(tables: Tables, report: Report) -> None:
    rows = tables.rows("MPI_COLLECTIVES_EVENTS", ("start", "end", "textId"), "globalTid", "size", "recvSize")
    for start, end, number, thread, sent, received in rows:
        span, op = _span(start, end), op_of(tables.text(None, number))
        if span is not None and op is not None:
            sizes = [v for v in (sent, received) if isinstance(v, int) and v >= 0]
            message = Message(op=op, transport="mpi", bytes=max(sizes, default=None))
            report.saw(report.process(thread), span[0]).add_transfer(Transfer(*span, message, None, "MPI"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
