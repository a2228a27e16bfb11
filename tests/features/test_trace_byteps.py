"""Communication traces of BytePS, laid out as BytePS lays them out."""

from __future__ import annotations

import pytest

from features.notices import Notices
from features.parsers.trace import TRACE_ROWS
from features.parsers.trace_byteps import BYTEPS, FOLDER_RANK, NO_WHOLE
from features.records import Collective

EPOCH_US = 1_600_000_000_000_000


def event(name: str, tid: str, ts: int, dur: int) -> str:
    tensor = name if tid == "total" else name.rpartition(".")[0]
    return (
        '        {\n            "ph": "X",\n            "args": {\n'
        f'                "name": "{tensor}"\n            }},\n            "pid": "{tensor}",\n            "name": "{name}",\n'
        f'            "ts": {EPOCH_US + ts},\n            "dur": {dur},\n            "tid": "{tid}",\n'
        '            "cat": "Comm"\n'
        "        }"
    )


def trace(*events: str) -> bytes:
    return ('{\n    "traceEvents": [\n' + ",\n".join(events) + '\n    ],\n    "displayTimeUnit": "ms"\n}\n').encode()


def read(data: bytes, file: str = "traces/3/comm.json") -> tuple[list[Collective], list[str]]:
    notices = Notices()
    parser = BYTEPS.make(file, notices)
    records = parser.feed(data) + parser.finish()
    return [r for r in records if isinstance(r, Collective)], [n.text for n in notices.items()]


ONE = (
    event("Comm.grad.w", "total", 1000, 9000),
    event("Comm.grad.w.PUSH", "65536", 2000, 3000),
    event("Comm.grad.w.PUSH", "65537", 3000, 3000),
    event("Comm.grad.w.PULL", "65536", 7000, 2000),
    event("Comm.grad.w.COPYH2D", "65536", 9000, 900),
)


def test_tensor_moves_while_any_part_of_it_does() -> None:
    (one,), notices = read(trace(*ONE))
    assert one == Collective(
        ts=pytest.approx(1_600_000_000.001, abs=1e-6),
        tensor="grad.w",
        op="allreduce",
        execute_s=pytest.approx(0.009),
        transfer_s=pytest.approx(0.006),
        end=pytest.approx(1_600_000_000.01, abs=1e-6),
        transport="byteps",
        rank=3,
        source="traces/3/comm.json:grad.w",
    )
    assert notices == [FOLDER_RANK]


def test_parts_go_to_the_use_of_the_tensor_in_which_they_lie() -> None:
    later = [event("Comm.grad.w.PUSH", "1", 21000, 500), event("Comm.grad.w", "total", 20000, 4000)]
    collectives, _ = read(trace(*later, *ONE))
    assert [c.transfer_s for c in collectives] == [pytest.approx(0.006), pytest.approx(0.0005)]


def test_parts_without_a_whole_are_counted() -> None:
    collectives, notices = read(trace(ONE[0], event("Comm.other.PUSH", "1", 0, 5)), "comm.json")
    assert [(c.tensor, c.transfer_s, c.rank) for c in collectives] == [("grad.w", None, None)]
    assert notices == [NO_WHOLE]


def test_only_its_reader_is_asked_first() -> None:
    assert next(row for row in TRACE_ROWS if row.sniff(trace(*ONE))) is BYTEPS
