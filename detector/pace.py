"""Ranks that go their own pace (no collective makes their step times equal): who turns slow, and from which step on.

The learned models know jobs whose ranks wait for each other. Where each rank's step time is its own, the question is simpler
and is answered here: a rank against its peers, less what has always lain between them. Steady differences are no fault.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Final

import msgspec
import numpy as np

from detector.fact import Fact
from detector.verdicts import ChannelVerdict, Judge, WindowVerdict
from features.extract import FeatureFrame
from features.measures.table import RunMemory, Vector
from features.records import Step
from features.vocabulary import INDEX
from features.windows import Window

LEAST_SHARE: Final = 0.12
"""Usual steps by which a rank's time must have risen over its peers' in the mean of a window."""
LEAST_RATIO: Final = 0.2
"""Share by which a single step must be longer than the rank's usual ratio to its peers; shared clusters sway by 10 %."""
SPREADS: Final = 6.0
"""Robust standard deviations beyond which a value is unusual among its peers or in a rank's own past."""
MAD: Final = 1.4826
"""Median absolute deviation -> standard deviation of a normal distribution."""
PAST: Final = 128
"""Usual steps of a rank that are kept."""
ENOUGH: Final = 16
"""Usual steps needed before a rank is judged; what is usual is taken anew after as many."""
OF: Final = 8
NEEDS: Final = 5
"""A rank is slow when 5 of 8 steps were: a pause of one or two steps is nobody's fault. It is back when 1 of 8 is left."""
OPEN_STEPS: Final = 64
"""Steps that wait for the ranks that have not reported them; then they are judged without."""


def own_pace(judge: Judge) -> Judge:
    """The same judge, which also sees a rank turn slow where each goes its own pace."""

    def judged(frame: FeatureFrame) -> WindowVerdict:
        verdict = judge(frame)
        if "pace" in verdict.channels or not goes_own_pace(frame):
            return verdict
        slow = _slow_ranks(frame)
        return verdict if slow is None else msgspec.structs.replace(verdict, channels={**verdict.channels, "pace": slow})

    return judged


def goes_own_pace(frame: FeatureFrame) -> bool:
    """No rank waits for another within its step."""
    waits = frame.measures.per_rank.get("sync", np.array([]))
    known = waits[np.isfinite(waits)]
    return known.size >= 3 and bool(np.all(known == 0.0))


def _slow_ranks(frame: FeatureFrame) -> ChannelVerdict | None:
    risen = frame.values[:, INDEX["local_vs_past"]]
    known = risen[np.isfinite(risen)]
    if known.size < 3:
        return None
    excess = risen - float(np.median(known))
    limit = max(LEAST_SHARE, SPREADS * MAD * float(np.median(np.abs(excess[np.isfinite(excess)]))))
    rows = [int(i) for i in np.argsort(-np.nan_to_num(excess), kind="stable") if excess[i] > limit]
    if not rows:
        return None
    worst = float(excess[rows[0]])
    return ChannelVerdict(
        score=worst / LEAST_SHARE,
        limit=limit / LEAST_SHARE,
        ranks=tuple(frame.ranks[i] for i in rows),
        features=(("local_vs_past", worst / LEAST_SHARE), ("local_vs_peers", worst / LEAST_SHARE)),
    )


def step_and_usual(frame: FeatureFrame) -> tuple[float, float]:
    """How long a step of the run took in this window, and how long it usually takes, in seconds; NaN = not known.

    The median over ranks; where each goes its own pace that says nothing of one slow rank, and the slowest rank is taken.
    """
    local = frame.measures.per_rank.get("local", np.array([]))
    usual = local - frame.values[:, INDEX["local_vs_past"]] * frame.unit_s if goes_own_pace(frame) else np.array([])
    if not np.isfinite(usual).any():
        return frame.measures.run.get("step", math.nan), frame.unit_s
    return float(np.nanmax(local)), float(np.nanmax(usual))


class _Rank(msgspec.Struct):
    """What is remembered of one rank."""

    past: list[float] = []  # log2 of step time over the median of the others', of steps that were usual
    fresh: int = 0  # usual steps since `middle` and `limit` were taken
    middle: float = 0.0
    limit: float = math.inf  # nothing is unusual before there is a past
    recent: list[tuple[int, float, float]] = []  # the last OF steps: number, end, excess over the past; 0 = usual
    is_slow: bool = False

    def learn(self, ratio: float) -> None:
        """Remember a usual step."""
        self.past = [*self.past[-(PAST - 1) :], ratio]
        self.fresh += 1
        if self.fresh == ENOUGH:
            self.fresh = 0
            self.middle = float(np.median(self.past))
            spread = MAD * float(np.median(np.abs(np.array(self.past) - self.middle)))
            self.limit = max(math.log2(1.0 + LEAST_RATIO), SPREADS * spread)


class PaceWatch:
    """Follows every step of ranks that go their own pace and says at which one a rank turned slow, and was back."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, Step]] = defaultdict(dict)
        self._ranks: dict[int, _Rank] = defaultdict(_Rank)

    def of(self, window: Window, memory: RunMemory) -> list[Fact]:
        """Facts that the steps of this window bring to light."""
        for s in window.steps:
            if s.sync_s == 0.0 and s.duration_s is not None and s.duration_s > 0:
                self._open[s.step].setdefault(s.rank, s)
                self._ranks[s.rank]  # seen: later steps wait for it
        facts: list[Fact] = []
        for step in sorted(self._open):
            if len(self._open[step]) == len(self._ranks) or len(self._open) > OPEN_STEPS:
                facts += self._judge(self._open.pop(step))
        return facts

    def _judge(self, steps: dict[int, Step]) -> list[Fact]:
        """One step of all ranks."""
        if len(steps) < 3:
            return []
        ranks = sorted(steps)
        lasts = np.array([steps[rank].duration_s for rank in ranks], dtype=np.float64)
        facts = []
        for rank, mine, others in zip(ranks, lasts.tolist(), median_of_others(lasts).tolist(), strict=True):
            s, of = steps[rank], self._ranks[rank]
            ratio = math.log2(mine / others)
            excess = ratio - of.middle
            if excess <= of.limit:
                of.learn(ratio)
                excess = 0.0
            of.recent = [*of.recent[-(OF - 1) :], (s.step, s.ts - mine, excess)]
            if (fact := _turn(rank, of, s)) is not None:
                facts.append(fact)
        return facts


def median_of_others(values: Vector) -> Vector:
    """For each value the median of all but itself: one rank's own slowness must not move what it is measured by."""
    n = len(values)
    order = np.argsort(values, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    ascending = values[order]
    below, above = (n - 2) // 2, (n - 1) // 2  # the middle places of n - 1 values
    found: Vector = (ascending[below + (place <= below)] + ascending[above + (place <= above)]) / 2
    return found


def _turn(rank: int, of: _Rank, now: Step) -> Fact | None:
    """The fact that the rank has turned slow, or is back; None while nothing changes."""
    slow = [entry for entry in of.recent if entry[2] > 0]
    if not of.is_slow and len(slow) >= NEEDS:
        of.is_slow = True
        step, begun, _ = slow[0]
        times = 2.0 ** float(np.median([excess for _, _, excess in slow]))
        text = f"rank {rank} turns slow at step {step}: {times:.2f} times its usual pace against its peers, which keep theirs"
        return _fact("one_rank_slow", text, begun, rank, now, hard=True)
    if of.is_slow and len(slow) <= 1:
        of.is_slow = False
        last = max((i for i, entry in enumerate(of.recent) if entry[2] > 0), default=-1)
        step, begun, _ = of.recent[last + 1]
        text = f"rank {rank} is back at its usual pace from step {step} on"
        return _fact("one_rank_slow", text, begun, rank, now, hard=False)
    return None


def _fact(name: str, text: str, ts: float, rank: int, step: Step, *, hard: bool) -> Fact:
    return Fact(
        ts=ts,
        name=name,
        role="root" if hard else "context",
        channel="pace",
        text=text,
        hard=hard,
        ranks=(rank,),
        source=step.source,
        kind="rule",
    )
