"""Gives every record of a text log a time, also where the line, or the whole file, has none."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from features.records import Phase, RunInfo, Step

Timed = TypeVar("Timed", Step, Phase, RunInfo)

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
        self._ends: dict[int, float] = {}  # rank -> end of its last step
        self._held: list[Step | Phase | RunInfo] = []
        self._virtual = 0.0

    def clock(self, ts: float) -> list[Step | Phase | RunInfo]:
        """A line has its own time; records that waited for one come out."""
        first, self.now = self.now is None, ts
        if not first:
            return []
        shift = ts - self._virtual
        self._ends.clear()
        held, self._held = self._held, []
        return [msgspec.structs.replace(record, ts=record.ts + shift) for record in held]

    def step(self, rank: int, ts: float | None, duration: float | None) -> float:
        """When a step of `rank` ended."""
        if ts is None:
            before = self._ends.get(rank, 0.0 if self.now is None else self.now)
            grown = before + (STEP_S if duration is None and self.now is None else duration or 0.0)
            ts = grown if self.now is None else max(self.now, grown if rank in self._ends else self.now)
            self._virtual = max(self._virtual, ts if self.now is None else 0.0)
        self._ends[rank] = ts
        return ts

    def moment(self, ts: float | None) -> float:
        """When something other than a step happened."""
        if ts is not None:
            return ts
        return self._virtual if self.now is None else self.now

    def settle(self, record: Timed) -> list[Step | Phase | RunInfo]:
        """Let `record` out, or hold it until the file shows a time."""
        if self.now is not None:
            return [record]
        self._held.append(record)
        if len(self._held) < HELD_MAX:
            return []
        held, self._held = self._held, []
        return held

    def finish(self) -> list[Step | Phase | RunInfo]:
        """Records of a file that has no time at all."""
        held, self._held = self._held, []
        return held
