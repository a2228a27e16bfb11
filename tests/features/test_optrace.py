"""Traces of operations: columns, steps laid one after the other, and rows that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from features.notices import Notices
from features.optrace import OpTable, columns_of, optable, spans, steps_of
from features.parsers.steptable import CsvTable
from features.records import Step


def table(**columns: Any) -> OpTable:
    return optable(columns, "trace", Notices())


def test_columns_are_known_by_their_usual_names() -> None:
    assert columns_of(["rank", "step", "optype", "start_ts", "duration"]) == {
        "rank": "rank", "step": "step", "kind": "optype", "start_s": "start_ts", "duration_s": "duration",
    }  # fmt: skip
    assert columns_of(["rank", "step", "start_ts", "duration"]) is None
    assert columns_of(["rank", "step_time"]) is None


def test_steps_that_begin_anew_are_laid_one_after_the_other() -> None:
    t = table(rank=[0, 0, 0], step=[5, 9, 12], kind=["a"] * 3, start_s=[0.5, 0.0, 0.0], duration_s=[1.0, 2.0, 3.0])
    assert [(s.step, s.start_s, s.end_s) for s in spans(t)] == [(5, 0.0, 1.0), (9, 1.0, 3.0), (12, 3.0, 6.0)]
    assert [r.ts for r in steps_of(t, "trace")] == [1.0, 3.0, 6.0]


def test_one_clock_is_kept() -> None:
    t = table(rank=[0, 0], step=[1, 2], kind=["a"] * 2, start_s=[1e9, 1e9 + 3], duration_s=[2.0, 2.0])
    assert [(s.start_s, s.end_s, s.shift_s) for s in spans(t)] == [(1e9, 1e9 + 2, 0.0), (1e9 + 3, 1e9 + 5, 0.0)]


def test_phases_are_summed_and_the_rest_is_waiting() -> None:
    kinds = ["forward-compute", "forward-compute", "backward-compute", "optimizer", "forward-send", "grads-reduce-scatter"]
    t = table(
        rank=[0] * 6, step=[1] * 6, kind=kinds,
        start_s=[0.0, 1.0, 2.0, 9.0, 1.0, 5.0], duration_s=[1.0, 1.0, 3.0, 1.0, 0.5, 4.0],
    )  # fmt: skip
    (step,) = steps_of(t, "trace")
    assert isinstance(step, Step)
    assert (step.forward_s, step.backward_s, step.optimizer_s, step.duration_s, step.sync_s) == (2.0, 3.0, 1.0, 10.0, 4.0)


def test_operations_are_numbered_by_their_start_where_the_trace_does_not() -> None:
    t = table(rank=[0, 0, 1, 0], step=[1, 1, 1, 2], kind=["a"] * 4, start_s=[3.0, 1.0, 2.0, 9.0], duration_s=[1.0] * 4)
    assert t.seq.tolist() == [1, 0, 0, 0]


def test_damaged_rows_are_counted_and_left_out() -> None:
    notices = Notices()
    columns = {
        "rank": [0, None, "x", 1, 2],
        "step": [1, 1, 1, 1, 1],
        "kind": ["a", "a", "a", None, "a"],
        "start_s": [0.0, 0.0, 0.0, 0.0, 0.0],
        "duration_s": [1.0, 1.0, 1.0, 1.0, -1.0],
    }
    assert optable(columns, "trace", notices).rank.tolist() == [0]
    assert [(n.text, n.count) for n in notices.items()] == [
        ("operation without a rank, a step, a start or a duration left out", 4)
    ]


def test_a_trace_as_values_with_commas() -> None:
    data = b"rank,dp_rank,stage,step,optype,start_ts,duration\n0,0,0,3,forward-compute,0,1.5\n4,1,0,3,forward-compute,0,1\n"
    parser = CsvTable("trace.csv", Notices())
    parser.feed(data)
    assert [(s.rank, s.step, s.forward_s) for s in parser.finish() if isinstance(s, Step)] == [(0, 3, 1.5), (4, 3, 1.0)]
    assert parser.ops is not None
    assert parser.ops.dp.tolist() == [0, 1]


def test_a_trace_without_operations_says_so() -> None:
    notices = Notices()
    parser = CsvTable("trace.csv", notices)
    parser.feed(b"rank,step,optype,start_ts,duration\n")
    assert parser.finish() == []
    assert [n.text for n in notices.items()] == ["a trace without operations"]


@pytest.mark.parametrize("missing", ["dp", "stage"])
def test_without_a_layout_each_worker_is_its_own_replica(missing: str) -> None:
    columns = {"rank": [3], "step": [1], "kind": ["a"], "start_s": [0.0], "duration_s": [1.0], "dp": [1], "stage": [2]}
    del columns[missing]
    t = table(**columns)
    assert (t.dp.tolist(), t.stage.tolist()) == (([3], [2]) if missing == "dp" else ([1], [0]))
