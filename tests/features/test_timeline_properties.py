"""What holds of the timeline parser for every input: it never raises, chunks do not matter, growing loses nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from features.notices import Notice, Notices
from features.parsers.timeline import TimelineParser, sniff
from features.records import Collective, Cycles, Record

NAMES = ["NEGOTIATE_ALLREDUCE", "NEGOTIATE_BARRIER", "ALLREDUCE", "BROADCAST", "NCCL_ALLREDUCE", "QUEUE", "ERROR"]
EPOCH = '{{"start_time_since_epoch_in_micros":{}}}'
PIDS = st.integers(1, 4)
TIMES = st.integers(0, 3_000_000)


def _event(kind: str, pid: int, ts: int, name: str, rank: int) -> str:
    return {
        "B": f'{{"ph": "B", "name": "{name}", "ts": {ts}, "pid": {pid}}}',
        "E": f'{{"ph": "E", "ts": {ts}, "pid": {pid}}}',
        "S": f'{{"ph": "E", "ts": {ts}, "pid": {pid}, "args": {{"dtype": "float32", "shape": "[{rank}]"}}}}',
        "X": f'{{"ph": "X", "name": "{rank}", "ts": {ts}, "pid": {pid}, "dur": 0}}',
        "i": f'{{"ph": "i", "name": "CYCLE_START", "ts": {ts}, "s": "g"}}',
        "M": f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "grad {{{pid}}}"}}}}',
        "0": f'{{"name": "process_name", "ph": "M", "pid": 0, "args": {EPOCH.format(ts + 1)}}}',
        "?": f'{{"ph": "C", "ts": {ts}, "args": {{"deep": {{"deeper": [1, {{}}]}}}}}}',
    }[kind]


EVENTS = st.lists(
    st.builds(_event, st.sampled_from("BBBEEESXXiiM0?"), PIDS, TIMES, st.sampled_from(NAMES), st.integers(0, 9)),
    max_size=40,
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Well-formed records in any order, with any of the separators seen in the wild."""
    events = draw(EVENTS)
    separators = draw(st.lists(st.sampled_from([",", ",\n", "],", "]\n[\n", "", "]", ",,"]), min_size=len(events)))
    return ("[\n" + "".join(e + s for e, s in zip(events, separators, strict=False))).encode()


def training(steps: list[tuple[int, list[int], bool]]) -> bytes:
    """A sound timeline: per step a delay, the sizes of the fused groups, and whether ranks are ticked."""
    out = [
        '{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1700000000000000}}'
    ]
    now = 0
    for pid in range(1, 13):
        out.append(_event("M", pid, 0, "", 0))
    for delay, groups, ticked in steps:
        first = 1
        for size in groups:
            pids = list(range(first, min(first + size, 13)))
            first += size
            out += [_event("B", pid, now + pid, "NEGOTIATE_ALLREDUCE", 0) for pid in pids]
            for rank in range(3 if ticked else 0):
                now += delay
                out.append(_event("i", 0, now, "", 0))
                out += [_event("X", pid, now + pid, "", rank) for pid in pids]
            now += delay
            out += [_event("E", pid, now + pid, "", 0) for pid in pids]
            out += [_event("B", pid, now + 20, "ALLREDUCE", 0) for pid in pids]
            for name in ("MEMCPY_IN_FUSION_BUFFER", "GLOO_ALLREDUCE"):
                now += 100
                out += [_event("B", pid, now, name, 0) for pid in pids]
                now += 50
                out += [_event("E", pid, now + 1, "", 0) for pid in pids]
            out += [_event("S", pid, now + 2, "", pid) for pid in pids]
            now += 5000
            out.append(_event("i", 0, now, "", 0))
    return ("[\n" + ",".join(out) + "]").encode()


STEPS = st.lists(
    st.tuples(st.integers(100, 2_000_000), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans()),
    min_size=1,
    max_size=6,
)


def read(data: bytes, cuts: list[int]) -> tuple[list[Record], list[Notice]]:
    """Feed `data` cut at these places."""
    notices = Notices()
    parser = TimelineParser("t.json", notices)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    records: list[Record] = []
    for start, stop in pairwise(edges):
        records += parser.feed(data[start:stop])
    return records + parser.finish(), notices.items()


def each_byte(data: bytes) -> list[int]:
    return list(range(1, len(data)))


CUTS = st.lists(st.integers(0, 6000), max_size=12)
FRAGMENTS = [
    b'{"ph": "B"',
    b'"args": {',
    b"}}",
    b'"',
    b"\\",
    b"\xff",
    b"],[",
    b"{",
    b"\n",
    b', "pid": 3}',
    b'"ts": 1e9',
]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    sniff(data)
    whole = read(data, [])
    assert read(data, each_byte(data)) == whole


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), EVENTS.map(lambda e: "".join(e).encode())), max_size=12), CUTS)
def test_damaged_timelines_do_not_depend_on_chunking(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    whole = read(data, [])
    assert read(data, cuts) == whole
    assert read(data, each_byte(data)) == whole


@given(files(), CUTS)
def test_well_formed_records_in_any_order_do_not_depend_on_chunking(data: bytes, cuts: list[int]) -> None:
    whole = read(data, [])
    assert read(data, cuts) == whole
    assert read(data, each_byte(data)) == whole
    assert not [notice for notice in whole[1] if "damaged" in notice.text or "cut off" in notice.text]


@given(STEPS, st.integers(0, 20_000))
def test_a_sound_timeline_may_be_cut_anywhere(steps: list[tuple[int, list[int], bool]], at: int) -> None:
    data = training(steps)
    whole, _ = read(data, [])
    part, notices = read(data[:at], [])
    done = [r for r in part if isinstance(r, Collective) and r.end is not None and r.bytes is not None]
    assert done == [r for r in whole if isinstance(r, Collective)][: len(done)]
    assert {notice.text for notice in notices if notice.level != "info"} <= {"the last record is cut off"}


@given(STEPS)
def test_a_sound_timeline_tells_every_tensor_once(steps: list[tuple[int, list[int], bool]]) -> None:
    records, notices = read(training(steps), [])
    done = [r for r in records if isinstance(r, Collective)]
    tensors = sum(min(sum(groups), 12) for _, groups, _ in steps)
    assert sum(c.fused for c in done) == tensors
    assert sum(r.count for r in records if isinstance(r, Cycles)) == sum(
        len(groups) * (4 if ticked else 1) for _, groups, ticked in steps
    )
    assert all(c.end is not None and c.execute_s is not None for c in done)
    assert not [notice for notice in notices if notice.level != "info"]


@settings(max_examples=40)
@given(STEPS, st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_a_growing_file_gives_what_the_finished_one_gives(
    steps: list[tuple[int, list[int], bool]], jumps: list[int]
) -> None:
    data = training(steps)
    ends = [i + 1 for i in range(len(data) - 1) if data[i : i + 2] in (b"},", b"}]")]
    parser = TimelineParser("t.json", Notices())
    seen, at, turn = 0, 0, 0
    records: list[Record] = []
    while at < len(ends) - 1:
        at = min(at + jumps[turn % len(jumps)] + 1, len(ends) - 1)
        now = data[: ends[at]] + b"]"  # what the writer has on disk after that event
        records += parser.feed(now[seen:])
        seen, turn = len(now), turn + 1
    assert records + parser.finish() == read(data, [])[0]


@given(files())
def test_finish_ends_it(data: bytes) -> None:
    parser: Any = TimelineParser("t.json", Notices())
    parser.feed(data)
    parser.finish()
    assert parser.finish() == []
