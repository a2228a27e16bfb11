"""The extractor: windows in, feature frames out, with the memory and baseline of one run in between."""

from __future__ import annotations

import statistics

import msgspec
import numpy as np
import numpy.typing as npt

from features.baseline import Baseline
from features.compare import Comparison, features_of
from features.measures.machines import measure_machines
from features.measures.steps import measure_steps
from features.measures.table import Measures, RunMemory
from features.measures.timeline import learn_transfers, measure_timeline
from features.records import Collective, Phase
from features.vocabulary import FEATURES
from features.windows import Window

WARMUP_STEPS = 8
"""First steps of a run allocate, compile and fill caches; windows that begin before their end are not judged."""

PAUSES = frozenset({"validation", "checkpoint"})
BUSY_WARMUP_WINDOWS = 2
"""Windows from the first step (or collective) on, its own included, that are not judged: it began in mid-window."""
UNEVEN, LONGEST_WARMUP_STEPS = 8.0, 60
"""A step of eight medians among the first sixty belongs to the warm-up; later ones are judged."""
WARMUP_WINDOWS = 8
"""Where neither log nor timeline tells of steps: windows with telemetry before anything is judged."""


class FeatureFrame(msgspec.Struct):
    """Features of one window: `values` has shape (n_ranks, n_features) in the order of the vocabulary; NaN = missing."""

    index: int
    start: float
    end: float
    until: float
    ranks: list[int]
    values: npt.NDArray[np.float64]
    measures: Measures
    unit_s: float  # the usual step, seconds; NaN where no rhythm is known
    first_step: int | None
    last_step: int | None
    pauses: list[Phase]  # validations and checkpoints that ended in the window
    open_collectives: list[Collective]  # those that never ended, and ranks that joined early
    transport: str | None
    is_warmup: bool
    is_over: bool  # every rank has said that it is done, or nothing happens any more


class Extractor:
    """Makes one frame per window, in order. `learn` is called for windows that were judged healthy, and only for them."""

    def __init__(self, memory: RunMemory | None = None, baseline: Baseline | None = None) -> None:
        self.memory = RunMemory() if memory is None else memory
        self.baseline = Baseline() if baseline is None else baseline

    def frame(self, window: Window) -> FeatureFrame:
        """Features of the next window; depends on nothing later than the window."""
        memory = self.memory
        is_warmup = not self._is_warm(window)
        self._look_around(window)
        now = Measures(ranks=list(memory.ranks))
        measure_steps(window, memory, now)
        measure_timeline(window, memory, now)
        measure_machines(window, memory, now)
        comparison = Comparison(now, self.baseline, memory)
        columns = features_of(comparison)
        values = np.column_stack([columns[f.name] for f in FEATURES]) if memory.ranks else np.empty((0, len(FEATURES)))
        steps = [s.step for s in window.steps]
        return FeatureFrame(
            index=window.index,
            start=window.start,
            end=window.end,
            until=window.until,
            ranks=now.ranks,
            values=values,
            measures=now,
            unit_s=comparison.unit_s,
            first_step=min(steps, default=None),
            last_step=max(steps, default=None),
            pauses=[p for p in window.phases if p.kind in PAUSES],
            open_collectives=[c for c in window.collectives if c.end is None or c.op == "join"],
            transport=next((c.transport for c in window.collectives if c.transport is not None), None),
            is_warmup=is_warmup,
            is_over=memory.is_over(),
        )

    def learn(self, window: Window, frame: FeatureFrame) -> None:
        """Add a healthy window to the run's past."""
        self.baseline.add(frame.measures)
        learn_transfers(window, self.memory)

    def _is_warm(self, window: Window) -> bool:
        """The first steps lie behind this window: by the log's count, else the timeline's, else by time alone."""
        memory = self.memory
        memory.windows_seen += 1 if window.processes or window.steps or window.collectives else 0
        if memory.origin_step is None:
            memory.origin_step = min((s.step for s in window.steps), default=None)
        if memory.first_busy_window is None and (window.steps or window.collectives):
            memory.first_busy_window = window.index
            self.baseline.series.clear()  # a long start, if it was learned from, is no past to measure training against
        if memory.first_busy_window is not None and window.index < memory.first_busy_window + BUSY_WARMUP_WINDOWS:
            return False
        if not self._has_settled(window):
            return False
        if memory.last_step and memory.origin_step is not None:
            return min(memory.last_step.values()) - memory.origin_step >= WARMUP_STEPS
        if memory.uses:
            return max(memory.uses.values()) >= WARMUP_STEPS
        return memory.windows_seen > WARMUP_WINDOWS

    def _has_settled(self, window: Window) -> bool:
        """Steps have been even for a while: a long one among the first (caches, compilation) prolongs the warm-up."""
        memory = self.memory
        if memory.origin_step is None or min(memory.last_step.values(), default=0) - memory.origin_step > LONGEST_WARMUP_STEPS:
            return True
        durations = [s.duration_s for s in window.steps if s.duration_s is not None]
        if durations and max(durations) > UNEVEN * statistics.median(durations):
            memory.settles_at = window.index + 1
        return window.index >= memory.settles_at

    def _look_around(self, window: Window) -> None:
        """Ranks, nodes and settings that this window tells about."""
        memory = self.memory
        for info in window.info:
            if info.world_size is not None:
                memory.world_size = max(info.world_size, memory.world_size or 0)
            memory.nodes.update(info.nodes)
            memory.settings.update(info.settings)
        for p in window.processes:  # a sampler that watches several hosts' ranks knows less than the ranks themselves
            if p.node is not None:
                memory.nodes.setdefault(p.rank, p.node)
        memory.see_ranks(range(memory.world_size or 0))
        memory.see_ranks(s.rank for s in window.steps)
        memory.see_ranks(p.rank for p in window.processes)
        memory.see_ranks(t.rank for c in window.collectives for t in c.ready)
        memory.see_ranks(c.rank for c in window.collectives if c.rank is not None)
        if not memory.ranks and window.collectives:
            memory.see_ranks([0])  # the coordinator writes the timeline: one rank at least
