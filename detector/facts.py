"""Facts: hard evidence that never waits for a model or a gate, such as a rank's exit, an exception or a loss of NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from detector.fact import Fact, Role
from detector.facts_gpu import GpuFacts
from detector.facts_logs import LogFacts
from detector.facts_net import NetFacts
from detector.facts_ranks import StoppedRanks
from detector.pace import PaceWatch
from features.measures.machines import GONE
from features.measures.table import RunMemory
from features.windows import Window

ALONE_S = 1.0
"""A process must be gone this long while others live: ranks of a finished job leave within a fraction of it."""


class FactFinder:
    """Finds the facts of each window; remembers what one window alone cannot tell."""

    def __init__(self, known: Sequence[Fact] = ()) -> None:
        """`known`: facts of the whole run, found before its windows; each is given with the window of its time."""
        self._nonfinite: set[int] = set()
        self._told_gone: set[int] = set()
        self._others = (LogFacts(), GpuFacts(), NetFacts(), StoppedRanks(), PaceWatch())
        self._known = known

    def of(self, window: Window, memory: RunMemory) -> list[Fact]:
        """Facts of this window, earliest first."""
        found = [fact for finder in self._others for fact in finder.of(window, memory)]
        found += [f for f in self._known if window.start <= f.ts < window.end]
        found += [*self._numbers(window), *self._gone(window, memory), *_ends(window)]
        return sorted(found, key=lambda f: (f.ts, f.name, f.ranks, f.text))

    def _numbers(self, window: Window) -> Iterator[Fact]:
        """The first non-finite loss of each rank; the lowest step is the root, the others got it by averaging."""
        for s in sorted(window.steps, key=lambda s: (s.step, s.ts, s.rank)):
            if s.loss is None or math.isfinite(s.loss) or s.rank in self._nonfinite:
                continue
            role: Role = "cascade" if self._nonfinite else "root"
            self._nonfinite.add(s.rank)
            text = f"rank {s.rank}: loss is {s.loss} in step {s.step}"
            yield Fact(ts=s.ts, name="loss_nan", role=role, channel="numbers", text=text, ranks=(s.rank,), source=s.source)

    def _gone(self, window: Window, memory: RunMemory) -> Iterator[Fact]:
        """A process that is gone while others of the job live on."""
        self._told_gone &= set(memory.gone)  # a rank that was restarted may die again
        alive = {p.rank: p.ts for p in window.processes if p.status is not None and p.status not in GONE}
        for rank, since in sorted(memory.gone.items()):
            if rank in self._told_gone or rank in memory.finished:
                continue
            if any(ts >= since + ALONE_S for r, ts in alive.items() if r != rank):
                role: Role = "cascade" if self._told_gone else "root"
                self._told_gone.add(rank)
                text = f"the process of rank {rank} is gone while others of the job live on"
                yield Fact(ts=since, name="process_gone", role=role, channel="pace", text=text, ranks=(rank,), kind="telemetry")


def _ends(window: Window) -> Iterator[Fact]:
    for p in window.phases:
        if p.kind == "exhausted" and p.rank is not None:
            text = f"rank {p.rank} has no more data at step {p.step}"
            yield Fact(ts=p.ts, name="log_exhausted", role="root", channel="pace", text=text, ranks=(p.rank,), source=p.source)
