"""Windows: half open, without holes, the same however the records arrive, and honest about what came too late."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.records import Collective, Cycles, Gpu, Host, Log, Net, Phase, Process, Record, RunInfo, Step
from features.rhythm import LENGTHS_S
from features.windows import Window, WindowCutter, event_time, order_key, windows

ONE_OF_EACH: dict[type, Callable[[float], Record]] = {
    RunInfo: lambda ts: RunInfo(ts=ts, world_size=2),
    Step: lambda ts: Step(ts=ts, rank=0, step=1),
    Phase: lambda ts: Phase(ts=ts, kind="validation"),
    Collective: lambda ts: Collective(ts=ts - 0.25, end=ts, tensor="t", op="allreduce"),
    Cycles: lambda ts: Cycles(ts=ts, count=3),
    Host: lambda ts: Host(ts=ts, node="alpha"),
    Process: lambda ts: Process(ts=ts, rank=0),
    Gpu: lambda ts: Gpu(ts=ts, gpu="GPU-1"),
    Net: lambda ts: Net(ts=ts, node="alpha", device="eth0"),
    Log: lambda ts: Log(ts=ts, event="stall", text="waiting"),
}


def log(ts: float | None, text: str = "") -> Log:
    return Log(ts=ts, event="stall", text=text)


def content(window: Window, lists: Iterable[str]) -> list[Record]:
    return [record for name in lists for record in getattr(window, name)]


def cut(records: Iterable[Record], length_s: float = 1.0, **settings: float) -> tuple[list[Window], int]:
    """All windows of records as they arrive, and how many came too late."""
    cutter = WindowCutter(length_s, **settings)
    out = [w for record in records for w in cutter.add(record)]
    return out + cutter.finish(), cutter.late


def test_a_collective_is_told_when_it_ends_and_everything_else_at_its_own_time() -> None:
    for kind, make in ONE_OF_EACH.items():
        assert event_time(make(9.0)) == 9.0, kind
    assert event_time(Collective(ts=8.5, tensor="t", op="allreduce")) == 8.5
    assert event_time(log(None)) == 0.0


@pytest.mark.parametrize("kind", get_args(Record), ids=lambda kind: kind.__name__)
def test_every_kind_of_record_has_its_own_list(kind: type, lists: dict[type, str]) -> None:
    """A new kind of record fails here until it has a place in a window."""
    record = ONE_OF_EACH[kind](5.5)
    (window,) = windows([record], 1.0)
    assert {name for name in lists.values() if getattr(window, name)} == {lists[kind]}
    assert getattr(window, lists[kind]) == [record]
    assert not window.is_empty()


@pytest.mark.parametrize("length_s", LENGTHS_S)
def test_a_window_holds_its_start_and_not_its_end(length_s: float, t0: float) -> None:
    edge = t0 + length_s
    before, on = math.nextafter(edge, 0.0), edge
    first, second = windows([log(before, "before"), log(on, "on")], length_s)
    assert (first.start, first.end, second.start, second.end) == (t0, edge, edge, edge + length_s)
    assert [r.text for r in first.logs] == ["before"]
    assert [r.text for r in second.logs] == ["on"]
    assert first.length_s == length_s


@given(
    st.lists(st.floats(min_value=0.0, max_value=40.0), min_size=1, max_size=40),
    st.sampled_from([0.5, *LENGTHS_S[:3]]),
)
def test_every_record_is_in_the_window_of_its_time_and_no_window_is_missing(times: list[float], length_s: float) -> None:
    records = [log(1000.0 + at, str(i)) for i, at in enumerate(sorted(times))]
    out, late = cut(records, length_s)
    assert late == 0
    assert [w.index for w in out] == list(range(out[0].index, out[-1].index + 1))
    assert [r for w in out for r in w.logs] == sorted(records, key=order_key)
    for w in out:
        assert w.start == w.index * length_s
        assert w.end == (w.index + 1) * length_s
        assert all(r.ts is not None and w.start <= r.ts < w.end for r in w.logs)


def test_silence_is_given_as_empty_windows() -> None:
    out = list(windows([log(3.5), log(6.5)], 1.0))
    assert [(w.index, w.is_empty()) for w in out] == [(3, False), (4, True), (5, True), (6, False)]


def test_silence_is_counted_to_the_end_of_the_records_in_the_last_window() -> None:
    out = list(windows([log(3.5), log(5.25)], 1.0))
    assert [w.until for w in out] == [4.0, 5.0, 5.25]


def test_records_of_one_moment_are_in_the_same_order_however_they_came() -> None:
    same = [make(7.0) for make in ONE_OF_EACH.values()] + [log(7.0, "b"), log(7.0, "a"), Step(ts=7.0, rank=1, step=1)]
    (there,), (back,) = windows(same, 1.0), windows(reversed(same), 1.0)
    assert msgspec.json.encode(there) == msgspec.json.encode(back)
    assert [s.rank for s in there.steps] == [0, 1]
    assert [r.text for r in there.logs] == ["a", "b", "waiting"]


def test_order_is_by_time_before_anything_else() -> None:
    assert order_key(log(2.0, "a")) < order_key(log(3.0, "A")) < order_key(log(3.0, "a"))
    assert order_key(log(None)) < order_key(log(1e-3))
    assert order_key(Collective(ts=1.0, end=4.0, tensor="t", op="allreduce")) > order_key(log(3.0))


@given(
    gaps=st.lists(st.one_of(st.floats(0.0, 2.0), st.floats(0.0, 60.0)), min_size=1, max_size=30),
    delays=st.lists(st.floats(0.0, 0.999), min_size=30, max_size=30),
    lateness_s=st.sampled_from([0.5, 3.0, 10.0]),
    length_s=st.sampled_from([0.5, 1.0, 5.0]),
)
def test_order_of_arrival_has_no_effect_within_the_lateness(
    gaps: list[float], delays: list[float], lateness_s: float, length_s: float
) -> None:
    """Each record is under way for less than the lateness; some gaps are long enough to be taken as a jump of the clock."""
    at, records = 1000.0, list[Record]()
    for i, gap in enumerate(gaps):
        at += gap
        records.append(log(at, str(i)))
    arrival = sorted(zip(records, delays, strict=False), key=lambda pair: event_time(pair[0]) + lateness_s * pair[1])
    archive, _ = cut(records, length_s, longest_gap_s=20.0)
    stream, late = cut([record for record, _ in arrival], length_s, lateness_s=lateness_s, longest_gap_s=20.0)
    assert late == 0
    assert stream == archive


def test_a_window_waits_for_as_long_as_records_may_be_late() -> None:
    cutter = WindowCutter(1.0, lateness_s=2.0)
    assert cutter.add(log(10.5)) == []
    assert cutter.add(log(12.9)) == []
    assert cutter.add(log(10.9, "late, but not too late")) == []
    assert [(w.index, len(w.logs)) for w in cutter.add(log(13.0))] == [(10, 2)]
    assert cutter.late == 0


def test_what_comes_too_late_is_counted_and_changes_nothing() -> None:
    cutter = WindowCutter(1.0, lateness_s=1.0)
    assert [w.index for record in (log(10.5), log(13.5)) for w in cutter.add(record)] == [10, 11]
    assert cutter.add(log(11.9)) == []
    assert cutter.add(log(3.0)) == []
    assert cutter.late == 2
    assert [(w.index, len(w.logs)) for w in cutter.finish()] == [(12, 0), (13, 1)]


def test_a_window_is_given_by_the_first_record_after_its_end() -> None:
    cutter = WindowCutter(1.0)
    assert cutter.add(log(10.5)) == []
    assert [w.index for w in cutter.add(log(11.0))] == [10]


def test_a_jump_of_the_clock_starts_afresh() -> None:
    out, late = cut([log(5.5), log(5.5 + 1e9)])
    assert [w.index for w in out] == [5, 1_000_000_005]
    assert late == 0


def test_a_gap_that_is_not_too_long_is_silence() -> None:
    settings = {"longest_gap_s": 10.0}
    assert len(cut([log(5.5), log(16.5)], **settings)[0]) == 12
    assert len(cut([log(5.5), log(17.5)], **settings)[0]) == 2
    assert len(cut([log(4.0), log(16.0)], length_s=2.0, **settings)[0]) == 7
    assert len(cut([log(4.0), log(18.0)], length_s=2.0, **settings)[0]) == 2


def test_after_a_jump_records_may_still_be_late() -> None:
    """The jump must not be taken before the watermark has passed it: what comes between is in time."""
    out, late = cut([log(5.5), log(5000.5), log(4995.5), log(5020.5)], lateness_s=10.0)
    assert late == 0
    assert [w.index for w in out if not w.is_empty()] == [5, 4995, 5000, 5020]
    assert len(out) == 1 + 26


def test_finish_gives_what_is_open_and_only_once() -> None:
    cutter = WindowCutter(2.0, lateness_s=100.0)
    assert cutter.finish() == []
    assert cutter.add(log(4.0)) == []
    assert cutter.add(log(8.0)) == []
    assert [w.index for w in cutter.finish()] == [2, 3, 4]
    assert cutter.finish() == []
    assert cutter.add(log(9.0)) == []
    assert cutter.late == 1


def test_windows_do_not_share_their_lists() -> None:
    first, second = windows([log(1.0), log(2.0)], 1.0)
    first.steps.append(Step(ts=1.0, rank=0, step=0))
    assert second.steps == []


def test_windows_of_a_stream_are_those_of_the_archive(t0: float) -> None:
    """All kinds of records, in pairs that arrive the wrong way round."""
    records = [make(t0 + i + 0.3 * j) for i in range(5) for j, make in enumerate(ONE_OF_EACH.values())]
    swapped: list[Record] = []
    for i in range(0, len(records), 2):
        swapped += reversed(records[i : i + 2])
    assert list(windows(swapped, 2.0, lateness_s=4.0)) == list(windows(sorted(records, key=order_key), 2.0))
