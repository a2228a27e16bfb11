"""Sums up the cycle marks of a Horovod timeline, second by second of event time."""

from __future__ import annotations

import math
from bisect import bisect_left
from operator import sub
from statistics import median

from features.parsers.timeline_state import MICROS
from features.records import Cycles


class CycleMeter:
    """Collects CYCLE_START marks; a second is told when a mark of another second comes, or at the end."""

    def __init__(self, file: str, epoch_us: float = 0.0) -> None:
        """`epoch_us` is added to the file's times."""
        self._file, self._epoch_us = file, epoch_us
        self._until = -math.inf  # end of the current second, in the file's microseconds
        self.last: float | None = None
        self._count = 0
        self._gaps: list[float] = []

    def went_back(self, ts: float) -> bool:
        """Whether a mark at `ts` would lie before the last one."""
        return self.last is not None and ts < self.last

    def add(self, ts: float) -> Cycles | None:
        """Take a mark; the record of the second before, if this mark closes it."""
        last = self.last
        back = last is not None and ts < last
        done = None
        if back or ts >= self._until:
            done = self.close()
            self._until = (math.floor((self._epoch_us + ts) / MICROS) + 1) * MICROS - self._epoch_us
        if last is not None and not back:
            self._gaps.append(ts - last)
        self.last = ts
        self._count += 1
        return done

    def extend(self, marks: list[int]) -> list[tuple[int, Cycles]]:
        """Take marks in order of time, none before the last; each record with the number of the mark that closes it."""
        done = []
        start = 0
        while start < len(marks):
            if marks[start] >= self._until:
                closed = self.add(marks[start])
                if closed is not None:
                    done.append((start, closed))
                start += 1
            stop = bisect_left(marks, self._until, start)
            if stop > start:
                run = [self.last, *marks[start:stop]] if self.last is not None else marks[start:stop]
                self._gaps += map(sub, run[1:], run)
                self._count += stop - start
                self.last = marks[stop - 1]
                start = stop
        return done

    def close(self) -> Cycles | None:
        """The record of the current second, if it has any mark."""
        if self._count == 0 or self.last is None:
            return None
        done = Cycles(
            ts=(self._epoch_us + self.last) / MICROS,
            count=self._count,
            median_gap_s=median(self._gaps) / MICROS if self._gaps else None,
            max_gap_s=max(self._gaps) / MICROS if self._gaps else None,
            source=self._file,
        )
        self._count, self._gaps = 0, []
        return done
