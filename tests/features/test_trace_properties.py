"""What holds of the readers of traces for every input: they never raise, chunks do not matter, damage stays where it is."""

from __future__ import annotations

import json
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.notices import Notice, Notices
from features.parsers.protocol import ParserRow
from features.parsers.trace import TRACE_ROWS
from features.parsers.trace_byteps import BYTEPS
from features.parsers.trace_event import Event
from features.parsers.trace_json import Scanner
from features.parsers.trace_kineto import KINETO
from features.parsers.trace_nsys import NSYS
from features.parsers.trace_nsys_csv import NSYS_CSV
from features.parsers.trace_spans import Edges, Spans, covered, merged
from features.parsers.trace_tensorboard import TENSORBOARD
from features.parsers.trace_tfrecord import masked_crc
from features.records import Record

Outcome = tuple[list[Record], list[Notice]]


def read(row: ParserRow, data: bytes, cuts: list[int] | None = None) -> Outcome:
    """All records and notices of a file that comes in pieces."""
    notices = Notices()
    parser = row.make("some/trace", notices)
    records: list[Record] = []
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts or []), len(data)]
    for begin, end in pairwise(edges):
        records += parser.feed(data[begin:end])
    records += parser.finish()
    assert parser.finish() == []
    msgspec.json.encode(records)  # all numbers are ones that JSON can hold
    return records, notices.items()


NAMES = st.sampled_from([
    "aten::mm", "ProfilerStep#7", "ProfilerStep#8", "nccl:all_reduce", "gloo:broadcast", "record_param_comms", "forward",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "cudaLaunchKernel", "enumerate(DataLoader)#_next", "step",
    "Comm.t.PUSH", "Comm.t", 'quoted \\" name', "}, {", "é", "autograd::engine::evaluate_function: Mul", "## optimizer ##",
])  # fmt: skip
CATEGORIES = st.sampled_from(["cpu_op", "user_annotation", "kernel", "Kernel", "cuda_runtime", "Runtime", "gpu_memcpy", ""])
NUMBERS = st.one_of(
    st.integers(-5, 10**6), st.floats(0, 1e6), st.sampled_from([2**63, 2**64 + 1, 10**30, 1e300, -(2**70), 1.7e15])
)
ARGS = st.dictionaries(
    st.sampled_from(["correlation", "Collective name", "In msg nelems", "dtype", "Input Dims", "Input type", "ph", "x"]),
    st.one_of(NUMBERS, st.sampled_from(["allreduce", "Float", [[4, 5]], ["float"], [{"a": 1}, {"b": {}}], None])),
    max_size=4,
)
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXMsi"), "name": NAMES, "ts": NUMBERS, "dur": NUMBERS, "tid": st.sampled_from([1, 2, "total"])},
    optional={"cat": CATEGORIES, "pid": st.sampled_from([1, "Comm.t", "Spans"]), "args": ARGS},
)
BASES = st.sampled_from(
    ['"baseTimeNanoseconds": 1700000000000000000', '"distributedInfo": {"rank": 3, "world_size": 8}', '"a": 1']
)


@st.composite
def traces(draw: st.DrawFn) -> bytes:
    """A sound trace, laid out in one of the ways of its writers."""
    layout: dict[str, Any] = draw(st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}]))
    events = [json.dumps(e, **layout) for e in draw(st.lists(EVENTS, max_size=12))]
    array = f"[{draw(st.sampled_from(['', ' ', chr(10)]))}{','.join(events)}]"
    before, after = (draw(st.lists(BASES, max_size=2)) for _ in range(2))
    whole = "{" + ", ".join([*before, f'"traceEvents": {array}', *after]) + "}"
    return (whole if draw(st.booleans()) else array).encode()


@st.composite
def damaged(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """A file with bytes lost, changed or put in."""
    data = draw(sound)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        lost = draw(st.integers(0, 12))
        junk = draw(st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"[", b"]", b"},", b",", b"\xff", b"\x00", b"nan", b'":']))
        data = data[:at] + junk + data[at + lost :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


CUTS = st.lists(st.integers(0, 1 << 16), max_size=6)


@given(traces(), CUTS)
def test_cuts_do_not_matter_to_sound_traces(data: bytes, cuts: list[int]) -> None:
    assert read(KINETO, data, cuts) == read(KINETO, data)
    assert read(BYTEPS, data, cuts) == read(BYTEPS, data)


@given(damaged(traces()), CUTS)
@settings(max_examples=300)
def test_cuts_do_not_matter_to_damaged_traces(data: bytes, cuts: list[int]) -> None:
    assert read(KINETO, data, cuts) == read(KINETO, data)


@given(damaged(traces()))
def test_every_byte_may_come_alone(data: bytes) -> None:
    assert read(KINETO, data, list(range(len(data)))) == read(KINETO, data)


@pytest.mark.parametrize("row", TRACE_ROWS, ids=lambda row: row.make.__name__)
@given(data=st.binary(max_size=400), cuts=CUTS)
@settings(max_examples=50)
def test_nothing_raises_on_anything(row: ParserRow, data: bytes, cuts: list[int]) -> None:
    assert read(row, data, cuts) == read(row, data)
    row.sniff(data)


class Listing:
    """A sink that keeps names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def events(self, events: list[Event]) -> None:
        self.names += [e.name for e in events]

    def about(self, key: str, raw: bytes) -> None:
        self.names.append(key)


def scan(data: bytes) -> tuple[list[str], list[Notice]]:
    notices, sink = Notices(), Listing()
    scanner = Scanner("f", notices, sink)
    scanner.feed(data)
    scanner.finish()
    return sink.names, notices.items()


@given(traces())
def test_sound_traces_are_read_as_json_reads_them(data: bytes) -> None:
    whole = json.loads(data)
    events = whole["traceEvents"] if isinstance(whole, dict) else whole
    sound = [e for e in events if abs(e["ts"]) < 2**62 and abs(e["dur"]) < 2**62]
    names, notices = scan(data)
    assert [n for n in names if n not in ("baseTimeNanoseconds", "distributedInfo")] == [e["name"] for e in sound]
    assert sum(n.count for n in notices) == len(events) - len(sound)


@given(st.lists(EVENTS, min_size=3, max_size=9), st.data())
def test_damage_to_one_event_costs_no_other(events: list[dict[str, Any]], data: st.DataObject) -> None:
    events = [{**e, "name": str(i), "ts": 1, "dur": 1} for i, e in enumerate(events)]
    texts = [json.dumps(e) for e in events]
    broken = data.draw(st.integers(0, len(texts) - 1))
    texts[broken] = texts[broken].replace(f'"name": "{broken}"', f'"name": "a "{broken}" b"')
    names, notices = scan(f'{{"traceEvents": [{", ".join(texts)}], "baseTimeNanoseconds": 5}}'.encode())
    assert [n for n in names if n and n != "baseTimeNanoseconds"] == [str(i) for i in range(len(texts)) if i != broken]
    assert [n.count for n in notices] == [1]
    assert "baseTimeNanoseconds" in names


def database(rows: list[tuple[Any, ...]]) -> bytes:
    """An export with one table of ranges."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.sqlite"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE NVTX_EVENTS (start, end, text, textId, globalTid, int64Value)")
        connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
        connection.close()
        return path.read_bytes()


CELLS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9), NAMES, st.binary(max_size=3), st.floats())


@given(damaged(st.lists(st.tuples(*[CELLS] * 6), max_size=6).map(database)), CUTS)
@settings(max_examples=60)
def test_damaged_databases_are_told(data: bytes, cuts: list[int]) -> None:
    assert read(NSYS, data, cuts) == read(NSYS, data)


LINES = st.lists(
    st.sampled_from([
        "Start (ns),Duration (ns),CorrId,Device,Strm,Name", "Time (%),Total Time (ns),Instances,Max (ns),Name", "", "x",
        '100,50,1,"GPU (0)",7,ncclDevKernel_AllReduce_Sum_f32(x)', "9.5,100,2,60,ncclDevKernel_Broadcast", "1,nan,3,4,k",
        "Start (s),End (s),Name,TID", "1.5,2.5,step 3,1", '1,2,"', "99,1e400,inf,-1,x,y,z", "é,\xff,1,1,1",
    ]),
    max_size=12,
).map(lambda lines: "\n".join(lines).encode())  # fmt: skip


@given(damaged(LINES), CUTS)
def test_tables_of_any_kind_are_read(data: bytes, cuts: list[int]) -> None:
    assert read(NSYS_CSV, data, cuts) == read(NSYS_CSV, data)


def record(payload: bytes) -> bytes:
    """A TFRecord."""
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", masked_crc(payload))


@st.composite
def event_files(draw: st.DrawFn) -> bytes:
    """Sound records of sound and unsound events."""
    out = b""
    for _ in range(draw(st.integers(0, 8))):
        tag = draw(st.sampled_from([b"loss", b"val/loss", b"epoch_loss", b"step_time", b"steps_per_sec", b"x"]))
        value = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", draw(st.floats(width=32)))
        summary = b"\x0a" + bytes([len(value)]) + value
        ts = struct.pack("<d", draw(st.one_of(st.floats(1, 1e10), st.floats())))
        event = b"\x09" + ts + b"\x10" + bytes([draw(st.integers(0, 127))]) + b"\x2a" + bytes([len(summary)]) + summary
        out += record(draw(st.sampled_from([event, event[:-1], b"\x0b"])))
    return out


@given(damaged(event_files()), CUTS)
def test_event_files_may_be_cut_and_damaged(data: bytes, cuts: list[int]) -> None:
    assert read(TENSORBOARD, data, cuts)[1] == read(TENSORBOARD, data)[1]


@given(st.binary(min_size=1, max_size=60), st.lists(st.integers(0, 40), min_size=1, max_size=3))
def test_records_behind_damage_are_found(junk: bytes, steps: list[int]) -> None:
    good = b"".join(record(simple(step)) for step in sorted(set(steps)))
    records, _ = read(TENSORBOARD, record(simple(99)) + junk + good)
    assert {getattr(r, "step", None) for r in records} == {99, *steps}


def simple(step: int) -> bytes:
    """An event with a loss."""
    value = b"\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    return b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + bytes([step]) + b"\x2a\x0d\x0a\x0b" + value


SPANS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda p: (p[0], p[0] + p[1])), max_size=30)


def minutes(spans: list[tuple[int, int]]) -> set[int]:
    return {t for begin, end in spans for t in range(begin, end)}


@given(SPANS, st.integers(0, 350), st.integers(0, 350))
def test_spans_cover_what_they_cover(spans: list[tuple[int, int]], begin: int, end: int) -> None:
    held = Spans()
    for span in spans:
        held.add(*span)
    begin, end = min(begin, end), max(begin, end)
    told = covered(held.edges(), np.array([float(begin)]), np.array([float(end)]))
    assert told.tolist() == [len(minutes(spans) & set(range(begin, end)))]


@given(SPANS, st.integers(1, 5))
def test_kept_spans_are_few_and_lose_nothing(spans: list[tuple[int, int]], keep: int) -> None:
    held = Spans(keep=keep)
    for span in spans:
        held.add(*span)
    edges = held.edges()
    assert len(edges.begin) <= keep
    inside = minutes(list(zip(edges.begin.astype(int).tolist(), edges.end.astype(int).tolist(), strict=True)))
    assert minutes(spans) <= inside


def test_touching_spans_are_one() -> None:
    edges = merged(Edges(np.array([3.0, 0.0, 9.0]), np.array([5.0, 3.0, 9.5])))
    assert list(flat(edges)) == [(0.0, 5.0), (9.0, 9.5)]


def flat(edges: Edges) -> Iterator[tuple[float, float]]:
    yield from zip(edges.begin.tolist(), edges.end.tolist(), strict=True)
