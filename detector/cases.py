"""Cases: incidents in the making. A gate of continuity turns verdicts into cases; hard facts open them at once."""

from __future__ import annotations

import bisect

import msgspec

from detector.fact import Fact
from detector.verdicts import WindowVerdict
from features.extract import FeatureFrame
from features.vocabulary import Channel

GATE_OF, GATE_NEEDS = 3, 2
"""A channel must be unusual in 2 of 3 consecutive windows: chance crosses a limit once, a fault stays."""
STAYS_OF, STAYS_NEEDS = 5, 4
"""Or stay near its limit in 4 of 5: on healthy recorded runs the fourth of five scores never came near that (1.9 of 2.3)."""
QUIET_WINDOWS = 5
"""Usual windows after which a case is over; a fault that comes and goes within this is one case."""
AFTERMATH_S = 30.0
"""Facts this long after a case's last window still belong to it: launchers report a death 10 s late, stall warnings and
communication libraries later still."""


Judged = tuple[FeatureFrame, WindowVerdict]


class Case(msgspec.Struct):
    """What is known of one incident: its unusual windows, in order, and its facts, earliest first."""

    channel: Channel
    frames: list[FeatureFrame] = []
    verdicts: list[WindowVerdict] = []
    facts: list[Fact] = []
    quiet: int = 0
    is_open: bool = True
    recurs: int = 0  # how many like cases came at even distances

    @property
    def start(self) -> float:
        """When it began: the first unusual window or the first root fact."""
        times = [f.start for f in self.frames[:1]] + [f.ts for f in self.facts if f.role == "root"]
        return min(times or [f.ts for f in self.facts])

    @property
    def last(self) -> float:
        """The end of the last unusual window, or the last fact, or until when a fact holds."""
        return max([f.end for f in self.frames[-1:]] + [f.ts if f.until is None else f.until for f in self.facts])


class CaseTracker:
    """Follows the windows of one run and keeps its cases, at most one open per channel."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._recent: dict[Channel, list[Judged | None]] = {}

    def add(self, frame: FeatureFrame, verdict: WindowVerdict, facts: list[Fact]) -> None:
        """Take the next window: its frame, its verdict and the facts in it."""
        for channel in ("pace", "numbers", "memory"):
            self._gate(channel, frame, verdict)
        for fact in facts:
            self._attach(fact)

    def finish(self) -> list[Case]:
        """All cases in order of their start; those of the last windows stay open."""
        return sorted(self.cases, key=lambda c: (c.start, c.channel))

    def _gate(self, channel: Channel, frame: FeatureFrame, verdict: WindowVerdict) -> None:
        is_high = verdict.of(channel) is not None
        recent = self._recent.setdefault(channel, [])
        recent.append((frame, verdict) if is_high else None)
        del recent[:-STAYS_OF]
        case = self._open_case(channel)
        if case is None and (pairs := _passed(channel, recent)):
            self.cases.append(Case(channel=channel, frames=[f for f, _ in pairs], verdicts=[v for _, v in pairs]))
        elif case is not None and is_high:
            case.frames.append(frame)
            case.verdicts.append(verdict)
            case.quiet = 0
        elif case is not None and not frame.is_warmup and frame.end > case.last:
            case.quiet += 1
            case.is_open = case.quiet < QUIET_WINDOWS

    def _open_case(self, channel: Channel) -> Case | None:
        return next((c for c in reversed(self.cases) if c.channel == channel and c.is_open), None)

    def _attach(self, fact: Fact) -> None:
        """To the open case of its channel, or one it may be the aftermath of; else a hard fact makes its own."""
        case = self._open_case(fact.channel)
        if case is None:
            recent = [c for c in self.cases if c.channel == fact.channel or fact.role == "cascade"]
            case = next((c for c in reversed(recent) if fact.ts <= c.last + AFTERMATH_S), None)
        if case is None and fact.hard and fact.role != "context":
            case = Case(channel=fact.channel)
            self._adopt_recent(case)
            self.cases.append(case)
        if case is not None:  # in order of time: that a process is gone is only known a while after
            bisect.insort(case.facts, fact, key=lambda f: f.ts)

    def _adopt_recent(self, case: Case) -> None:
        """Unusual windows just before a fact belong to it, though the gate had not opened yet."""
        recent = self._recent.get(case.channel, [])[-GATE_OF:]
        pairs = [r for r in recent if r is not None and case.channel in r[1].channels]
        case.frames, case.verdicts = [f for f, _ in pairs], [v for _, v in pairs]


def _passed(channel: Channel, recent: list[Judged | None]) -> list[Judged]:
    """The windows that open a case: unusual ones, or enough that stay near the limit; none where neither gate is passed."""
    near = [r for r in recent[-GATE_OF:] if r is not None]  # the window in which a fault begins is often only near
    if sum(channel in verdict.channels for _, verdict in near) >= GATE_NEEDS:
        return near
    high = [r for r in recent if r is not None]
    return high if len(high) >= STAYS_NEEDS else []
