"""Exports of Nsight Systems to SQLite, made here with the tables of new and old versions."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from features.notices import Notices
from features.parsers import trace_nsys
from features.parsers.trace import TRACE_ROWS
from features.parsers.trace_nsys import NSYS
from features.records import Collective, Record, RunInfo, Step

EPOCH_NS = 1_700_000_000_000_000_000
PROCESS = 0x0001_0000_0000_0000 + (4242 << 24)
OTHER = 0x0001_0000_0000_0000 + (4243 << 24)
MS = 1_000_000
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "NVTX_EVENTS": "start, end, eventType, text, globalTid, textId, int64Value, uint64Value",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs, utcTime, localTime",
    "TARGET_INFO_SYSTEM_ENV": "globalVid, name, value",
    "TARGET_INFO_GPU": "id, name",
    "MPI_RANKS": "globalTid, rank",
    "MPI_COLLECTIVES_EVENTS": "start, end, globalTid, textId, size, recvSize",
}
STRINGS = [
    "gemm(float*)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "cudaLaunchKernelExC_v11060",
    "ncclAllReduce",
    "MPI_Bcast",
]
GEMM, NCCL, LAUNCH, ASK, BCAST = range(len(STRINGS))
RUN: dict[str, list[tuple[Any, ...]]] = {
    "StringIds": list(enumerate(STRINGS)),
    "NVTX_EVENTS": [
        (0, 100 * MS, 59, "step 5", PROCESS + 1, None, None, None),
        (10 * MS, 30 * MS, 59, "forward", PROCESS + 1, None, None, None),
        (41 * MS, 43 * MS, 59, None, PROCESS + 2, ASK, None, None),
        (50 * MS, None, 34, "a mark without an end", PROCESS + 1, None, None, None),
    ],
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        (10 * MS, 50 * MS, 0, 7, 1, PROCESS, GEMM, GEMM),
        (45 * MS, 80 * MS, 0, 20, 2, PROCESS, NCCL, NCCL),
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [(42 * MS, 42 * MS + 5, PROCESS + 2, 2, LAUNCH), (9 * MS, 9 * MS, PROCESS + 1, 1, LAUNCH)],
    "TARGET_INFO_SESSION_START_TIME": [(EPOCH_NS, "x", "y")],
    "TARGET_INFO_SYSTEM_ENV": [
        (0, "Hostname", "gpu17"),
        (
            0,
            "DeviceEnvironment",
            "HOME=/root\nNCCL_DEBUG=INFO\nAPI_KEY=secret\nOMPI_COMM_WORLD_RANK=6\nOMPI_COMM_WORLD_SIZE=16",
        ),
    ],
    "TARGET_INFO_GPU": [(0, "NVIDIA H100 80GB HBM3")],
}


def database(folder: Path, content: dict[str, list[tuple[Any, ...]]], tables: dict[str, str] | None = None) -> bytes:
    path = folder / "report.sqlite"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    for name, columns in (TABLES if tables is None else tables).items():
        if name in content:
            connection.execute(f"CREATE TABLE {name} ({columns})")
            for row in content[name]:
                connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
    connection.commit()
    connection.close()
    return path.read_bytes()


def read(data: bytes, file: str = "report.sqlite") -> tuple[list[Record], list[str], bool]:
    notices = Notices()
    assert next(row for row in TRACE_ROWS if row.sniff(data[:65536])) is NSYS
    parser = NSYS.make(file, notices)
    records: list[Record] = []
    for start in range(0, len(data), 1000):
        records += parser.feed(data[start : start + 1000])
    records += parser.finish()
    return records, [n.text for n in notices.items()], bool(getattr(parser, "absolute"))  # noqa: B009


def test_report_tells_the_step_and_its_collective(tmp_path: Path) -> None:
    records, notices, absolute = read(database(tmp_path, RUN))
    info, collective, step = records
    assert info == RunInfo(
        ts=1_700_000_000.0,
        world_size=16,
        nodes={6: "gpu17"},
        settings={"gpu": "NVIDIA H100 80GB HBM3", "NCCL_DEBUG": "INFO"},
        source="report.sqlite",
    )
    assert collective == Collective(
        ts=pytest.approx(1_700_000_000.041, abs=1e-6),
        tensor="allreduce",
        op="allreduce",
        execute_s=pytest.approx(0.039),
        transfer_s=pytest.approx(0.035),
        end=pytest.approx(1_700_000_000.08, abs=1e-6),
        transport="nccl",
        rank=6,
        source="report.sqlite:stream 20",
    )
    assert isinstance(step, Step)
    told = (step.rank, step.step, step.duration_s, step.forward_s, step.sync_s)
    assert told == (6, 5, pytest.approx(0.1), pytest.approx(0.02), pytest.approx(0.03))
    assert (notices, absolute) == ([], True)


def test_nothing_of_the_environment_leaks(tmp_path: Path) -> None:
    records, _, _ = read(database(tmp_path, RUN))
    assert "secret" not in repr(records)


def test_old_reports_know_fewer_columns(tmp_path: Path) -> None:
    old = {
        "StringIds": TABLES["StringIds"],
        "NVTX_EVENTS": "start, end, text",
        "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, correlationId, shortName",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, correlationId",
    }
    content = {
        "StringIds": RUN["StringIds"],
        "NVTX_EVENTS": [(0, 100 * MS, "iteration 5")],
        "CUPTI_ACTIVITY_KIND_KERNEL": [(45 * MS, 80 * MS, 2, NCCL)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(1, 2, 2)],
    }
    records, notices, absolute = read(database(tmp_path, content, old), "nsys.rank4.sqlite")
    assert [(type(r).__name__, getattr(r, "rank", None)) for r in records] == [
        ("RunInfo", None),
        ("Collective", 4),
        ("Step", 4),
    ]
    assert (notices, absolute) == ([trace_nsys.NO_CLOCK], False)


@pytest.mark.parametrize("lost", [name for name in RUN if name not in ("StringIds",)])
def test_no_table_is_needed(tmp_path: Path, lost: str) -> None:
    records, _, _ = read(database(tmp_path, {name: rows for name, rows in RUN.items() if name != lost}))
    assert records


def test_processes_are_told_apart_by_mpi(tmp_path: Path) -> None:
    both = {
        **RUN,
        "NVTX_EVENTS": [(0, 9 * MS, 59, "step 1", p + 1, None, None, None) for p in (PROCESS, OTHER)],
        "MPI_RANKS": [(PROCESS + 1, 2), (OTHER + 1, 0)],
    }
    records, notices, _ = read(database(tmp_path, both))
    assert {(s.rank, s.source) for s in records if isinstance(s, Step)} == {
        (2, "report.sqlite:process 4242 step 1"),
        (0, "report.sqlite:process 4243 step 1"),
    }
    assert notices == []


def test_processes_without_ranks_stand_in_the_order_of_their_gpus(tmp_path: Path) -> None:
    kernels = [(1 * MS, 2 * MS, 3, 7, 1, PROCESS, NCCL, NCCL), (1 * MS, 2 * MS, 1, 7, 1, OTHER, NCCL, NCCL)]
    content = {"StringIds": RUN["StringIds"], "CUPTI_ACTIVITY_KIND_KERNEL": kernels}
    records, notices, _ = read(database(tmp_path, content))
    assert [(c.rank, c.source.split()[1]) for c in records if isinstance(c, Collective)] == [(1, "4242"), (0, "4243")]
    assert trace_nsys.BY_GPU in notices


def test_mpi_and_horovod_are_told_with_their_bytes(tmp_path: Path) -> None:
    content = {
        "StringIds": RUN["StringIds"],
        "NVTX_EVENTS": [(MS, 5 * MS, 60, "HorovodGroupedAllreduce", PROCESS + 1, None, None, 4096)],
        "MPI_COLLECTIVES_EVENTS": [(6 * MS, 8 * MS, PROCESS + 1, BCAST, 10, 30), (6 * MS, 5 * MS, PROCESS + 1, BCAST, 1, 1)],
    }
    records, _, _ = read(database(tmp_path, content))
    told = [(c.op, c.transport, c.bytes, c.execute_s) for c in records if isinstance(c, Collective)]
    assert told == [("allreduce", None, 4096, pytest.approx(0.004)), ("broadcast", "mpi", 30, pytest.approx(0.002))]


def test_cut_database_is_an_error_that_is_told(tmp_path: Path) -> None:
    data = database(tmp_path, {**RUN, "StringIds": [*enumerate(STRINGS), *((n, "x" * 500) for n in range(9, 400))]})
    records, notices, _ = read(data[: len(data) // 3])
    assert records == [] or notices
    assert notices


def test_other_databases_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (id, name)")
    connection.commit()
    connection.close()
    assert not any(row.sniff(path.read_bytes()) for row in TRACE_ROWS)


def test_view_under_the_name_of_a_table_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    connection = sqlite3.connect(path)
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end, 'step 1' AS text FROM n"
    )
    connection.execute(f"CREATE VIEW NVTX_EVENTS AS {endless}")
    connection.execute("CREATE TABLE StringIds (id, value)")
    connection.commit()
    connection.close()
    records, notices, _ = read(path.read_bytes())
    assert (records, notices) == ([], [trace_nsys.NOTHING])
