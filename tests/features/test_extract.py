"""From windows to frames: who is seen, when the warm-up ends, and that a frame depends on the past alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.baseline import Baseline
from features.extract import BUSY_WARMUP_WINDOWS, LONGEST_WARMUP_STEPS, WARMUP_STEPS, WARMUP_WINDOWS, Extractor, FeatureFrame
from features.measures.table import RunMemory
from features.records import Collective, Host, Phase, Process, Ready, Record, RunInfo, Step
from features.rhythm import window_length
from features.vocabulary import FEATURES, INDEX, NAMES
from features.windows import Window, order_key, windows

Make = Callable[..., Step]
Cut = Callable[..., Window]


def frames(records: Iterable[Record], length_s: float = 1.0, extractor: Extractor | None = None) -> list[FeatureFrame]:
    """Frames of a run whose windows are all healthy, as far as they are judged."""
    extractor, out = Extractor() if extractor is None else extractor, list[FeatureFrame]()
    for window in windows(sorted(records, key=order_key), length_s):
        out.append(extractor.frame(window))
        if not out[-1].is_warmup:
            extractor.learn(window, out[-1])
    return out


def judged(of: Iterable[FeatureFrame]) -> list[bool]:
    return [not frame.is_warmup for frame in of]


def column(frame: FeatureFrame, name: str) -> list[float]:
    return [float(v) for v in frame.values[:, INDEX[name]]]


def content(frame: FeatureFrame) -> tuple[Any, ...]:
    return frame.index, frame.start, frame.end, tuple(frame.ranks), frame.values.tobytes(), frame.is_warmup, frame.is_over


# --- warm-up --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def steady(step: Make) -> Callable[..., list[Record]]:
    """`steady(windows, 4)`: four even steps of two ranks in each window of a second."""

    def make(n: int, each: int, first: int = 0, ranks: int = 2, start: float = 0.0) -> list[Record]:
        at = [(i, start + (i + 0.5) / each) for i in range(n * each)]
        return [step(r, first + i, t, duration_s=1.0 / each) for i, t in at for r in range(ranks)]

    return make


def test_windows_that_begin_within_the_first_steps_are_not_judged(steady: Callable[..., list[Record]]) -> None:
    assert WARMUP_STEPS == 8
    assert judged(frames(steady(5, 4))) == [False, False, False, True, True]
    assert judged(frames(steady(5, 5))) == [False, False, True, True, True]


@pytest.mark.parametrize(("last", "third"), [(7, False), (8, True)])
def test_eight_steps_after_the_first_are_enough(step: Make, last: int, third: bool) -> None:
    first = [step(0, k, 0.2 * k, duration_s=0.2) for k in range(last + 1)]
    assert judged(frames([*first, step(0, last + 1, 2.5, duration_s=0.2)])) == [False, False, third]


@pytest.mark.parametrize(("uses", "third"), [(7, False), (8, True)])
def test_eight_uses_of_a_tensor_are_enough(collective: Callable[..., Collective], uses: int, third: bool) -> None:
    assert judged(frames([*(collective(0.2 * k) for k in range(uses)), collective(2.5)])) == [False, False, third]


def test_the_first_two_windows_with_steps_are_not_judged(steady: Callable[..., list[Record]]) -> None:
    assert BUSY_WARMUP_WINDOWS == 2
    assert judged(frames(steady(4, 50))) == [False, False, True, True]


@pytest.mark.parametrize("first", [1, 5000, 10**9])
def test_a_resumed_run_warms_up_like_any_other(steady: Callable[..., list[Record]], first: int) -> None:
    assert judged(frames(steady(5, 4, first=first))) == judged(frames(steady(5, 4)))
    assert judged(frames(steady(4, 50, first=first))) == judged(frames(steady(4, 50)))


def test_telemetry_before_the_first_step_does_not_warm_the_steps(
    steady: Callable[..., list[Record]], process: Callable[..., Process]
) -> None:
    samples = [process(r, 0.25 * k, cpu_cores=1.0) for k in range(100) for r in (0, 1)]
    assert judged(frames([*samples, *steady(5, 20, start=20.0)]))[20:] == [False] * 2 + [True] * 3


def test_what_was_learned_before_the_first_step_is_forgotten(
    steady: Callable[..., list[Record]], process: Callable[..., Process]
) -> None:
    """A long start (data is fetched, kernels are compiled) is no past to measure the training against."""
    samples = [process(r, 0.25 * k, cpu_cores=0.1 if k < 80 else 1.0, rss_bytes=1e8 if k < 80 else 4e9)
               for k in range(120) for r in (0, 1)]  # fmt: skip
    out = frames([*samples, *steady(10, 20, start=20.0)])
    assert judged(out)[10:20] == [True] * 10
    assert all(np.isnan(column(out[20], name)).all() for name in ("cpu_vs_past", "rss_vs_past"))
    assert column(out[-1], "cpu_vs_past") == [0.0, 0.0]
    assert column(out[-1], "rss_vs_past") == [0.0, 0.0]


def test_the_rank_that_is_behind_decides(steady: Callable[..., list[Record]], step: Make) -> None:
    late = [step(2, k, 0.3 + 0.5 * k, duration_s=0.05) for k in range(30)]
    assert judged(frames([*steady(15, 20), *late])) == [False] * 5 + [True] * 10


def test_an_uneven_step_among_the_first_prolongs_the_warm_up(steady: Callable[..., list[Record]], step: Make) -> None:
    def with_long(at: float, duration_s: float) -> list[bool]:
        return judged(frames([*steady(8, 10), step(2, round(10 * at), at, duration_s=duration_s)]))

    even = judged(frames([*steady(8, 10), step(2, 10, 3.55, duration_s=0.1)]))
    assert with_long(3.55, 0.1 * 8.0) == even
    assert [i for i, (a, b) in enumerate(zip(even, with_long(3.55, 0.1 * 8.5), strict=True)) if a != b] == [3]


def test_an_uneven_step_after_the_first_sixty_is_judged(steady: Callable[..., list[Record]]) -> None:
    assert LONGEST_WARMUP_STEPS == 60
    runs = []
    for k in (61, 75):
        records = steady(10, 10)
        longer = {s for s in records if isinstance(s, Step) and s.step == k}
        runs.append(judged(frames(msgspec.structs.replace(s, duration_s=5.0) if s in longer else s for s in records)))
    assert runs[0][6] is False
    assert runs[0][7:] == [True] * 3
    assert runs[1] == [False] * 2 + [True] * 8


def test_resumed_runs_too_are_judged_after_the_first_sixty_steps(steady: Callable[..., list[Record]]) -> None:
    records = steady(10, 10, first=5000)
    uneven = [
        msgspec.structs.replace(s, duration_s=5.0) if isinstance(s, Step) and s.step in (5061, 5075) else s for s in records
    ]
    assert judged(frames(uneven)) == [False] * 2 + [True] * 4 + [False] + [True] * 3


def test_without_a_log_the_timeline_counts(collective: Callable[..., Collective]) -> None:
    """The eighth use of a tensor ends the warm-up; tensors of the first step alone do not."""
    uses = [collective(0.5 + 0.25 * k, "dense") for k in range(20)]
    once = [collective(0.5 + 0.01 * k, f"init-{k}") for k in range(40)]
    assert judged(frames(uses)) == [False, False, False, True, True, True]
    assert judged(frames([*uses, *once])) == [False, False, False, True, True, True]


def test_without_log_and_timeline_time_alone_counts(process: Callable[..., Process]) -> None:
    samples = [process(0, 0.5 + k, cpu_cores=1.0) for k in range(12)]
    assert judged(frames(samples)) == [False] * WARMUP_WINDOWS + [True] * 4
    silent = [s for s in samples if round(s.ts) % 2]
    assert judged(frames(silent)).count(True) < 4


# --- who is there -------------------------------------------------------------------------------------------------------------


def test_ranks_are_added_as_they_are_seen(
    step: Make, process: Callable[..., Process], collective: Callable[..., Collective]
) -> None:
    records = [step(5, 0, 0.5), process(2, 1.5), collective(2.5, ready={7: 0.0, 2: 0.1}), step(5, 1, 3.5)]
    out = frames(records)
    assert [frame.ranks for frame in out] == [[5], [2, 5], [2, 5, 7], [2, 5, 7]]
    assert [frame.values.shape for frame in out] == [(n, len(FEATURES)) for n in (1, 2, 3, 3)]


def test_world_size_tells_of_ranks_that_say_nothing(step: Make, t0: float) -> None:
    known = [RunInfo(ts=t0, world_size=3), RunInfo(ts=t0 + 1.5, world_size=2), RunInfo(ts=t0 + 2.5)]
    out = frames([*known, *(step(1, k, 0.5 + k, data_s=0.1, duration_s=0.2) for k in range(3))])
    assert [frame.ranks for frame in out] == [[0, 1, 2]] * 3
    assert [np.isnan(v) for v in out[-1].measures.per_rank["data"]] == [True, False, True]


def test_a_timeline_alone_is_that_of_one_rank_at_least(collective: Callable[..., Collective]) -> None:
    assert frames([collective(0.5)])[0].ranks == [0]


def test_a_window_of_nobody_has_no_rows(host: Callable[..., Host]) -> None:
    (frame,) = frames([host(0.5, load1=1.0)])
    assert frame.ranks == []
    assert frame.values.shape == (0, len(FEATURES))
    assert not frame.is_over


@pytest.mark.parametrize("told_at", [0.0, 1.75])
def test_what_the_run_says_of_its_nodes_beats_what_a_sampler_says(
    process: Callable[..., Process], t0: float, told_at: float
) -> None:
    extractor = Extractor()
    samples = [process(r, 0.5 + k, node="sampler") for k in range(3) for r in (0, 1)]
    frames([*samples, RunInfo(ts=t0 + told_at, nodes={0: "alpha"})], extractor=extractor)
    assert extractor.memory.nodes == {0: "alpha", 1: "sampler"}


def test_what_the_run_says_of_itself_adds_up(t0: float) -> None:
    extractor = Extractor()
    said = [RunInfo(ts=t0, settings={"a": "1", "b": "1"}, nodes={0: "alpha"}), RunInfo(ts=t0 + 1.5, settings={"b": "2"}),
            RunInfo(ts=t0 + 2.5, world_size=2, nodes={1: "beta"})]  # fmt: skip
    frames(said, extractor=extractor)
    memory = extractor.memory
    assert memory.settings == {"a": "1", "b": "2"}
    assert memory.nodes == {0: "alpha", 1: "beta"}
    assert memory.world_size == 2


# --- what a frame tells besides its values ------------------------------------------------------------------------------------


def test_steps_pauses_and_collectives_of_the_window(step: Make, collective: Callable[..., Collective], t0: float) -> None:
    phases = [Phase(ts=t0 + 0.1 * k, kind=kind, rank=0) for k, kind in enumerate(("start", "validation", "checkpoint", "done"))]
    left_open, joined = collective(0.5, "left", end=None), collective(0.6, "join", op="join")
    done = collective(0.3, transport="nccl")
    (frame,) = frames([step(0, 12, 0.1, duration_s=0.5), step(0, 10, 0.2), *phases, left_open, joined, done])
    assert (frame.first_step, frame.last_step) == (10, 12)
    assert [p.kind for p in frame.pauses] == ["validation", "checkpoint"]
    assert {c.tensor for c in frame.open_collectives} == {"left", "join"}
    assert frame.transport == "nccl"
    assert frame.is_over
    assert frame.unit_s == 0.5


def test_an_empty_window_tells_nothing_of_steps(step: Make) -> None:
    frame = frames([step(0, 1, 0.5), step(0, 2, 2.5)])[1]
    assert (frame.first_step, frame.last_step, frame.pauses, frame.open_collectives) == (None, None, [], [])
    assert frame.transport is None
    assert math.isnan(frame.unit_s)


def test_values_are_in_the_order_of_the_vocabulary(job: Callable[..., Any]) -> None:
    frame = frames(job(slow=(2, 100, 120)).records())[-2]
    assert frame.values.shape == (4, len(NAMES))
    assert column(frame, "forward_vs_peers").index(max(column(frame, "forward_vs_peers"))) == 2
    assert column(frame, "local_vs_past")[2] > 0.2
    assert column(frame, "sync_vs_past")[0] > 0.2


# --- past, present, no future -------------------------------------------------------------------------------------------------


def test_no_frame_depends_on_what_comes_later(job: Callable[..., Any]) -> None:
    """Two runs that part at step 80: every frame that ends before is the same, the next one is not."""
    healthy, slow = frames(job().records()), frames(job(slow=(2, 80, 120)).records())
    same = [content(a) == content(b) for a, b in zip(healthy, slow, strict=False)]
    parted = next(i for i, frame in enumerate(slow) if frame.last_step is not None and frame.last_step >= 80)
    assert parted > 5
    assert same == [True] * parted + [False] * (len(same) - parted)


@given(st.integers(min_value=1, max_value=10))
def test_frames_of_a_beginning_are_the_beginning_of_the_frames(job: Callable[..., Any], kept: int) -> None:
    cut = list(windows(sorted(job(steps=90).records(), key=order_key), 1.0))
    through, part = Extractor(), Extractor()
    whole = [content(through.frame(w)) for w in cut]
    assert [content(part.frame(w)) for w in cut[:kept]] == whole[:kept]


def test_a_frame_that_was_given_away_does_not_change(job: Callable[..., Any]) -> None:
    extractor, kept = Extractor(), list[tuple[FeatureFrame, bytes, tuple[Any, ...]]]()
    for window in windows(sorted(job().records(), key=order_key), 1.0):
        before = msgspec.msgpack.encode(window)
        frame = extractor.frame(window)
        extractor.learn(window, frame)
        assert msgspec.msgpack.encode(window) == before
        kept.append((frame, repr(frame.measures).encode(), content(frame)))
    assert all((repr(frame.measures).encode(), content(frame)) == (told, said) for frame, told, said in kept)


def test_to_learn_changes_only_the_frames_after(job: Callable[..., Any]) -> None:
    cut = list(windows(sorted(job(slow=(1, 60, 120)).records(), key=order_key), 1.0))
    knows, frozen = Extractor(), Extractor()
    for window in cut[:5]:
        for extractor in (knows, frozen):
            extractor.learn(window, extractor.frame(window))
    for window in cut[5:8]:
        frame = knows.frame(window)
        before = content(frame)
        knows.learn(window, frame)
        assert content(frame) == before
        frozen.frame(window)
    a, b = knows.frame(cut[8]), frozen.frame(cut[8])
    assert a.index == b.index
    assert not np.array_equal(a.values, b.values, equal_nan=True)
    assert repr(a.measures.per_rank["forward"]) == repr(b.measures.per_rank["forward"])


def test_a_past_that_is_not_taught_is_not_there(job: Callable[..., Any]) -> None:
    extractor = Extractor()
    for window in windows(sorted(job().records(), key=order_key), 1.0):
        extractor.frame(window)
    assert extractor.baseline == Baseline()
    assert extractor.memory.transfer_past == {}


@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_run_goes_on_from_a_snapshot(job: Callable[..., Any], at: int) -> None:
    """What a stream saves of a run is all that its next frames need."""
    cut = list(windows(sorted(job(slow=(1, 60, 120)).records(), key=order_key), 1.0))
    through = Extractor()
    for window in cut[:at]:
        through.learn(window, through.frame(window))
    saved = msgspec.msgpack.encode((through.memory, through.baseline))
    again = Extractor(*msgspec.msgpack.decode(saved, type=tuple[RunMemory, Baseline]))
    for window in cut[at:]:
        a, b = through.frame(window), again.frame(window)
        assert content(a) == content(b)
        through.learn(window, a)
        again.learn(window, b)


# --- what must not matter -----------------------------------------------------------------------------------------------------


def renamed(record: Record, to: dict[int, int]) -> Record:
    """The same record in a run whose ranks have other numbers."""
    if isinstance(record, RunInfo):
        return msgspec.structs.replace(record, nodes={to[r]: node for r, node in record.nodes.items()})
    if isinstance(record, Collective):
        return msgspec.structs.replace(record, ready=tuple(Ready(to[t.rank], t.offset_s) for t in record.ready))
    rank = getattr(record, "rank", None)
    return record if rank is None else msgspec.structs.replace(record, rank=to[rank])


@pytest.mark.parametrize("to", [{0: 1, 1: 0}, {0: 2, 1: 0, 2: 1}, {0: 3, 1: 2, 2: 0, 3: 1}], ids=len)
def test_other_numbers_for_the_ranks_only_change_the_order_of_rows(job: Callable[..., Any], to: dict[int, int]) -> None:
    records = job(ranks=len(to), slow=(1, 60, 90)).records()
    there, back = frames(records), frames(renamed(r, to) for r in records)
    rows = [to[rank] for rank in range(len(to))]
    assert sum(judged(there)) > 5
    for a, b in zip(there, back, strict=True):
        np.testing.assert_allclose(b.values[rows], a.values, rtol=1e-9, atol=1e-9)


def test_a_run_in_a_tenth_of_the_tempo_has_the_same_features(job: Callable[..., Any], t0: float) -> None:
    """Features are shares, ratios and steps: seconds must not show."""
    fast = frames(job(step_s=0.1, slow=(1, 60, 90)).records(), 1.0)
    slow = frames(job(step_s=1.0, start=10 * t0, slow=(1, 60, 90)).records(), 10.0)
    assert judged(fast) == judged(slow)
    assert sum(judged(fast)) > 5
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(b.values, a.values, atol=2e-3, err_msg=str(a.index))


def test_two_extractors_of_one_run_agree_to_the_bit(job: Callable[..., Any]) -> None:
    records = job().records()
    assert list(map(content, frames(records))) == list(map(content, frames(reversed(records))))


def test_a_healthy_run_looks_like_its_past(job: Callable[..., Any]) -> None:
    """Zero means "as usual": no feature of a healthy job strays far from it, but for those that are shares of something."""
    later = [f for f in frames(job(steps=200).records()) if not f.is_warmup][4:-1]
    assert len(later) > 8
    worst = np.nanmax(np.abs(np.stack([f.values for f in later])), axis=(0, 1))
    assert {n: w for n, w in zip(NAMES, worst, strict=True) if w > 0.5} == {"unfused_share": 1.0}


@pytest.mark.parametrize("source", ["trained", "sampled"])
def test_a_source_that_is_missing_leaves_the_other_features_alone(job: Callable[..., Any], source: str) -> None:
    run = job()
    whole, part = frames(run.records()), frames(getattr(run, source)())
    families = {"trained": {"process", "net", "host"}, "sampled": {"step", "progress", "timeline", "ticks", "numbers"}}
    gone = [f.name for f in FEATURES if f.family in families[source]]
    left = {"trained": ["step_vs_past", "local_vs_peers", "negotiate_vs_past", "lateness"],
            "sampled": ["cpu_vs_peers", "steal", "foreign_cpu"]}[source]  # fmt: skip
    assert all(np.isnan(column(f, name)).all() for f in part for name in gone)
    for a, b in zip(whole, part, strict=False):
        for name in left:
            np.testing.assert_array_equal(column(b, name), column(a, name), err_msg=f"{name} in window {a.index}")


def test_a_log_that_rounds_its_step_times_to_zero_is_borne(step: Make) -> None:
    records = [step(r, k, 0.05 * k, duration_s=0.0, loss=2.0) for k in range(200) for r in (0, 1)]
    out = frames(records)
    assert judged(out)[-1]
    assert np.isnan(column(out[-1], "step_vs_past")).all()
    assert column(out[-1], "loss_vs_past") == [0.0, 0.0]


def test_a_log_that_prints_every_twentieth_step_is_not_silent_in_between(step: Make) -> None:
    records = [step(r, 20 * k, 2.0 * k + 0.01 * r, duration_s=0.1) for k in range(60) for r in (0, 1)]
    out = [f for f in frames(records, window_length(records)) if not f.is_warmup]
    assert len(out) == 10
    assert max(column(f, name)[1] for f in out for name in ("silence", "silence_vs_peers")) == 0.0
