"""Parquet tables: the same as the other forms, and what is said where the library or the file is missing or broken."""

from __future__ import annotations

import importlib
import io
import time
from typing import Any

import pytest

from features.errors import MissingExtra
from features.notices import Notices
from features.parsers.steptable import ParquetTable
from features.records import Step

pa = pytest.importorskip("pyarrow")
parquet = importlib.import_module("pyarrow.parquet")


def file_of(**columns: Any) -> bytes:
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def read(data: bytes) -> tuple[list[Any], Notices, ParquetTable]:
    notices = Notices()
    parser = ParquetTable("table.parquet", notices)
    records = [r for i in range(0, len(data), 100) for r in parser.feed(data[i : i + 100])]
    return [*records, *parser.finish()], notices, parser


def test_a_table_of_steps() -> None:
    data = file_of(rank=[0, 1], iteration=[1, 1], step_time_s=[0.5, 0.25], loss=[float("nan"), None])
    found = [r for r in read(data)[0] if isinstance(r, Step)]
    assert [(s.rank, s.step, s.duration_s, s.source) for s in found] == [
        (0, 1, 0.5, "table.parquet:1"),
        (1, 1, 0.25, "table.parquet:2"),
    ]
    assert str(found[0].loss) == "nan"
    assert found[1].loss is None


def test_categories_and_times_are_read() -> None:
    when = pa.array([1_700_000_000_500_000], type=pa.timestamp("us", tz="UTC"))
    names = pa.array(["worker-3"]).dictionary_encode()
    (step,) = [r for r in read(file_of(worker=names, timestamp=when, step_time_s=[0.5]))[0] if isinstance(r, Step)]
    assert (step.rank, step.ts) == (3, 1_700_000_000.5)


def test_times_without_zone_are_utc_wherever_the_reader_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        when = pa.array([1_700_000_000_500], type=pa.timestamp("ms"))
        found = [r.ts for r in read(file_of(rank=[0], timestamp=when, step_time_s=[0.5]))[0] if isinstance(r, Step)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == [1_700_000_000.5]


def test_a_trace_of_operations_becomes_steps_and_keeps_its_operations() -> None:
    data = file_of(
        rank=[0, 4], dp_rank=[0, 1], stage=[0, 0], step=[7, 7], start_ts=[0.0, 0.0], duration=[2.0, 1.5],
        optype=["forward-compute"] * 2,
    )  # fmt: skip
    records, _, parser = read(data)
    assert [(s.rank, s.step, s.forward_s, s.duration_s, s.sync_s) for s in records] == [
        (0, 7, 2.0, 2.0, 0.0),
        (4, 7, 1.5, 2.0, 0.5),
    ]
    assert parser.ops is not None
    assert parser.ops.kinds == ("forward-compute",)
    assert parser.absolute is False


@pytest.mark.parametrize("data", [b"PAR1", b"PAR1 and then nothing of the kind PAR1", b"PAR1" + bytes(200)])
def test_a_broken_file_is_a_notice(data: bytes) -> None:
    records, notices, _ = read(data)
    assert records == []
    assert [n.level for n in notices.items()] == ["error"]


def test_a_cut_file_is_a_notice() -> None:
    data = file_of(rank=[0] * 100, step_time_s=[0.5] * 100)
    for cut in (10, len(data) // 2, len(data) - 1):
        records, notices, _ = read(data[:cut])
        assert records == []
        assert [n.level for n in notices.items()] == ["error"]


def test_columns_that_are_no_steps_are_said() -> None:
    records, notices, _ = read(file_of(name=["a"], value=[1]))
    assert records == []
    assert [n.text for n in notices.items()] == ["no columns that look like a rank and the duration of a step"]


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.import_module("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"rankwatch\[parquet\]"):
        ParquetTable("table.parquet", Notices()).finish()
