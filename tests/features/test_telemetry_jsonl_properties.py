"""Whatever the bytes and however they are cut, telemetry gives the same records and never fails."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from features.notices import Notices
from features.parsers.telemetry_jsonl import TelemetryJsonl
from features.records import Host, Process, Record

HOST = {"load1": 1.5, "disk": {"read_bytes": 9}, "net": {"eth0": {"tx_bytes": 1, "rx_bytes": 2, "drop": 0}}}
RANK = {"pid": 77, "status": "running", "cpu_user_s": 1.0, "cpu_system_s": 0.5, "rss_mb": 440.5}
SAMPLES = b"".join(
    json.dumps(sample).encode() + b"\n"
    for sample in (
        {"ts": 1.8e9, "host": HOST, "ranks": {"0": RANK}},
        {"ts": 1.8e9 + 1, "host": HOST, "ranks": {"0": RANK, "1": RANK}},
        {"ts": 1.8e9 + 2, "host": HOST | {"disk": {"read_bytes": 1}}, "ranks": {"0": {"pid": 77, "status": "gone"}}},
    )
)


def parse(data: bytes) -> list[Record]:
    """Records of a whole file."""
    parser = TelemetryJsonl("telemetry.jsonl", Notices())
    return parser.feed(data) + parser.finish()


@given(st.lists(st.integers(0, len(SAMPLES)), max_size=6), st.integers(0, len(SAMPLES)))
def test_chunks_make_no_difference(cuts: list[int], end: int) -> None:
    """Whatever the chunks and wherever the file is cut off."""
    data = SAMPLES[:end]
    whole = parse(data)
    parser = TelemetryJsonl("telemetry.jsonl", Notices())
    edges = [0, *sorted(min(cut, end) for cut in cuts), end]
    records = [record for a, b in pairwise(edges) for record in parser.feed(data[a:b])]
    assert records + parser.finish() == whole


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["ts", "host", "ranks", "net", "lo", "disk", "cpu_times", "user", "idle", "0", "1", "pid", "status", "workers",
         "n", "cpu_s", "read_bytes", "tx_bytes", "tcp", "node", "rss_mb", "load1", "cpu_percent"]), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(JSON, max_size=4), st.binary(max_size=60))
def test_any_json_and_any_bytes_are_survived(values: list[Any], tail: bytes) -> None:
    records = parse(b"".join(json.dumps(v).encode() + b"\n" for v in values) + tail)
    assert all(isinstance(record, Host | Process) for record in records)
