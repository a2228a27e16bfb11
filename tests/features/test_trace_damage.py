"""Traces that are damaged, cut or beyond what JSON and computers hold: what is sound in them is read, the rest is counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from features.notices import Notices
from features.parsers import trace_kineto
from features.parsers.trace_json import MAX_EVENT_BYTES, Scanner
from features.parsers.trace_kineto import KINETO
from features.records import Collective, Record, RunInfo, Step

RANK3 = {"backend": "nccl", "rank": 3, "world_size": 8}


def step(number: int, ts: float = 0, **args: Any) -> dict[str, Any]:
    """A step of 10 us."""
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 10, "args": args}


def whole(*events: dict[str, Any], info: dict[str, Any] | None = None) -> bytes:
    """A trace whose clock is told behind the events."""
    base = 1_700_000_000_000_000_000
    beside = {} if info is None else {"distributedInfo": info}
    return json.dumps({**beside, "traceEvents": events, "baseTimeNanoseconds": base}).encode()


def read(data: bytes, file: str = "trace.json") -> tuple[list[Record], dict[str, int]]:
    notices = Notices()
    parser = KINETO.make(file, notices)
    records = parser.feed(data) + parser.finish()
    return records, {n.text: n.count for n in notices.items()}


def steps(records: list[Record]) -> list[Step]:
    return [r for r in records if isinstance(r, Step)]


def test_numbers_no_computer_holds_are_no_obstacle() -> None:
    kernel = {**step(0), "cat": "kernel", "name": "ncclDevKernel_AllReduce(x)", "args": {"correlation": 2**70}}
    records, notices = read(whole(step(1, addr=2**80), kernel))
    assert [type(r) for r in records] == [RunInfo, Step, Collective]
    assert notices == {"no rank named: steps are taken as those of rank 0": 1}


@pytest.mark.parametrize("value", [b"nan", b"-inf", b"Infinity", b'"a\xffb"', b'"a\tb"'])
def test_what_json_forbids_is_read_all_the_same(value: bytes) -> None:
    data = whole(step(1, note="HERE"), step(2, 10), info=RANK3)
    records, notices = read(data.replace(b'"HERE"', value))
    assert [s.step for s in steps(records)] == [1, 2]
    assert set(notices) <= {"an event that is no valid JSON (bytes, numbers or control characters) was read all the same"}


def test_event_with_bare_quotes_is_left_out_and_the_clock_behind_it_found() -> None:
    data = whole(step(1), {**step(1), "name": "NAME"}, step(2, 10), {**step(1), "name": "NAME"})
    records, notices = read(data.replace(b'"NAME"', b'"say "no" twice"'), "rank1.json")
    assert [s.ts for s in steps(records)] == pytest.approx([1_700_000_000.00001, 1_700_000_000.00002], abs=1e-6)
    assert notices == {"damaged bytes were skipped": 2}


def test_cut_trace_gives_what_came_before() -> None:
    data = whole(*(step(n, n * 10) for n in range(5)), info=RANK3)
    records, notices = read(data[: data.index(b"ProfilerStep#4")])
    assert [s.step for s in steps(records)] == [0, 1, 2, 3]
    assert notices == {"the trace is cut off": 1, trace_kineto.NO_CLOCK: 1}


def test_long_things_beside_the_events_are_passed() -> None:
    groups = [{"pg_name": str(n), "ranks": list(range(500))} for n in range(100)]
    data = whole(step(1), info={**RANK3, "pg_config": groups})
    notices = Notices()
    parser = KINETO.make("t.json", notices)
    for start in range(0, len(data), 997):
        parser.feed(data[start : start + 997])
    (info, one) = parser.finish()
    assert isinstance(info, RunInfo)
    assert (info.world_size, getattr(one, "rank", None), notices.items()) == (8, 3, [])


@pytest.mark.parametrize("junk", [b'{"ph": "X", "a": ', b"{", b'"', b"[", b'}, "', b"x"])
def test_what_never_ends_is_not_kept(junk: bytes) -> None:
    notices = Notices()
    scanner = Scanner("t.json", notices, trace_kineto.Gathering("t.json", notices))
    scanner.feed(b'{"traceEvents": [')
    for _ in range(40):
        scanner.feed(junk * (65536 // len(junk)))
        assert len(scanner._carry) <= MAX_EVENT_BYTES + 65536
    scanner.finish()
    assert notices.items()
