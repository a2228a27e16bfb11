"""What holds of the timeline parser for every input: it never raises, chunks do not matter, growing loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.notices import Notice, Notices
from features.parsers import timeline_reader, timeline_scan
from features.parsers.timeline import TimelineParser, sniff
from features.parsers.timeline_ledger import Ledger
from features.parsers.timeline_lex import Vocabulary, lex
from features.parsers.timeline_reader import Reader
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
    return ("[\n" + ",".join(records_of(steps)) + "]").encode()


def records_of(steps: list[tuple[int, list[int], bool]]) -> list[str]:
    """Its records."""
    out = ['{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1700000000000000}}']
    out += [_event("M", pid, 0, "", 0) for pid in range(1, 13)]
    now = 0
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
            out += [_event("S" if pid % 5 else "E", pid, now + 2, "", pid) for pid in pids]
            now += 5000
            out.append(_event("i", 0, now, "", 0))
    return out


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
    done = [r for r in part if isinstance(r, Collective) and r.end is not None]
    assert done[:-1] == [r for r in whole if isinstance(r, Collective)][: len(done[:-1])]  # the last may be half told
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
def test_a_growing_file_gives_what_the_finished_one_gives(steps: list[tuple[int, list[int], bool]], jumps: list[int]) -> None:
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


# Leaping, that is reading many records at once, is a matter of speed only.


@contextmanager
def leaps(least: int) -> Iterator[None]:
    """Leap over any stretch of so many bytes, however short."""
    before = timeline_scan.LEAP_BYTES, timeline_scan.STEP_BYTES, timeline_reader.MIN_RECORDS
    timeline_scan.LEAP_BYTES, timeline_scan.STEP_BYTES, timeline_reader.MIN_RECORDS = least, 300, 1
    try:
        yield
    finally:
        timeline_scan.LEAP_BYTES, timeline_scan.STEP_BYTES, timeline_reader.MIN_RECORDS = before


def both_ways(data: bytes, cuts: list[int]) -> None:
    """Leaping and walking tell the same."""
    walked = read(data, cuts)
    with leaps(1):
        assert read(data, cuts) == walked


@given(STEPS, CUTS)
def test_a_sound_timeline_reads_the_same_by_leaps(steps: list[tuple[int, list[int], bool]], cuts: list[int]) -> None:
    both_ways(training(steps), cuts)


@given(files(), CUTS)
def test_records_in_any_order_read_the_same_by_leaps(data: bytes, cuts: list[int]) -> None:
    both_ways(data, cuts)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["drop", "swap", "copy", "move", "junk", "late"]), st.integers(0), st.integers(0)),
    max_size=4,
)


def changed(out: list[str], changes: list[tuple[str, int, int]]) -> list[str]:
    """Records with a few of them lost, doubled, exchanged, moved or spoilt."""
    for change, i, j in changes:
        i, j = i % len(out), j % len(out)
        if change == "drop":
            del out[i]
        elif change == "swap":
            out[i], out[j] = out[j], out[i]
        elif change == "copy":
            out.insert(j, out[i])
        elif change == "move":
            out.insert(j % (len(out) - 1), out.pop(i))
        elif change == "junk":
            out[i] = out[i][: j % (len(out[i]) + 1)]
        else:
            out[i] = out[i].replace('"ts": ', '"ts": 9')
    return out


@settings(max_examples=300)
@given(STEPS, CHANGES, CUTS)
def test_a_spoilt_timeline_reads_the_same_by_leaps(
    steps: list[tuple[int, list[int], bool]], changes: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    both_ways(("[" + ",\n".join(changed(records_of(steps), changes)) + "]").encode(), cuts)


@given(STEPS, st.integers(0, 500), st.randoms(use_true_random=False))
def test_entwined_threads_read_the_same_by_leaps(steps: list[tuple[int, list[int], bool]], times: int, random: Any) -> None:
    out = records_of(steps)
    for _ in range(times):  # as long as each tensor keeps its own order, the file may well have been written so
        i = random.randrange(len(out) - 1)
        if "pid" in out[i] and "pid" in out[i + 1] and out[i].split("pid")[1][:6] != out[i + 1].split("pid")[1][:6]:
            out[i], out[i + 1] = out[i + 1], out[i]
    both_ways(("[" + ",".join(out) + "]").encode(), [])


def test_a_leap_covers_a_sound_timeline() -> None:
    data = training([(1000, [3, 1, 4, 2], ticked) for ticked in (True, False)] * 20)
    ledger = Ledger("t.json", Notices())
    start = data.index(b',{"name": "process_name", "ph": "M", "pid": 1') + 1
    stop = Reader(ledger).leap(data, start, len(data))
    assert ledger.told == 159  # all but the last one, of which the last record may still go on
    assert len(data) - stop < len(data) / 159
    assert not ledger.busy


def test_a_file_large_enough_is_read_by_leaps() -> None:
    data = training([(1000, [3, 1, 4, 2], True)] * 400)
    assert len(data) > 10 * timeline_scan.LEAP_BYTES
    walked = timeline_scan.LEAP_BYTES
    timeline_scan.LEAP_BYTES = len(data) + 1
    try:
        expected = read(data, [])
    finally:
        timeline_scan.LEAP_BYTES = walked
    assert read(data, list(range(0, len(data), 100_000))) == expected


ODD_FORMS = [
    '{"ph":"E", "ts": 5, "pid": 1}',
    '{"ph": "E", "ts": 05, "pid": 1}',
    '{"ph": "E", "ts": -5, "pid": 1}',
    '{"ph": "E", "ts": 5.5, "pid": 1}',
    '{"ph": "E", "ts": 1234567890123456, "pid": 1}',
    '{"ph": "E", "ts": 5, "pid": 123456789}',
    '{"ph": "E", "ts": 5, "pid": 1 }',
    '{"ph": "E", "pid": 1, "ts": 5}',
    '{"ph": "E", "ts": 5, "pid": 1, "dur": 7}',
    '{"ph": "E", "ts": 5, "pid": 1, "args": {"dtype": "float32", "shape": "[1]"}, "tid": 1}',
    '{"ph": "X", "name": "1", "ts": 5, "pid": 1, "dur": 3}',
    '{"ph": "X", "name": "x", "ts": 5, "pid": 1, "dur": 0}',
    '{"ph": "B", "name": "QUEUE\\n", "ts": 5, "pid": 1}',
    '{"ph": "B", "name": "", "ts": 5, "pid": 1}',
    '{"ph": "B", "name": "ALL"REDUCE", "ts": 5, "pid": 1}',
    '{"ph": "i", "name": "OTHER_MARK", "ts": 5, "s": "g"}',
    '{"ph": "i", "name": "CYCLE_START", "ts": 5, "s": "p"}',
    '{"ph": "C", "ts": 5, "pid": 1}',
    "null",
]


@pytest.mark.parametrize("odd", ODD_FORMS)
def test_columns_end_before_a_record_of_another_form(odd: str) -> None:
    sound = [_event("B", 1, 1, "ALLREDUCE", 0), _event("i", 0, 2, "", 0), _event("S", 1, 3, "", 4)]
    columns = lex(",".join([*sound, odd, *sound, *sound]).encode(), Vocabulary())
    assert columns is not None
    assert len(columns.start) <= 3
    both_ways(("[" + ",".join([_event("M", 1, 0, "", 0), *sound, odd, *sound * 4]) + "]").encode(), [])


def test_columns_hold_what_the_records_say() -> None:
    vocabulary = Vocabulary()
    out = [
        _event("B", 3, 123456789012345, "NEGOTIATE_ALLREDUCE", 0),
        _event("X", 3, 99999999, "", 1234567),
        _event("E", 9999999, 100000000, "", 0),
        _event("i", 0, 0, "", 0),
        _event("S", 12, 7, "", 8),
        _event("B", 1, 10, "X", 0),
        _event("M", 5, 0, "", 0),
        _event("B", 1, 11, "NEGOTIATE_ALLREDUCE", 0),
    ]
    text = ",\n".join([*out, *["{" + " " * 80 + "}"]]).encode()
    columns = lex(text, vocabulary)
    assert columns is not None
    assert columns.ts.tolist()[:6] + columns.ts.tolist()[7:] == [123456789012345, 99999999, 100000000, 0, 7, 10, 11]
    assert columns.pid.tolist()[:6] == [3, 3, 9999999, -1, 12, 1]
    assert [vocabulary.names[columns.code[at]] for at in (0, 5, 7)] == [
        "NEGOTIATE_ALLREDUCE",
        "X",
        "NEGOTIATE_ALLREDUCE",
    ]
    assert columns.code[1] == 1234567
    assert [text[start:stop].decode() for start, stop in zip(columns.start, columns.stop, strict=True)] == out
    assert text[columns.args[4] : columns.stop[4] - 1] == b'{"dtype": "float32", "shape": "[8]"}'
