"""One clock: what is estimated is right to the jitter, said in a notice, and what was right is left alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from features.clock import FEWEST, RANK_SKEW_S, align, estimate_offset, shift
from features.notices import Notice, Notices
from features.records import Collective, Cycles, Host, Log, Phase, Process, Record, RunInfo, Step
from features.rundir import RunData, SourceFile, load_run

Make = Callable[..., Step]
Times = np.ndarray[Any, np.dtype[np.float64]]


def source(kind: str, records: Iterable[Record], name: str = "", absolute: bool = True) -> SourceFile:
    return SourceFile(name=name or kind, kind=kind, sha256="", records=list(records), absolute=absolute)


def aligned(*files: SourceFile) -> list[Notice]:
    notices = Notices()
    align(list(files), notices)
    return notices.items()


def near(expected: Any) -> Any:
    """Within 10 us. A relative tolerance, as is usual, would be half an hour for a time since the epoch."""
    return pytest.approx(expected, abs=1e-5)


def ends(file: SourceFile, rank: int = 0) -> list[float]:
    return [r.ts for r in file.records if isinstance(r, Step) and r.rank == rank]


# --- the estimate -----------------------------------------------------------------------------------------------------------


def run_of_steps(seed: int, n: int = 120, gap_after: int = 50, gap_s: float = 3.0) -> Times:
    """Ends of uneven steps of about 0.1 s; after one epoch a validation."""
    intervals = np.random.default_rng(seed).uniform(0.09, 0.11, n)
    intervals[gap_after] += gap_s
    return np.cumsum(intervals)


@pytest.mark.parametrize("offset", [0.0, 1.5, -7.25, 1.8e9])
def test_offset_of_the_same_steps_is_exact(offset: float) -> None:
    steps = run_of_steps(1)
    assert estimate_offset(steps, steps - offset) == pytest.approx((offset, 0.0), abs=1e-6)


@given(
    seed=st.integers(0, 1000),
    offset=st.floats(-1e6, 1e6),
    unlogged=st.integers(0, 20),
    extra=st.integers(0, 20),
    kept=st.integers(70, 120),
)
def test_offset_is_right_to_the_jitter_whatever_is_missing_at_the_ends(
    seed: int, offset: float, unlogged: int, extra: int, kept: int
) -> None:
    """The log begins late or breaks off, the timeline has collectives before the first step; steps and bursts jitter."""
    random, steps = np.random.default_rng(seed), run_of_steps(seed)
    before = steps[0] - 0.05 * np.arange(extra, 0, -1)
    bursts = np.sort(np.concatenate([before, steps + random.uniform(-0.001, 0.001, steps.size)])) - offset
    found = estimate_offset((steps + random.uniform(-0.001, 0.001, steps.size))[unlogged:kept], bursts)
    assert found is not None
    assert found[0] == pytest.approx(offset, abs=0.001)
    assert found[1] < 0.002


def test_a_gap_between_epochs_tells_even_steps_apart() -> None:
    """Steps of a clock that only knows seconds; the log begins at the fifth step."""
    steps = np.arange(40.0)
    steps[20:] += 7.0
    assert estimate_offset(steps[5:], steps - 3.0) == near((3.0, 0.0))


@pytest.mark.parametrize("seed", range(5))
def test_even_steps_in_a_log_that_knows_only_seconds_are_not_laid_anywhere(seed: int) -> None:
    """Chance makes some shift the best by a hair: it must not move the timeline by half of the run."""
    steps = np.cumsum(np.random.default_rng(seed).normal(0.3, 0.0005, 300))
    found = estimate_offset(np.floor(steps), steps - 40.0)
    assert found is not None
    assert found[0] == pytest.approx(39.5, abs=0.7)


@pytest.mark.parametrize("n", [FEWEST, 30, 31])
def test_of_steps_that_nothing_tells_apart_the_first_goes_with_the_first(n: int) -> None:
    steps = 5.0 * np.arange(n)
    assert estimate_offset(steps, steps - 100.0) == near((100.0, 0.0))


def test_too_few_steps_have_no_offset() -> None:
    steps = run_of_steps(1)
    assert estimate_offset(steps[: FEWEST - 1], steps) is None
    assert estimate_offset(steps, steps[: FEWEST - 1]) is None
    assert estimate_offset(np.array([]), np.array([])) is None
    assert estimate_offset(steps[:FEWEST], steps[:FEWEST]) is not None


def test_one_step_that_is_far_off_does_not_spoil_the_match() -> None:
    steps = run_of_steps(1)
    odd = steps.copy()
    odd[7] += 30.0
    found = estimate_offset(odd, steps - 4.0)
    assert found is not None
    assert found[0] == near(4.0)
    assert found[1] == near(1.0 / steps.size)


# --- the timeline -------------------------------------------------------------------------------------------------------------


def loaded(at: Path, **files: str) -> RunData:
    for name, text in files.items():
        (at / name.replace("__", ".")).write_text(text)
    return load_run(at)


def said(run: RunData) -> list[tuple[str, str, str]]:
    """What the notices say of clocks; that a file has none, its parser says."""
    return [(n.level, n.text, n.source) for n in run.notices.items() if "clock" in n.text]


def bursts(run: RunData) -> list[float]:
    return [r.end for r in run.records if isinstance(r, Collective) and r.end is not None]


@pytest.mark.parametrize(("kind", "absolute", "moved"), [("timeline", False, 1), ("trace", False, 1), ("trace", True, 0)])
def test_traces_without_a_clock_are_laid_on_the_steps_like_timelines(
    step: Make, collective: Callable[..., Collective], t0: float, kind: str, absolute: bool, moved: int
) -> None:
    log = source("log", [step(0, k, 0.1 * k + (2.0 if k > 9 else 0.0)) for k in range(20)])
    uses = [collective(0.1 * k + (2.0 if k > 9 else 0.0)) for k in range(20)]
    file = source(kind, [shift(c, -t0) for c in uses], absolute=absolute)
    before = copy.deepcopy(file)
    assert len(aligned(log, file)) == moved
    assert (file == before) is (moved == 0)
    if moved:
        assert [c.end for c in file.records if isinstance(c, Collective)] == near([c.end for c in uses])


@pytest.mark.parametrize("late_s", [0.0, 2.5])
def test_a_timeline_without_a_clock_is_laid_on_the_steps_of_the_log(
    layout: Callable[..., Any], tmp_path: Path, late_s: float
) -> None:
    """As files of the older generation are; its zero is the start of Horovod, some time before the first step."""
    run = layout(steps=20)
    got = loaded(tmp_path, timeline__json=run.timeline(None, late_s=late_s), rank0__log=run.log(0))
    assert bursts(got) == pytest.approx([run.end_of(k) for k in range(20)], abs=1e-4)
    offset = run.start + 0.002 - late_s
    expected = f"clock estimated from the steps of the log: {offset:+.3f} s added, matched within 0 ms"
    assert said(got) == [("info", expected, "timeline.json")]


def test_a_timeline_that_continues_without_its_log_is_laid_on_what_is_there(layout: Callable[..., Any], tmp_path: Path) -> None:
    """The log misses the first steps and breaks off."""
    run = layout(steps=30)
    got = loaded(tmp_path, timeline__json=run.timeline(None), rank0__log=run.log(0, steps=range(4, 25)))
    assert bursts(got) == pytest.approx([run.end_of(k) for k in range(30)], abs=1e-4)


def test_the_notice_says_how_sure_the_estimate_is(step: Make, collective: Callable[..., Collective], t0: float) -> None:
    noise = [0.01, -0.01] * 10
    log = source("log", [step(0, k, 0.1 * k + (2.0 if k > 9 else 0.0) + noise[k]) for k in range(20)])
    uses = [collective(0.1 * k + (2.0 if k > 9 else 0.0)) for k in range(20)]
    timeline = source("timeline", [shift(c, -t0) for c in uses], absolute=False)
    (notice,) = aligned(log, timeline)
    assert notice.text.endswith("matched within 10 ms")
    assert [c.end for c in timeline.records if isinstance(c, Collective)] == pytest.approx([c.end for c in uses], abs=0.011)


def test_the_tensor_that_is_used_most_is_the_pulse_of_the_run(
    step: Make, collective: Callable[..., Collective], t0: float
) -> None:
    """Others come once, at the start or at the end of an epoch."""
    at = [0.1 * k + (2.0 if k > 9 else 0.0) for k in range(20)]
    log = source("log", [step(0, k, t) for k, t in enumerate(at)])
    uses = [collective(t - 0.01, "dense") for t in at]
    others = [collective(0.001 * k, f"broadcast-{k}") for k in range(30)] + [collective(9.0, "metric")]
    others += [collective(5.0 + k, "hung", end=None) for k in range(50)]
    cycles = Cycles(ts=t0 + 0.5, count=9)
    timeline = source("timeline", [shift(c, -t0) for c in [*others, *uses, cycles]], absolute=False)
    assert len(aligned(log, timeline)) == 1
    dense = [c.end for c in timeline.records if isinstance(c, Collective) and c.tensor == "dense"]
    assert dense == near([t0 + t for t in at])
    assert timeline.records[-1].ts == near(t0 + 0.51)


def test_without_steps_it_is_laid_at_the_start_of_the_other_sources(
    host: Callable[..., Host], collective: Callable[..., Collective], t0: float
) -> None:
    samples = source("telemetry", [host(t) for t in (4.0, 3.0, 5.0)])
    nowhere = source("kernel", [Log(ts=9.0, event="link_down", text="")], absolute=False)
    timeline = source("timeline", [shift(collective(t), -t0) for t in (8.0, 7.0, 9.0)], absolute=False)
    (notice,) = aligned(timeline, nowhere, samples)
    assert (notice.level, notice.source) == ("warning", "timeline")
    assert notice.text == "no absolute clock and no steps to match: laid at the start of the other sources"
    assert [r.ts for r in timeline.records] == near([t0 + 4.0, t0 + 3.0, t0 + 5.0])


def test_alone_it_counts_from_an_unknown_start(collective: Callable[..., Collective], t0: float) -> None:
    timeline = source("timeline", [shift(collective(7.0), -t0)], absolute=False)
    before = copy.copy(timeline.records)
    (notice,) = aligned(timeline)
    assert (notice.level, notice.text) == ("info", "no absolute clock: times count from an unknown start")
    assert timeline.records == before


def test_a_timeline_whose_clock_is_far_off_is_laid_on_the_log_with_a_warning(
    layout: Callable[..., Any], tmp_path: Path
) -> None:
    run = layout(steps=20)
    got = loaded(tmp_path, timeline__json=run.timeline(run.start - 3600.0), rank0__log=run.log(0))
    assert bursts(got) == pytest.approx([run.end_of(k) for k in range(20)], abs=1e-4)
    assert said(got) == [("warning", "clock estimated from the steps of the log: +3600.002 s added, matched within 0 ms",
                          "timeline.json")]  # fmt: skip


# --- logs without a date ------------------------------------------------------------------------------------------------------


def test_logs_without_a_date_take_it_from_the_timeline(
    step: Make, collective: Callable[..., Collective], process: Callable[..., Process], t0: float
) -> None:
    """A moment that means something is not given up for one that does not."""
    at = [0.1 * k + (2.0 if k > 9 else 0.0) for k in range(20)]
    logs = [source("log", [step(r, k, t - t0) for k, t in enumerate(at)], name=str(r), absolute=False) for r in (0, 1)]
    words = Log(ts=at[4], event="stall", text="")
    logs[1].records.append(words)
    others = [
        source("timeline", [collective(60.0 + t) for t in at], "timeline.json"),
        source("telemetry", [process(0, 59.0), process(0, 61.0)]),
    ]
    before = copy.deepcopy(others)
    (notice,) = aligned(*logs, *others)
    assert (notice.level, notice.source) == ("warning", "logs")
    assert notice.text == "no date in the logs: taken from timeline.json, matched within 0 ms"
    assert ends(logs[0]) == ends(logs[1], 1) == near([t0 + 60.0 + t for t in at])
    assert logs[1].records[-1].ts == near(t0 + 60.0 + at[4])
    assert others == before
    assert all(f.absolute for f in logs)


def test_logs_without_a_date_and_a_timeline_begin_with_the_processes(
    step: Make, process: Callable[..., Process], t0: float
) -> None:
    log = source("log", [step(0, k, 5.0 + k - t0) for k in range(20)], absolute=False)
    samples = source("telemetry", [process(0, 100.0 + k) for k in range(5)])
    before = copy.deepcopy(samples)
    (notice,) = aligned(log, samples)
    assert notice.text == "no date in the logs: laid at the start of the processes, uncertain by seconds"
    assert ends(log) == near([t0 + 100.0 + k for k in range(20)])
    assert samples == before


def test_logs_without_a_date_and_anything_else_count_from_an_unknown_start(
    step: Make, host: Callable[..., Host], t0: float
) -> None:
    log = source("log", [step(0, k, k - t0) for k in range(20)], absolute=False)
    before = copy.deepcopy(log)
    assert aligned(log) == []
    assert log == before


def test_one_log_with_a_date_is_enough(step: Make, process: Callable[..., Process], t0: float) -> None:
    dated, undated = (source("log", [step(r, k, k) for k in range(20)], str(r), absolute=r == 0) for r in (0, 1))
    before = copy.deepcopy(undated)
    assert aligned(dated, undated, source("telemetry", [process(0, 5.0)])) == []
    assert undated == before


# --- ranks --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_s", [3.25, -3.25, 86400.0])
def test_a_rank_whose_clock_is_ahead_is_brought_back(layout: Callable[..., Any], tmp_path: Path, late_s: float) -> None:
    run = layout()
    got = loaded(tmp_path, rank0__log=run.log(0), rank1__log=run.log(1, late_s=late_s))
    assert [(s.rank, s.step) for s in got.records if isinstance(s, Step)] == [(r, k) for k in range(run.steps) for r in (0, 1)]
    off = [s.ts - run.end_of(s.step, 0) for s in got.records if isinstance(s, Step)]
    assert np.abs(off).max() < 0.002
    text = f"clock of rank 1 is {late_s + 0.001:+.3f} s from that of rank 0: times corrected"
    assert said(got) == [("warning", text, "logs")]


def test_all_that_the_rank_says_moves_with_its_steps(step: Make, t0: float) -> None:
    """In its own log also what names no rank; in a log of several ranks only what names it."""
    theirs = [step(1, k, 10.0 + 0.1 * k) for k in range(10)]
    words = [RunInfo(ts=t0 + 10.0), Phase(ts=t0 + 11.0, kind="done", rank=1), Log(ts=t0 + 11.0, event="stall", text=""),
             Log(ts=None, event="stall", text="")]  # fmt: skip
    own = source("log", [*theirs, *words], name="1")
    first = [step(0, k, 0.1 * k) for k in range(10)]
    both = source("log", [*first, *theirs, *words, Phase(ts=t0 + 1.0, kind="done", rank=0)], name="launcher")
    (notice,) = aligned(own, both)
    assert notice.text.startswith("clock of rank 1 is +10.000 s")
    assert [r.ts if r.ts is None else round(r.ts - t0, 6) for r in own.records[10:]] == [0.0, 1.0, 1.0, None]
    assert [r.ts if r.ts is None else round(r.ts - t0, 6) for r in both.records[20:]] == [10.0, 1.0, 11.0, None, 1.0]
    assert ends(own, 1) == ends(both, 1) == near(ends(both, 0))


def test_the_lowest_rank_keeps_its_clock(step: Make) -> None:
    files = [source("log", [step(r, k, 0.1 * k + r) for k in range(10)], name=str(r)) for r in (7, 2, 5)]
    texts = [n.text for n in aligned(*files)]
    assert texts == [f"clock of rank {r} is {r - 2.0:+.3f} s from that of rank 2: times corrected" for r in (5, 7)]
    assert ends(files[0], 7) == near(ends(files[1], 2))
    assert ends(files[2], 5) == near(ends(files[1], 2))


def test_one_late_line_does_not_hide_a_clock_that_is_off(step: Make) -> None:
    first = source("log", [step(0, k, 0.1 * k) for k in range(20)], name="0")
    other = source("log", [step(1, k, 0.1 * k + 2.0 + (0.9 if k == 7 else 0.0)) for k in range(20)], name="1")
    assert len(aligned(first, other)) == 1
    assert ends(other, 1)[8:] == near(ends(first)[8:])


def test_the_timeline_is_laid_on_the_lowest_rank(step: Make, collective: Callable[..., Collective], t0: float) -> None:
    """Ranks are apart by less than is corrected; the coordinator writes the timeline."""
    at = [0.1 * k + (2.0 if k > 9 else 0.0) for k in range(20)]
    logs = [source("log", [step(r, k, t + 0.3 * r) for k, t in enumerate(at)], name=str(r)) for r in (1, 0)]
    timeline = source("timeline", [shift(collective(t), -t0) for t in at], absolute=False)
    assert len(aligned(*logs, timeline)) == 1
    assert [c.end for c in timeline.records if isinstance(c, Collective)] == near([t0 + t for t in at])


@pytest.mark.parametrize("skew_s", [0.9 * RANK_SKEW_S, -0.9 * RANK_SKEW_S])
def test_ranks_that_are_apart_by_less_than_half_a_second_are_left_alone(step: Make, skew_s: float) -> None:
    files = [source("log", [step(r, k, 0.1 * k + skew_s * r) for k in range(10)], name=str(r)) for r in (0, 1)]
    before = copy.deepcopy(files)
    assert aligned(*files) == []
    assert files == before


def test_a_rank_that_straggles_is_no_clock_that_is_off(step: Make) -> None:
    """Its distance is not steady: it is behind because it is slow."""
    slow = source("log", [step(1, k, 0.3 * k + 0.6) for k in range(20)], name="1")
    quick = source("log", [step(0, k, 0.1 * k) for k in range(20)], name="0")
    before = copy.deepcopy(slow)
    assert aligned(quick, slow) == []
    assert slow == before


@pytest.mark.parametrize(("shared", "notices"), [(0, 0), (FEWEST - 1, 0), (FEWEST, 1)])
def test_few_common_steps_tell_nothing_about_a_clock(step: Make, shared: int, notices: int) -> None:
    files = [
        source("log", [step(r, k, 0.1 * k + 60.0 * r) for k in range(r * (20 - shared), 20 + 9 * r)], str(r)) for r in (0, 1)
    ]
    before = copy.deepcopy(files)
    assert len(aligned(*files)) == notices
    assert (files == before) is (notices == 0)


# --- jumps --------------------------------------------------------------------------------------------------------------------


def test_a_clock_that_goes_back_is_made_to_go_on(layout: Callable[..., Any], tmp_path: Path) -> None:
    run = layout()
    lines = run.log(1).splitlines()
    later = run.log(1, late_s=-100.0).splitlines()
    got = loaded(tmp_path, rank1__log="\n".join([*lines[:7], *later[7:]]) + "\n", rank0__log=run.log(0))
    for rank in (0, 1):
        told = [s.ts for s in got.records if isinstance(s, Step) and s.rank == rank]
        assert told == pytest.approx([run.end_of(k, rank) for k in range(run.steps)], abs=1e-3)
    done = [p for p in got.records if isinstance(p, Phase) and p.kind == "done"]
    assert [p.ts - done[0].ts for p in done] == pytest.approx([0.0, 0.0], abs=1e-3)
    assert said(got) == [("warning", "clock of rank 1 goes back by about 100.0 s; later times are moved to follow",
                          "rank1.log:8")]  # fmt: skip


def test_a_clock_may_go_back_more_than_once(step: Make, t0: float) -> None:
    jumps = [0.0] * 5 + [-50.0] * 5 + [-80.0] * 5
    log = source("log", [step(3, k, 0.1 * k + by, duration_s=0.1, source=f"r.log:{k + 1}") for k, by in enumerate(jumps)])
    notices = aligned(log)
    assert ends(log, 3) == near([t0 + 0.1 * k for k in range(15)])
    assert [n.text.partition(";")[0] for n in notices] == [
        f"clock of rank 3 goes back by about {s} s" for s in ("50.0", "30.0")
    ]
    assert [n.source for n in notices] == ["log:6", "log:11"]


def test_a_jump_of_one_rank_moves_no_other(step: Make, t0: float) -> None:
    """In a launcher's log each rank has the clock of its own machine."""
    records: list[Record] = [
        step(r, k, 0.1 * k - (40.0 if r == 1 and k > 4 else 0.0), duration_s=0.1) for k in range(12) for r in (0, 1)
    ]
    log = source("log", [*records, Phase(ts=t0 + 1.2, kind="done", rank=0), Phase(ts=t0 - 38.8, kind="done", rank=1)])
    assert len(aligned(log)) == 1
    assert ends(log, 0) == near([t0 + 0.1 * k for k in range(12)])
    assert ends(log, 1) == near(ends(log, 0))
    assert [p.ts for p in log.records[-2:]] == near([t0 + 1.2] * 2)


@pytest.mark.parametrize(
    "later",
    [[(5, 3.6), (6, 3.7)], [(0, -50.0), (1, -49.9)], [(4, -50.0), (4, -49.0)]],
    ids=["buffering", "restart", "repeat"],
)
def test_what_is_no_jump_is_left_alone(step: Make, later: list[tuple[int, float]]) -> None:
    log = source("log", [step(0, k, 4.0 + 0.1 * k, duration_s=0.1) for k in range(5)] + [step(0, k, at) for k, at in later])
    before = copy.deepcopy(log)
    assert aligned(log) == []
    assert log == before


# --- telemetry ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_s", [3600.0, -3600.0, 20.0])
def test_telemetry_of_another_time_is_laid_on_the_start_of_the_logs(
    step: Make, host: Callable[..., Host], process: Callable[..., Process], t0: float, off_s: float
) -> None:
    """Its host was sampled before the ranks began: the first sample of a rank goes to the first line of the log."""
    log = source("log", [step(0, k, 1.0 + k) for k in range(10)])
    samples = source("telemetry", [*(host(off_s + k) for k in range(5)), *(process(0, off_s + 5.0 + k) for k in range(5))])
    (notice,) = aligned(log, samples)
    assert [r.ts - t0 for r in samples.records] == near([-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    expected = f"clock does not overlap the logs': {-4.0 - off_s:+.1f} s added, uncertain by seconds"
    assert (notice.level, notice.text, notice.source) == ("warning", expected, "telemetry")


def test_telemetry_of_hosts_alone_is_laid_by_its_first_sample(step: Make, host: Callable[..., Host], t0: float) -> None:
    log = source("log", [step(0, k, 1.0 + k) for k in range(10)])
    samples = source("telemetry", [host(500.0 + k) for k in range(5)])
    assert len(aligned(log, samples)) == 1
    assert [r.ts for r in samples.records] == near([t0 + 1.0 + k for k in range(5)])


@pytest.mark.parametrize("off_s", [-4.0, 0.0, 9.0])
def test_telemetry_that_overlaps_the_logs_is_believed(step: Make, process: Callable[..., Process], off_s: float) -> None:
    files = [source("log", [step(0, k, k) for k in range(10)]), source("telemetry", [process(0, off_s + k) for k in range(5)])]
    before = copy.deepcopy(files)
    assert aligned(*files) == []
    assert files == before


# --- nothing to do ------------------------------------------------------------------------------------------------------------


def test_nothing_changes_when_all_is_fine(layout: Callable[..., Any], tmp_path: Path) -> None:
    run = load_run(layout().write(tmp_path / "run"))
    assert run.sources == ["log", "telemetry", "timeline"]
    before = copy.deepcopy(run.files)
    assert aligned(*run.files) == []
    assert run.files == before
    assert run.notices.items() == []


@pytest.mark.parametrize("kinds", [[], ["log"], ["timeline"], ["telemetry"], ["log", "telemetry", "timeline"]])
def test_files_without_records_are_borne(kinds: list[str]) -> None:
    files = [source(kind, []) for kind in kinds]
    assert aligned(*files) == []
    assert all(f.records == [] for f in files)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_shift_moves_begin_and_end_and_nothing_else(at: float, by_s: float) -> None:
    assume(math.isfinite(at + by_s))
    open_, closed = Collective(ts=at, tensor="t", op="allreduce", negotiate_s=0.5), Collective(
        ts=at, end=at + 1.0, tensor="t", op="allreduce", execute_s=0.5)  # fmt: skip
    assert shift(open_, by_s) == msgspec.structs.replace(open_, ts=at + by_s)
    assert shift(closed, by_s) == msgspec.structs.replace(closed, ts=at + by_s, end=at + 1.0 + by_s)
    untimed = Log(ts=None, event="stall", text="")
    assert shift(untimed, by_s) is untimed
