"""The parts of a trace one by one: what is drawn of odd records, lanes, evenness, files, and memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.catalog import Catalog
from detector.merged import write_trace
from detector.merged.counters import Counters, weight_of_sample
from detector.merged.judging import Judge, length_of_windows
from detector.merged.layout import Lanes, Layout
from detector.merged.reading import SLACK_S, stream, survey
from detector.merged.sampling import Plan, Thinner, plan, weight_of_collective, weight_of_step
from detector.merged.sketch import ENDS, Sketch
from detector.merged.spans import Spans
from detector.merged.tracks import Tracks, weights
from detector.merged.writer import Event, TraceWriter
from detector.wiring import score
from features.records import Collective, Gpu, Host, Log, Net, Phase, Process, Ready, Record, RunInfo, Step
from features.rhythm import window_length
from features.rundir import load_run
from features.windows import event_time
from models import Bundle

T0 = 1_772_000_000.0


def layout(ranks: int = 4) -> Layout:
    return Layout(range(ranks), ["n0"], {})


def spans(end_s: float = 100.0) -> Spans:
    return Spans(layout(), T0, T0 + end_s)


def step(at: float, number: int, **more: Any) -> Step:
    return Step(ts=T0 + at, rank=0, step=number, **more)


def places(events: Iterator[Event]) -> list[tuple[str, int, int | None]]:
    return [(e.name, e.ts, e.dur) for e in events]


# --- steps ---------------------------------------------------------------------------------------------------------------


def test_step_without_parts_is_one_span() -> None:
    assert places(spans().step(step(2.0, 7, duration_s=0.5))) == [("step 7", 1_500_000, 500_000)]


def test_step_whose_length_is_unknown_takes_that_of_its_parts() -> None:
    drawn = places(spans().step(step(2.0, 7, data_s=0.1, sync_s=0.2)))
    assert drawn == [("step 7", 1_700_000, 300_000), ("data", 1_700_000, 100_000), ("sync", 1_800_000, 200_000)]


def test_step_of_no_known_length_begins_where_the_one_before_ended() -> None:
    draw = spans()
    assert places(draw.step(step(1.0, 7))) == [("step 7", 1_000_000, None)]  # a moment: nothing is known
    (second,) = draw.step(step(1.4, 8))
    assert (second.ts, second.dur) == (1_000_000, 400_000)
    assert "unknown" in second.args["begins"]
    assert places(draw.step(step(3.0, 20))) == [("step 20", 3_000_000, None)]  # steps between them were not logged


def test_steps_of_a_rank_never_overlap() -> None:
    """Clocks differ and lines are late: a step that claims to begin within the one before is cut, and says how long it took."""
    draw = spans()
    list(draw.step(step(1.0, 0, duration_s=0.5)))
    whole, part = draw.step(step(1.2, 1, duration_s=0.5, forward_s=0.4))
    assert (whole.ts, whole.dur) == (1_000_000, 200_000)
    assert (part.ts, part.dur) == (1_000_000, 200_000)
    assert whole.args["duration_s"] == 0.5
    assert part.args["s"] == 0.4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_hold_are_told_by_name(value: float) -> None:
    events = list(spans().step(step(1.0, 0, duration_s=0.5, loss=value, sync_s=value)))
    assert events[0].args["loss"] == str(value)
    assert all(0 <= e.ts <= e.ts + (e.dur or 0) <= 1_000_000 for e in events)


# --- collectives, phases and messages ------------------------------------------------------------------------------------


def test_collective_without_negotiation_is_all_operation() -> None:
    record = Collective(ts=T0 + 1, tensor="w", op="broadcast", execute_s=0.25, end=T0 + 1.25)
    assert places(spans().collective(record)) == [("broadcast w", 1_000_000, 250_000), ("execute", 1_000_000, 250_000)]


def test_fused_collective_says_how_many_more() -> None:
    record = Collective(ts=T0 + 1, tensor="w", op="allreduce", negotiate_s=0.1, execute_s=0.1, end=T0 + 1.5, fused=4)
    assert next(iter(spans().collective(record))).name == "allreduce w +3"


def test_open_collectives_wait_or_run() -> None:
    waits = Collective(ts=T0 + 90, tensor="w", op="allreduce", ready=(Ready(1, 0.0), Ready(3, 0.5)))
    runs = Collective(ts=T0 + 90, tensor="v", op="allreduce", negotiate_s=2.0)
    draw = spans(end_s=100.0)
    assert places(draw.collective(waits))[:2] == [
        ("allreduce w", 90_000_000, 10_000_000),
        ("negotiate", 90_000_000, 10_000_000),
    ]
    assert places(draw.collective(runs))[1:] == [("negotiate", 90_000_000, 2_000_000), ("execute", 92_000_000, 8_000_000)]


def test_collectives_of_one_ranks_own_trace_are_drawn_there() -> None:
    record = Collective(ts=T0, tensor="w", op="allreduce", execute_s=1.0, end=T0 + 1, rank=2)
    place = layout()
    (event, _) = Spans(place, T0, T0 + 9).collective(record)
    assert event.pid == place.rank(2)


def test_phases_that_overlap_get_lanes() -> None:
    draw = spans()
    first = next(draw.phase(Phase(ts=T0 + 5, kind="checkpoint", rank=0, duration_s=2.0)))
    second = next(draw.phase(Phase(ts=T0 + 6, kind="validation", rank=0, duration_s=4.0)))
    third = next(draw.phase(Phase(ts=T0 + 7, kind="done", rank=0)))
    assert first.tid != second.tid
    assert (third.ph, third.s, third.ts) == ("i", "t", 7_000_000)


def test_messages_stand_with_whom_they_come_from() -> None:
    place = layout()
    draw = Spans(place, T0, T0 + 9)
    by_rank, by_node, by_nobody = (
        next(draw.message(Log(ts=T0 + 1, event="xid", text="t", source="f:1", **who)))
        for who in ({"rank": 1, "node": "n0"}, {"node": "n0"}, {})
    )
    assert (by_rank.pid, by_node.pid) == (place.rank(1), place.node("n0"))
    assert by_nobody.pid not in (by_rank.pid, by_node.pid)
    timeless = next(draw.message(Log(ts=None, event="xid", text="t", ranks=(2,))))
    assert (timeless.ts, timeless.args["time"], timeless.args["ranks"]) == (0, "unknown", [2])


# --- samples -------------------------------------------------------------------------------------------------------------


def drawn(*records: Process | Host | Gpu | Net) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Counters: name and unit -> times and values."""
    counters, out = Counters(layout(), T0), dict[tuple[str, str], list[tuple[int, float]]]()
    for record in records:
        for e in counters.draw(record):
            ((unit, value),) = e.args.items()
            out.setdefault((e.name, unit), []).append((e.ts, value))
    return out


def test_rates_begin_where_they_were_measured_from() -> None:
    got = drawn(Process(ts=T0 + 2.0, rank=0, interval_s=0.5, cpu_cores=0.75, rss_bytes=1e9))
    assert got == {("CPU", "cores"): [(1_500_000, 0.75)], ("RSS", "bytes"): [(2_000_000, 1e9)]}


def test_values_that_stay_are_not_repeated_and_zero_is_a_value() -> None:
    got = drawn(*(Host(ts=T0 + i, node="n0", cpu_ratio=v) for i, v in enumerate([0.0, 0.0, 0.5, 0.5, 0.0])))
    assert got == {("CPU", "ratio"): [(0, 0.0), (2_000_000, 0.5), (4_000_000, 0.0)]}


def test_unknown_and_impossible_values_draw_nothing() -> None:
    record = Host(ts=T0, node="n0", cpu_ratio=None, iowait_ratio=math.nan, load1=math.inf)
    assert drawn(record) == {}
    assert weight_of_sample(record) == 0


def test_a_process_that_is_gone_uses_nothing() -> None:
    got = drawn(
        Process(ts=T0, rank=0, cpu_cores=1.0, rss_bytes=5.0), Process(ts=T0 + 1, rank=0, status="gone", interval_s=None)
    )
    assert got == {("CPU", "cores"): [(0, 1.0), (1_000_000, 0.0)], ("RSS", "bytes"): [(0, 5.0), (1_000_000, 0.0)]}


def test_gpu_counters() -> None:
    gpu = Gpu(
        ts=T0 + 1, gpu="GPU-7", node="n0", utilization_ratio=0.5, power_w=300.0, memory_used_bytes=4e10, temperature_c=61.0,
        sm_clock_hz=1.41e9,
    )  # fmt: skip
    at = 1_000_000
    assert drawn(gpu) == {
        ("GPU-7 utilisation", "ratio"): [(at, 0.5)],
        ("GPU-7 power", "W"): [(at, 300.0)],
        ("GPU-7 memory used", "bytes"): [(at, 4e10)],
        ("GPU-7 temperature", "°C"): [(at, 61.0)],
        ("GPU-7 SM clock", "Hz"): [(at, 1.41e9)],
    }
    place = layout()
    (own,) = {e.pid for e in Counters(place, T0).draw(Gpu(ts=T0, gpu="GPU-7", rank=3, node="n0", power_w=1.0))}
    assert own == place.rank(3)


def test_network_devices_and_their_error_counters() -> None:
    net = Net(ts=T0 + 1, node="n0", device="mlx5_1/1", interval_s=1.0, tx_bytes_per_s=9.0, errors={"symbol_error": 2.0})
    assert drawn(net) == {("mlx5_1/1 sent", "bytes/s"): [(0, 9.0)], ("mlx5_1/1 symbol_error", "1/s"): [(0, 2.0)]}
    assert weight_of_sample(net) == 2


# --- lanes ---------------------------------------------------------------------------------------------------------------

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda t: (t[0], t[0] + t[1])), max_size=60)


@given(INTERVALS)
def test_spans_of_one_lane_never_overlap(intervals: list[tuple[int, int]]) -> None:
    """In any order of arrival."""
    lanes, taken = Lanes(100), dict[int, list[tuple[int, int]]]()
    for start, end in intervals:
        lane = lanes.place(start, end)
        assert lane is not None
        assert all(end <= a or b <= start for a, b in taken.get(lane, []))
        taken.setdefault(lane, []).append((start, end))


@given(INTERVALS)
def test_no_more_lanes_than_there_are_at_once(intervals: list[tuple[int, int]]) -> None:
    intervals = sorted(((a, b) for a, b in intervals if a < b), key=lambda i: i[1])
    lanes = Lanes(100)
    used = {lanes.place(start, end) for start, end in intervals}
    at_once = max((sum(a <= t < b for a, b in intervals) for t in range(80)), default=0)
    assert len(used) == at_once


def test_lanes_end_somewhere_and_that_is_counted() -> None:
    lanes = Lanes(2)
    assert [lanes.place(0, 10) for _ in range(3)] == [0, 1, None]
    draw = spans()
    for i in range(1000):
        list(draw.collective(Collective(ts=T0, tensor=f"w{i}", op="allreduce")))
    assert draw.crowded == 100


# --- sampling ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 3000), *([st.integers(0, 5000)] * 3))
def test_plan_stays_within_the_limit(most: int, fixed: int, collectives: int, others: int) -> None:
    chosen = plan(most, fixed=fixed, collectives=collectives, others=others)
    kept = chosen.collectives * collectives + chosen.others * others
    assert kept <= max(most - fixed, 0) or chosen.is_whole
    assert chosen.is_whole == (collectives + others <= max(most - fixed, 0)) or collectives + others == 0
    if chosen.others < 1 and collectives:
        assert chosen.collectives * collectives <= max(most - fixed, 0) / 4


@given(st.fractions(0, 1, max_denominator=500), st.lists(st.sampled_from("abc"), max_size=400))
def test_thinner_takes_its_part_of_each_class(part: Fraction, classes: list[str]) -> None:
    thinner = Thinner(part)
    passed = Counter(c for c in classes if thinner.passes(c))
    assert {c: passed[c] for c in set(classes)} == {c: math.floor(n * part) for c, n in Counter(classes).items()}
    assert (thinner.seen, thinner.passed) == (len(classes), passed.total())


def test_thinner_is_even() -> None:
    thinner = Thinner(Fraction(1, 10))
    taken = [i for i in range(1000) if thinner.passes(0)]
    assert taken == list(range(9, 1000, 10))


COLLECTIVES = st.builds(
    Collective,
    ts=st.floats(T0, T0 + 50),
    tensor=st.just("w"),
    op=st.just("allreduce"),
    negotiate_s=st.none() | st.floats(0, 1),
    execute_s=st.none() | st.floats(0, 1),
    end=st.none() | st.floats(T0 + 50, T0 + 60),
    ready=st.lists(st.builds(Ready, rank=st.integers(0, 3), offset_s=st.floats(0, 1)), max_size=4).map(tuple),
)
PART = st.none() | st.floats(0, 1)
STEPS = st.builds(
    Step,
    ts=st.floats(T0, T0 + 50),
    rank=st.integers(0, 3),
    step=st.integers(0, 5),
    duration_s=PART,
    data_s=PART,
    forward_s=PART,
    sync_s=PART,
)


@given(st.lists(COLLECTIVES | STEPS, max_size=30))
def test_weights_are_what_is_drawn(records: list[Collective | Step]) -> None:
    tracks = Tracks(layout(), T0, T0 + 100, Plan())
    for record in sorted(records, key=event_time):
        weight = weight_of_step(record) if isinstance(record, Step) else weight_of_collective(record)
        assert sum(e.ph != "M" for e in tracks.draw([record])) == weight


# --- reading -------------------------------------------------------------------------------------------------------------


def timeline(path: Path, ends: list[int], *, absolute: bool = True) -> Path:
    """One tensor, whose operations end at these microseconds of the file."""
    header = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": int(T0 * 1e6)}}
    events: list[dict[str, Any]] = [header] if absolute else []
    events.append({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad"}})
    for end in ends:
        events += [
            {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": end - 400, "pid": 1},
            {"ph": "E", "ts": end - 300, "pid": 1},
            {"ph": "B", "name": "ALLREDUCE", "ts": end - 200, "pid": 1},
            {"ph": "E", "ts": end, "pid": 1},
        ]
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return path


def test_stream_gives_what_loading_gives(root: Path) -> None:
    """With a timeline that is gzipped, one that is cut off, and ranks that never came."""
    for name in ("hang_main_r1_nocache", "kill9_r1_mpi"):
        run = root / "datasets" / "runs" / name
        loaded, surveyed = load_run(run), survey(run)
        assert sorted(map(repr, stream(surveyed))) == sorted(map(repr, loaded.records))
        assert [event_time(r) for r in stream(surveyed)] == [event_time(r) for r in loaded.records]
        assert surveyed.notices.items() + surveyed.clock == loaded.notices.items()
        assert [f.sha256 for f in surveyed.files] == [f.sha256 for f in loaded.files]


def test_collectives_are_not_kept(root: Path) -> None:
    surveyed = survey(root / "datasets" / "runs" / "hang_main_r1_nocache")
    assert not any(isinstance(r, Collective) and r.end is not None for r in surveyed.records)


def test_a_little_disorder_is_put_in_order(tmp_path: Path) -> None:
    ends = [1000 * i for i in range(1, 500)]
    ends[100], ends[200] = ends[200], ends[100]
    run = survey(timeline(tmp_path / "timeline.json", ends))
    got = [event_time(r) for r in stream(run)]
    assert len(got) == 499
    assert got == sorted(got)
    assert max(ends) / 1e6 < SLACK_S


def test_a_timeline_that_grows_meanwhile_is_read_as_it_was(tmp_path: Path) -> None:
    ends = [1000 * i for i in range(1, 50)]
    run = survey(timeline(tmp_path / "timeline.json", ends))
    timeline(tmp_path / "timeline.json", [*ends, *(1000 * i for i in range(50, 90))])
    assert len(list(stream(run))) == 49


def test_stand_ins_align_like_the_whole(tmp_path: Path) -> None:
    """More uses than are kept, another tensor first, and a timeline that counts from anywhere."""
    steps = [Step(ts=T0 + 0.05 * k + 0.01 * math.sin(k * k), rank=0, step=k, duration_s=0.05) for k in range(ENDS + 300)]
    for s in steps:
        assert s.duration_s is not None
    (tmp_path / "rank0.log").write_text("\n".join(f"{s.ts:.6f} INFO [rank=0] step={s.step} step_time=0.05" for s in steps))
    timeline(tmp_path / "timeline.json", [round((s.ts - T0 + 7) * 1e6) for s in steps], absolute=False)
    loaded, surveyed = load_run(tmp_path), survey(tmp_path)
    assert surveyed.clock == [n for n in loaded.notices.items() if "clock" in n.text]
    wanted = [r.ts for r in loaded.records if isinstance(r, Collective)]
    assert [r.ts for r in stream(surveyed) if isinstance(r, Collective)] == pytest.approx(wanted, abs=2e-6)


def test_sketch_is_bounded() -> None:
    """However many collectives there are, and if every one has a name of its own."""
    sketch = Sketch()
    many: list[Record] = [Collective(ts=float(i), tensor="grad", op="allreduce", end=i + 0.5) for i in range(3 * ENDS)]
    many += [Collective(ts=float(i), tensor=f"noname.{i}", op="allreduce", end=i + 0.5) for i in range(3 * ENDS)]
    assert list(sketch.without_finished(many)) == []
    assert sketch.collectives == 6 * ENDS
    assert (sketch.first, sketch.last) == (0.0, 3 * ENDS - 0.5)
    stand_ins = sketch.stand_ins()
    assert len(stand_ins) == ENDS + 2  # the first moment, and the last end
    assert {r.tensor for r in stand_ins[1:] if isinstance(r, Collective)} == {"grad"}
    assert stand_ins[-1].ts == 3 * ENDS - 0.5


def test_gpu_samples_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(
        "timestamp, index, uuid, utilization.gpu [%], power.draw [W]\n"
        "2026/03/01 09:00:00.000, 0, GPU-0c1d, 90 %, 250.00 W\n"
        "2026/03/01 09:00:02.000, 0, GPU-0c1d, 40 %, 120.00 W\n"
    )
    summary = write_trace(tmp_path, tmp_path.parent / "gpu.json", bundle=None)
    events = json.loads((tmp_path.parent / "gpu.json").read_text())["traceEvents"]
    assert summary.counts["samples"] == {"found": 2, "drawn": 2}
    assert [(e["ts"], e["args"]) for e in events if e["name"] == "GPU-0c1d utilisation"] == [
        (0, {"ratio": 0.9}),
        (2_000_000, {"ratio": 0.4}),
    ]


def test_kept_collectives_are_thinned_like_the_others() -> None:
    """Those of a rank's own trace, which is read once."""
    own = [Collective(ts=T0 + i, tensor="w", op="allreduce", execute_s=0.5, end=T0 + i + 0.5, rank=0) for i in range(9)]
    hung = Collective(ts=T0, tensor="w", op="allreduce", rank=0)
    assert weights([*own, hung, step(1.0, 0, sync_s=0.5), RunInfo(ts=T0)]) == (2, 18, 2)


# --- judging -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kill9_r1_mpi", "slow_data_r1_nocache"])
def test_judged_in_passing_like_scored_whole(root: Path, shipped: Bundle, catalog: Catalog, name: str) -> None:
    """To the last digit, with records handed over in small batches."""
    report = score(root / "datasets" / "runs" / name)
    run = survey(root / "datasets" / "runs" / name)
    length_s = length_of_windows(run.records, lambda: stream(run))
    judge = Judge(shipped, catalog, run.id, length_s)
    records = list(stream(run))
    for start in range(0, len(records), 7):
        judge.take(records[start : start + 7])
    assert length_s == report.windows.length_s
    assert report.incidents
    assert judge.incidents() == report.incidents
    assert judge.late == 0


def test_rhythm_of_a_timeline_alone_comes_from_its_collectives(tmp_path: Path) -> None:
    path = timeline(tmp_path / "timeline.json", [400_000 * i for i in range(1, 40)])
    run = survey(path)
    assert length_of_windows(run.records, lambda: stream(run)) == window_length(load_run(path).records) > 1.0


def test_records_that_come_after_their_window_are_counted(shipped: Bundle, catalog: Catalog) -> None:
    judge = Judge(shipped, catalog, "run", 1.0)
    judge.take([step(at, i) for i, at in enumerate((0.5, 5.5, 4.5, 5.2))])
    assert judge.late == 1


# --- files ---------------------------------------------------------------------------------------------------------------


def test_a_failure_leaves_neither_a_part_nor_harms_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    out.write_text("before")
    with pytest.raises(ZeroDivisionError), TraceWriter(out) as writer:
        writer.write([Event(ph="i", ts=0, pid=1, tid=1, name=str(1 // (writer.written - 1)))])
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("trace.json", "before")]


def test_half_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.json") as writer:
        writer.write([Event(ph="i", ts=1, pid=1, tid=1, name="x", s="t", args={"text": "bad \ud83d end"})])
        writer.close({})
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"][-1]["args"]["text"] == "bad \ud83d end"


def test_info_of_the_run_is_told_beside_the_events() -> None:
    tracks = Tracks(layout(), T0, T0 + 1, Plan())
    assert list(tracks.draw([RunInfo(ts=T0, world_size=2)])) == []


MEASURE = """
import resource, sys
from pathlib import Path
from detector.merged import write_trace
from detector.wiring import SHIPPED_BUNDLE
from models import read_bundle
bundle = read_bundle(SHIPPED_BUNDLE) if sys.argv[3] == "score" else None
write_trace(Path(sys.argv[1]), Path(sys.argv[2]), bundle=bundle, max_events=50_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def grow(path: Path, megabytes: float) -> None:
    """A timeline of that size, written as it is made: 20 tensors in each step of 40 ms."""
    now, size = 0, 0
    with path.open("w") as file:
        header = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": int(T0 * 1e6)}}
        file.write("[\n" + json.dumps(header))
        for pid in range(1, 21):
            file.write(",\n" + json.dumps({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"grad.{pid}"}}))
        while size < megabytes * 1e6:
            lines = []
            for pid in range(1, 21):
                now += 2000
                lines += [
                    f'{{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": {now}, "pid": {pid}}}',
                    *(f'{{"ph": "X", "name": "{r}", "ts": {now + 100 * r}, "pid": {pid}, "dur": 0}}' for r in range(4)),
                    f'{{"ph": "E", "ts": {now + 400}, "pid": {pid}}}',
                    f'{{"ph": "B", "name": "ALLREDUCE", "ts": {now + 420}, "pid": {pid}}}',
                    f'{{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": {now + 430}, "pid": {pid}}}',
                    f'{{"ph": "E", "ts": {now + 1500}, "pid": {pid}}}',
                    f'{{"ph": "E", "ts": {now + 1510}, "pid": {pid}, "args": {{"dtype": "float32", "shape": "[512, 64]"}}}}',
                ]
            text = ",\n" + ",\n".join(lines)
            size += file.write(text)
        file.write("\n]\n")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["draw", "score"])
def test_memory_does_not_grow_with_the_timeline(tmp_path: Path, mode: str) -> None:
    """Ten times the timeline may cost a window or a list of seconds more, not its collectives (some 100 MB)."""
    peaks = []
    for megabytes in (20, 200):
        run = tmp_path / f"run{megabytes}"
        run.mkdir()
        grow(run / "timeline.json", megabytes)
        command = [sys.executable, "-c", MEASURE, run, tmp_path / "out.json.gz", mode]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 40, peaks
