"""Flight Recorder dumps: nothing in them can run, and what they tell of each group comes out."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.notices import Notices
from features.parsers.flightrecorder import FR_ROWS, FlightRecorder, lay_together, sniff
from features.parsers.flightrecorder_plain import NotPlain, load_plain
from features.records import Log, Record, RunInfo

T = 1_750_000_000_000_000_000
"""Nanoseconds since the epoch, a day in 2025."""


def entry(group: str, group_id: int, sequence: int, state: str = "scheduled", **more: Any) -> dict[str, Any]:
    return {
        "pg_id": group_id, "process_group": (group, f"GROUP_{group}"), "collective_seq_id": sequence, "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce", "state": state, "retired": state == "completed", "is_p2p": False,
        "input_sizes": [[8]], "time_created_ns": T + sequence * 1_000_000, **more,
    }  # fmt: skip


def dump(entries: list[dict[str, Any]], status: dict[str, tuple[int, int]], **groups: str) -> dict[str, Any]:
    return {
        "version": "2.9",
        "nccl_version": "2.27.3",
        "pg_config": {n[1:]: {"name": n[1:], "desc": f"GROUP_{n[1:]}", "ranks": ranks} for n, ranks in groups.items()},
        "pg_status": {
            i: {"last_enqueued_collective": e, "last_completed_collective": c, "last_started_collective": -1}
            for i, (e, c) in status.items()
        },
        "entries": entries,
    }


def read(value: object, name: str = "dump_3", protocol: int = 2, chunk: int = 50) -> tuple[list[Record], Notices]:
    data = value if isinstance(value, bytes) else pickle.dumps(value, protocol)
    notices = Notices()
    parser = FlightRecorder(name, notices)
    records = [r for i in range(0, len(data), chunk) for r in parser.feed(data[i : i + chunk])]
    return [*records, *parser.finish()], notices


def logs(records: list[Record]) -> dict[str, dict[str, str]]:
    return {r.fields["group"]: r.fields for r in records if isinstance(r, Log) and "enqueued" in r.fields}


PLAIN = dump(
    [entry("0", 0, 6), entry("0", 0, 7), entry("5", 2, 90, "completed")], {"0": (7, 5), "2": (90, 90)},
    g0="[0, 1, 2, 3]", g5="[2, 3]",
)  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_progress_of_each_group(protocol: int) -> None:
    records, notices = read(PLAIN, protocol=protocol)
    assert notices.items() == []
    assert records[0] == RunInfo(ts=(T + 90_000_000) / 1e9, world_size=4, settings={"nccl_version": "2.27.3"}, source="dump_3")
    assert {r.rank for r in records if isinstance(r, Log)} == {3}
    assert {r.event for r in records if isinstance(r, Log)} == {"collective_progress"}
    found = logs(records)
    assert found["0"]["members"] == "0 1 2 3"
    assert (found["0"]["enqueued"], found["0"]["completed"], found["0"]["op"]) == ("7", "5", "all_reduce")
    assert (found["0"]["sequence"], float(found["0"]["since"])) == ("6", (T + 6_000_000) / 1e9)
    assert (found["5"]["enqueued"], found["5"]["completed"]) == ("90", "90")
    assert "op" not in found["5"]


def test_json_is_read_as_well() -> None:
    assert logs(read(json.dumps(PLAIN).encode())[0]) == logs(read(PLAIN)[0])


def test_groups_are_matched_by_the_order_in_which_they_were_made() -> None:
    value = dump([], {"0": (7, 7), "3": (8, 8), "11": (9, 9)}, g0="[0, 3]", g12="[3]", g4="[2, 3]")
    assert {g: f["enqueued"] for g, f in logs(read(value)[0]).items()} == {"0": "7", "4": "8", "12": "9"}


def test_an_entry_that_contradicts_the_order_wins_and_the_rest_is_left_out() -> None:
    value = dump([entry("4", 0, 8)], {"0": (8, 7), "3": (5, 5)}, g0="[0, 3]", g4="[2, 3]")
    records, notices = read(value)
    assert {g: f["enqueued"] for g, f in logs(records).items()} == {"4": "8"}
    assert [(n.text, n.count) for n in notices.items()] == [
        ("progress of process groups that cannot be told apart left out", 1)
    ]


def test_older_dumps_have_no_status_and_their_entries_tell() -> None:
    value = dump([entry("0", 0, 4, "completed"), entry("0", 0, 5), entry("0", 0, 6)], {}, g0="[0, 3]")
    found = logs(read(value)[0])["0"]
    assert (found["enqueued"], found["completed"], found["sequence"]) == ("6", "4", "5")


def test_an_open_receive_names_its_peer_in_the_job() -> None:
    p2p = entry("5", 2, 1, is_p2p=True, profiling_name="nccl:recv 1<-0")
    records, _ = read(dump([p2p], {"0": (7, 7), "2": (9, 8)}, g0="[0, 1, 2, 3]", g5="[2, 3]"))
    (pair,) = [r.fields for r in records if isinstance(r, Log) and "peer" in r.fields]
    assert (pair["peer"], pair["op"], pair["group"]) == ("2", "recv", "5")
    assert logs(records)["5"]["pairs"] == "true"


@pytest.mark.parametrize(
    ("name", "groups", "rank"),
    [
        ("dump_3", {"g0": "[0, 1, 2, 3]"}, 3),
        ("runs/nccl_trace_rank_12.pkl", {"g0": "[11, 12]"}, 12),
        ("dump_9", {"g0": "[0, 1]", "g1": "[1, 2]"}, 1),
        ("dump", {"g0": "[0, 1]", "g1": "[1, 2]"}, 1),
        ("dump", {"g0": "[0, 1]"}, None),
    ],
)
def test_whose_dump_it_is(name: str, groups: dict[str, str], rank: int | None) -> None:
    records, notices = read(dump([entry("0", 0, 3)], {"0": (3, 2)}, **groups), name)
    assert {r.rank for r in records if isinstance(r, Log)} == ({rank} if rank is not None else set())
    assert any("whose it is" in n.text for n in notices.items()) is (rank is None)


def test_dumps_of_one_hang_are_laid_at_one_time() -> None:
    late, none = [Log(ts=9.0, event="e", text="")], [Log(ts=None, event="e", text="")]
    assert [[r.ts for r in d] for d in lay_together([late, none, [Log(ts=4.0, event="e", text="")]])] == [[9.0], [9.0], [9.0]]
    assert lay_together([none]) == [none]


class Payload:
    """Runs a command when a careless reader loads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def raw(*parts: bytes) -> bytes:
    return b"\x80\x02" + b"".join(parts) + b"."


HOSTILE = {
    "global": raw(b"cos\nsystem\n", b"X\x04\x00\x00\x00true", b"\x85R"),
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "instance": b"(S'true'\nios\nsystem\n.",
    "object": raw(b"(cos\nsystem\n", b"X\x04\x00\x00\x00true", b"o"),
    "new object": raw(b"cbuiltins\nset\n", b")\x81"),
    "build": raw(b"}}b"),
    "extension": raw(b"\x82\x01"),
    "persistent": raw(b"X\x01\x00\x00\x00aQ"),
    "persistent text": b"Pabc\n.",
    "buffer": b"\x80\x05\x97.",
    "a name alone": raw(b"cos\nsystem\n"),
    "huge memo": raw(b"N", b"r" + struct.pack("<I", 0xFFFFFFF0)),
    "huge text": raw(b"\x8d" + struct.pack("<Q", 1 << 60)),
    "huge integer": raw(b"\x8b" + struct.pack("<i", 1 << 20) + b"\x01" * (1 << 20)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_but_plain_values_is_read(name: str) -> None:
    with pytest.raises(NotPlain):
        load_plain(HOSTILE[name])
    records, notices = read(HOSTILE[name])
    assert records == []
    assert [(n.level, n.count) for n in notices.items()] == [("error", 1)]
    assert notices.items()[0].text.startswith("pickle refused: it ")


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_dump_runs_nothing(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps({**PLAIN, "extra": Payload(tmp_path / "ran")}, protocol)
    records, notices = read(data)
    assert records == []
    assert not (tmp_path / "ran").exists()
    assert len(notices.items()) == 1
    pickle.loads(data)  # noqa: S301 - the payload is ours and makes a directory: it shows that it would have run
    assert (tmp_path / "ran").exists()


def test_the_name_asked_for_is_told() -> None:
    with pytest.raises(NotPlain, match="posix mkdir at byte 2"):
        load_plain(pickle.dumps(os.mkdir, 2))


def test_the_second_lock_holds_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.parsers.flightrecorder_plain._check", lambda data: None)
    for name in ("global", "stack global", "instance", "object", "persistent", "a name alone"):
        with pytest.raises(NotPlain):
            load_plain(HOSTILE[name])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner) | st.sets(st.integers()),
)


@given(VALUES, st.integers(4, 5))
def test_every_plain_value_comes_back(value: object, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol)) == value
    assert load_plain(pickletools.optimize(pickle.dumps(value, protocol))) == value


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_a_refusal(data: bytes) -> None:
    for start in (b"", b"\x80\x02", b"\x80\x04\x95"):
        try:
            load_plain(start + data)
        except NotPlain:
            continue


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 99)
    | st.floats()
    | st.sampled_from(["0", "4", "[0, 1]", "nccl:recv 1<-0", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("pg_config", "pg_status", "entries", "ranks", "desc", "0", "4", "pg_id", "process_group", "is_p2p"),
                    *("last_enqueued_collective", "last_completed_collective", "collective_seq_id", "time_created_ns"),
                    *("state", "profiling_name"),
                )
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.fixed_dictionaries({"pg_config": JSONISH, "pg_status": JSONISH, "entries": st.lists(JSONISH, max_size=3) | JSONISH}))
def test_plain_values_of_any_shape_raise_nothing(value: dict[str, Any]) -> None:
    read(value, chunk=1 << 16)


def test_files_are_known_by_their_keys() -> None:
    (row,) = FR_ROWS
    assert row.kind == "flightrecorder"
    assert sniff(pickle.dumps(PLAIN, 2))
    assert sniff(json.dumps(PLAIN).encode())
    assert not sniff(pickle.dumps({"a": 1}, 2))
    assert not sniff(b"rank 0: nccl entries pg_config")
    assert not sniff(b"")


def test_a_dump_of_nothing_says_so() -> None:
    assert [n.text for n in read({"version": "2.9"})[1].items()] == ["a dump without process groups or entries"]
    assert [n.text for n in read([1, 2])[1].items()] == ["a dump without process groups or entries"]
