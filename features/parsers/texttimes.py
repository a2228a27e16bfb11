"""Gives every record of a text log a time, also where the line, or the whole file, has none."""

from __future__ import annotations

import math

from msgspec.structs import replace

from features.records import Log, Phase, RunInfo, Step

Timed = Step | Phase | RunInfo | Log

HELD_MAX = 100_000  # records held until a file shows its first time; beyond it they are let go with times from 0
STEP_S = 1.0  # stands for the duration of a step where neither clock nor duration is known


class Timekeeper:
    """A line without time takes the file's last one; a rank's steps go on from each other.

    Records before the first time in the file are held back: they get times counted backwards from it. In a file
    without any time they count from 0, and `absolute` stays False.
    """

    def __init__(self) -> None:
        self.now: float | None = None  # the last time read in the file
        self.absolute = False
        self._ends: dict[int, tuple[int, float]] = {}  # rank -> its last step and when that ended
        self._held: list[Timed] = []
        self._virtual = 0.0

    def clock(self, ts: float) -> list[Timed]:
        """A line has its own time; records that waited for one come out."""
        first, self.now = self.now is None, ts
        if not first:
            return []
        shift = ts - self._virtual
        self._ends.clear()
        held, self._held = self._held, []
        return [record if record.ts is None else replace(record, ts=record.ts + shift) for record in held]

    def step(self, rank: int, step: int, ts: float | None, duration: float | None) -> float:
        """When `step` of `rank` ended."""
        if ts is None:
            ts = self._estimate(rank, step, duration)
        self._ends[rank] = (step, ts)
        return ts

    def _estimate(self, rank: int, step: int, duration: float | None) -> float:
        floor = 0.0 if self.now is None else self.now
        before_step, before = self._ends.get(rank, (step - 1, floor))
        each = duration if duration is not None else STEP_S if self.now is None else 0.0
        first = rank not in self._ends and self.now is not None
        ts = before + each * max(1, step - before_step)
        if first or not math.isfinite(ts):  # a line may claim any duration, even one that no clock can hold
            ts = floor
        ts = max(floor, ts)
        if self.now is None:
            self._virtual = max(self._virtual, ts)
        return ts

    def moment(self, ts: float | None) -> float:
        """When something other than a step happened."""
        if ts is not None:
            return ts
        return self._virtual if self.now is None else self.now

    def settle(self, record: Timed) -> list[Timed]:
        """Let `record` out, or hold it until the file shows a time; messages wait only behind steps, to keep order."""
        if self.now is not None or (isinstance(record, Log) and not self._held):
            return [record]
        if isinstance(record, Log) and record.ts is None and self._ends:
            record = replace(record, ts=self._virtual)
        self._held.append(record)
        return [] if len(self._held) < HELD_MAX else self.finish()

    def finish(self) -> list[Timed]:
        """Records of a file that has no time at all."""
        held, self._held = self._held, []
        return held
