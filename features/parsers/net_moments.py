"""Gathers the readings of one file moment by moment: which of them were taken together, when, and on which node."""

from __future__ import annotations

from typing import NamedTuple

from features.counters import Counters

Values = dict[str, int | float]


class _Place(NamedTuple):
    """Readings of one place become one record; `at` is None unless each reading carries its own time."""

    node: str | None
    device: str
    at: float | None


class Moments:
    """Readings go in one by one; Counters come out once their moment is over.

    A moment is over when a time is read that opens the next one, or when a reading comes that the moment already has.
    """

    def __init__(self, file: str) -> None:
        """`file` is the name to show in `source`."""
        self.absolute = False  # a time was read
        self.node: str | None = None  # of the readings to come
        self.heading: str | None = None  # the interface that a title of the file named last
        self.times = 0  # how many times were read
        self.closed = 0  # how many moments are over
        self._file = file
        self._ts: float | None = None
        self._seen: set[str] = set()
        self._values: dict[_Place, Values] = {}
        self._lines: dict[_Place, int] = {}
        self._names: dict[str | None, str] = {}
        self._done: list[Counters] = []

    def clock(self, ts: float, *, absolute: bool = True) -> None:
        """A time that stands before what was read at it; `absolute`: it is one since the epoch."""
        self.close()
        self._ts = ts
        self.absolute = self.absolute or absolute
        self.times += 1
        self.heading = None

    def stamp(self, ts: float) -> None:
        """The time of the open moment, told among its readings."""
        self._ts, self.absolute = ts, True

    def put(
        self,
        device: str,
        name: str,
        value: int | float,
        line: int,
        *,
        series: str = "",
        add: bool = False,
        at: float | None = None,
    ) -> None:
        """One reading; `at` where it carries its own time.

        `series` tells readings of one name apart: with `add` they make one sum (the cores of a CPU mode), else they are
        the same counter as other tools show it, and the first one stands.
        """
        place = _Place(self.node, device, at)
        reading = f"{place}\0{name}\0{series}"
        if reading in self._seen:
            self.close()
        self._seen.add(reading)
        self.absolute = self.absolute or at is not None
        values = self._values.setdefault(place, {})
        self._lines.setdefault(place, line)
        values[name] = values[name] + value if add and name in values else values.get(name, value)

    def rename(self, old: str | None, new: str) -> None:
        """Tells what the node `old` of the open moment is really called; that may come in its midst."""
        self._names[old] = new

    def close(self) -> None:
        """The open moment is over."""
        merged: dict[_Place, Values] = {}
        for place, values in self._values.items():
            renamed = place._replace(node=self._names.get(place.node, place.node))
            merged[renamed] = merged.get(renamed, {}) | values
            self._lines.setdefault(renamed, self._lines[place])
        for place, values in merged.items():
            ts = self._ts if place.at is None else place.at
            source = f"{self._file}:{self._lines[place]}"
            self._done.append(Counters(ts=ts, node=place.node, device=place.device, values=values, source=source))
        self._values, self._lines, self._seen, self._names, self._ts = {}, {}, set(), {}, None
        self.closed += 1

    def take(self) -> list[Counters]:
        """What became complete since the last call."""
        done, self._done = self._done, []
        return done
