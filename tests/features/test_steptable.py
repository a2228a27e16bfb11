"""Tables of steps: what columns mean, which unit they have, and what happens to rows that cannot be used."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from features.errors import SettingsError
from features.notices import Notices
from features.parsers.protocol import Parser
from features.parsers.steptable import TABLE_ROWS, table_rows
from features.parsers.steptable_map import Column, StepMap
from features.records import Record, RunInfo, Step


def read(data: bytes, step_map: StepMap | None = None, chunk: int = 1 << 16) -> tuple[list[Record], Notices, Parser]:
    """The records of a table, from the first row that recognises it."""
    notices = Notices()
    row = next(row for row in table_rows(step_map) if row.sniff(data[: 1 << 16]))
    parser = row.make("table.csv", notices)
    records = [r for i in range(0, len(data), chunk) for r in parser.feed(data[i : i + chunk])]
    return [*records, *parser.finish()], notices, parser


def steps(records: list[Record]) -> list[Step]:
    return [r for r in records if isinstance(r, Step)]


def texts(notices: Notices) -> str:
    return "\n".join(n.text for n in notices.items())


def recognised(data: bytes) -> bool:
    return any(row.sniff(data) for row in TABLE_ROWS)


PLAIN = b"rank,step,step_time_ms,loss\n0,1,200,2.5\n1,1,210,2.4\n0,2,220,nan\n1,2,190,\n"


def test_obvious_columns_need_no_map() -> None:
    records, notices, parser = read(PLAIN)
    assert [(s.rank, s.step, s.duration_s) for s in steps(records)] == [(0, 1, 0.2), (1, 1, 0.21), (0, 2, 0.22), (1, 2, 0.19)]
    assert [s.source for s in steps(records)] == [f"table.csv:{n}" for n in (2, 3, 4, 5)]
    assert records[0] == RunInfo(ts=0.21, world_size=2, source="table.csv")
    assert parser.absolute is False  # type: ignore[attr-defined]
    assert "rank=rank,step=step,duration=step_time_ms,loss=loss" in texts(notices)


def test_a_loss_of_nan_is_a_value_and_an_empty_cell_is_not() -> None:
    losses = [s.loss for s in steps(read(PLAIN)[0])]
    assert losses[:2] == [2.5, 2.4]
    assert losses[2] is not None
    assert math.isnan(losses[2])
    assert losses[3] is None


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_chunks_do_not_matter(chunk: int) -> None:
    assert repr(read(PLAIN, chunk=chunk)[0]) == repr(read(PLAIN)[0])


def test_without_times_a_step_lasts_as_long_as_on_its_slowest_rank() -> None:
    assert [s.ts for s in steps(read(PLAIN)[0])] == pytest.approx([0.21, 0.21, 0.43, 0.43])
    assert "count from 0" in texts(read(PLAIN)[1])


def test_told_columns_win_and_rows_without_step_are_counted() -> None:
    data = b"who;took\na;1.5\nb;1.0\na;2.0\n"
    records, notices, _ = read(data, StepMap.parse("rank=who,duration_s=took"))
    assert [(s.rank, s.step, s.duration_s) for s in steps(records)] == [(0, 0, 1.5), (1, 0, 1.0), (0, 1, 2.0)]
    assert records[0] == RunInfo(ts=1.5, world_size=2, nodes={0: "a", 1: "b"}, source="table.csv")
    assert "counted per rank" in texts(notices)
    assert "named, not numbered" in texts(notices)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank", "FIELD=COLUMN"),
        ("rank=", "FIELD=COLUMN"),
        ("rank=a,duraton_s=b", "did you mean duration_s?"),
        ("rank=a,rank=b,duration_s=c", "rank twice"),
        ("duration_s=a,duration_ms=b", "duration twice"),
        ("rank=a,loss=b", "no pace"),
    ],
)
def test_a_map_that_nobody_can_mean_is_refused(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("?", r"\?")):
        StepMap.parse(text)


def test_a_told_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match="a column took in table\\.csv, found the columns who, tok"):
        read(b"who,tok\n1,2\n", StepMap.parse("rank=who,duration_s=took"))


def test_a_told_column_is_found_without_the_ending_of_its_unit() -> None:
    records, _, _ = read(b"worker,batch_time_ms\n0,500\n", StepMap.parse("rank=worker,duration=batch_time"))
    assert [s.duration_s for s in steps(records)] == [0.5]


def test_the_unit_in_the_key_counts() -> None:
    assert StepMap.parse("rank=r,duration_us=t").columns["duration"] == Column("t", 1e-6)
    assert StepMap.parse("rank=r,duration_s=t_norm").columns["duration"] == Column("t_norm", 0.0)


def test_normalised_durations_count_in_usual_steps() -> None:
    data = b"worker,batch_time_norm\n" + b"".join(b"%d,%d\n" % (w, 400 + 2 * (w - 1)) for _ in range(9) for w in range(3))
    records, notices, _ = read(data)
    assert {s.rank: s.duration_s for s in steps(records)} == pytest.approx({0: 0.995, 1: 1.0, 2: 1.005})
    assert "has no unit: the usual step (400 there) counts as one second" in texts(notices)


def test_a_unit_that_nobody_tells_is_shown_by_the_time_stamps() -> None:
    rows = b"".join(b"0,%d,%.1f,500\n" % (k, 1_700_000_000 + k / 2) for k in range(20))
    records, notices, parser = read(b"rank,step,timestamp,step_time\n" + rows)
    assert {s.duration_s for s in steps(records)} == {0.5}
    assert steps(records)[1].ts == 1_700_000_000.5
    assert parser.absolute is True  # type: ignore[attr-defined]
    assert "read as ms, which agrees with the time stamps" in texts(notices)


def test_rows_that_are_ten_steps_apart_tell_the_unit_all_the_same() -> None:
    rows = b"".join(b"0,%d,%d,500\n" % (10 * k, 1_700_000_000 + 5 * k) for k in range(20))
    assert {s.duration_s for s in steps(read(b"rank,step,timestamp,step_time\n" + rows)[0])} == {0.5}


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("1700000000", 1_700_000_000.0),
        ("1700000000500", 1_700_000_000.5),
        ("1700000000500000", 1_700_000_000.5),
        ("2023-11-14T22:13:20.500Z", 1_700_000_000.5),
    ],
)
def test_times_are_read_in_the_units_of_their_size(stamp: str, seconds: float) -> None:
    records, _, _ = read(f"rank,step,timestamp,step_time_s\n0,1,{stamp},0.5\n".encode())
    assert [s.ts for s in steps(records)] == [seconds]


def test_a_start_time_becomes_an_end() -> None:
    records, _, _ = read(b"rank,step,start_ts,step_time_s\n0,1,1700000000,0.5\n")
    assert [s.ts for s in steps(records)] == [1_700_000_000.5]


def test_durations_follow_from_times_where_there_is_no_such_column() -> None:
    data = b"worker,iteration,when\n0,1,1700000000\n0,2,1700000002\n0,3,1700000005\n"
    records, _, _ = read(data, StepMap.parse("rank=worker,step=iteration,ts=when"))
    assert [s.duration_s for s in steps(records)] == [None, 2.0, 3.0]


@pytest.mark.parametrize(("times", "as_steps"), [((1, 11, 21), True), ((1700000000, 1700000001, 1700000002), False)])
def test_a_column_called_time_is_what_its_values_are(times: tuple[int, ...], as_steps: bool) -> None:
    data = b"rank,time,step_time_s\n" + b"".join(b"0,%d,1\n" % t for t in times)
    found = steps(read(data)[0])
    assert [s.step for s in found] == (list(times) if as_steps else [0, 1, 2])
    assert [s.ts for s in found] == ([1.0, 2.0, 3.0] if as_steps else [float(t) for t in times])


def test_ranks_that_go_their_own_pace_wait_for_nobody() -> None:
    data = b"rank,step,step_time_s\n" + b"".join(b"%d,%d,%.2f\n" % (r, k, 1 + 0.2 * r) for k in range(5) for r in range(3))
    records, notices, _ = read(data)
    assert {s.sync_s for s in steps(records)} == {0.0}
    assert "the rank's own time" in texts(notices)


def test_equal_durations_or_told_phases_say_nothing_of_an_own_pace() -> None:
    equal = b"rank,step,step_time_s\n" + b"".join(b"%d,%d,%.3f\n" % (r, k, 1 + 0.002 * r) for k in range(5) for r in range(3))
    phases = b"rank,step,step_time_s,forward_time_ms\n" + b"0,0,1.0,300\n1,0,2.0,900\n"
    assert {s.sync_s for s in steps(read(equal)[0])} == {None}
    assert [(s.forward_s, s.sync_s) for s in steps(read(phases)[0])] == [(0.3, None), (0.9, None)]


def test_what_cannot_be_used_is_counted_and_the_rest_is_used() -> None:
    data = b"rank,step,step_time_s,loss\n0,1,0.5,1\n,2,0.5,1\n0,3,soon,1\n0,4\n0,x,0.5,1\n0,5,-1,1\n0,6,0.5,2\n"
    records, notices, _ = read(data)
    assert [(s.step, s.duration_s, s.loss) for s in steps(records)] == [(1, 0.5, 1.0), (6, 0.5, 2.0)]
    found = {n.text: (n.count, n.source) for n in notices.items() if n.level == "warning"}
    assert found["row without a rank left out"] == (1, "table.csv:line 3")
    assert found["step_time_s is no number: taken as not known"] == (1, "table.csv:line 4")
    assert found["row with fewer cells than the header has names: what is missing is not known"] == (1, "table.csv:line 5")
    assert found["row without a step or a time left out"][0] == 4


@pytest.mark.parametrize("labels", [("worker-7", "worker-9"), ("7", "9"), ("7.0", "9.0")])
def test_numbered_names_keep_their_numbers(labels: tuple[str, str]) -> None:
    data = "worker,step_time_s\n" + "".join(f"{label},1\n" for label in labels)
    assert [s.rank for s in steps(read(data.encode())[0])] == [7, 9]


def test_mixed_names_are_counted_in_natural_order() -> None:
    data = b"worker,step_time_s\nb1,1\na10,1\na2,1\n"
    records, _, _ = read(data)
    assert isinstance(records[0], RunInfo)
    assert records[0].nodes == {0: "a2", 1: "a10", 2: "b1"}
    assert [s.rank for s in steps(records)] == [2, 1, 0]


def test_nodes_are_told() -> None:
    records, _, _ = read(b"rank,hostname,step_time_s\n0,n1,1\n1,n2,1\n")
    assert isinstance(records[0], RunInfo)
    assert records[0].nodes == {0: "n1", 1: "n2"}


def test_objects_a_line() -> None:
    lines = [{"worker": 0, "iter": 1, "took": 0.5}, {"worker": 0, "iter": 2, "took": 0.6, "loss": 2}, [1], {"iter": 3}]
    data = "\n".join(map(json.dumps, lines)).encode() + b"\n{broken\n"
    records, notices, _ = read(data, StepMap.parse("rank=worker,step=iter,duration_s=took,loss=loss"), chunk=5)
    assert [(s.step, s.duration_s, s.loss) for s in steps(records)] == [(1, 0.5, None), (2, 0.6, 2.0)]
    counts = {n.text: n.count for n in notices.items() if n.level == "warning"}
    assert counts["line that is no JSON object left out"] == 2


@pytest.mark.parametrize(
    ("data", "ours"),
    [
        (b"rank,step_time\n", True),
        (b"Worker;BatchTime\n", True),
        (b'{"rank": 0, "iteration": 4, "step_time": 0.2}\n', True),
        (b'{"rank": 0, "step_time": 0.2, "message": "done"}\n', False),
        (b'{"ts": 1.0, "rank": 0, "step_time": 0.2}\n', False),
        (b"timestamp, name, utilization.gpu [%]\n", False),
        (b"epoch,loss,accuracy\n", False),
        (b"rank 0 step 1 took 0.2 s\n", False),
        (b"\x80\x02}q\x00.", False),
        (b"", False),
    ],
)
def test_only_tables_of_steps_are_taken_without_a_map(data: bytes, ours: bool) -> None:
    assert recognised(data) is ours


def test_a_table_without_rows_says_so() -> None:
    records, notices, _ = read(b"rank,step_time\n")
    assert records == []
    assert "a table without rows" in texts(notices)


def test_quoted_cells_and_a_mark_of_byte_order_are_read() -> None:
    data = '\ufeff"rank","step_time_s","note"\n"0","1.5","a, b"\n'.encode()
    assert [(s.rank, s.duration_s) for s in steps(read(data)[0])] == [(0, 1.5)]


def test_the_rows_of_the_table_are_told_apart_by_content(tmp_path: Path) -> None:
    kinds = [row.kind for row in TABLE_ROWS]
    assert kinds == ["table"] * 3
    assert [row.sniff(b"PAR1\x15\x04") for row in TABLE_ROWS] == [True, False, False]
