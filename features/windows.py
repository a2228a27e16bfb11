"""Cuts the records of one run into windows of event time, the same for an archive and for a stream."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from features.records import Collective, Cycles, Gpu, Host, Log, Net, Phase, Process, Record, RunInfo, Step

_ENCODER = msgspec.json.Encoder()


def event_time(record: Record) -> float:
    """When a record became true, in seconds since the epoch: the end of what took time, else its own time.

    A message whose line carried no time sorts first (0.0); loaders replace that by the time of its neighbours.
    """
    if isinstance(record, Collective) and record.end is not None:
        return record.end
    return 0.0 if record.ts is None else record.ts


def order_key(record: Record) -> tuple[float, bytes]:
    """A total order that does not depend on the order of arrival."""
    return event_time(record), _ENCODER.encode(record)


class Window(msgspec.Struct, kw_only=True):
    """All telemetry of one run with `start <= event time < end`, each list in event order."""

    index: int  # start / length: windows of one run on any machine have the same numbers
    start: float
    end: float
    until: float  # its end, or the end of the records where they stop within it: silence is counted to here
    info: list[RunInfo] = []
    steps: list[Step] = []
    phases: list[Phase] = []
    collectives: list[Collective] = []
    cycles: list[Cycles] = []
    hosts: list[Host] = []
    processes: list[Process] = []
    gpus: list[Gpu] = []
    nets: list[Net] = []
    logs: list[Log] = []

    @property
    def length_s(self) -> float:
        """Length of the window in seconds."""
        return self.end - self.start

    def is_empty(self) -> bool:
        """No record at all fell into this window."""
        return not any(getattr(self, name) for name in _LISTS.values())


_LISTS: dict[type, str] = {
    RunInfo: "info",
    Step: "steps",
    Phase: "phases",
    Collective: "collectives",
    Cycles: "cycles",
    Host: "hosts",
    Process: "processes",
    Gpu: "gpus",
    Net: "nets",
    Log: "logs",
}


class WindowCutter:
    """Collects records and gives back windows once the watermark has passed their end.

    The watermark is the newest event time seen, less the allowed lateness; it never comes from the wall clock. Windows come
    in order and without holes, so that silence is visible: an empty window is given too. Records behind the last window
    given are counted in `late` and dropped.
    """

    def __init__(self, length_s: float, lateness_s: float = 0.0, longest_gap_s: float = 3600.0) -> None:
        """`longest_gap_s`: a clock jump beyond it starts afresh instead of making a million empty windows."""
        self.length_s, self.lateness_s, self.longest_gap_s = length_s, lateness_s, longest_gap_s
        self.late = 0
        self._open: dict[int, list[Record]] = {}
        self._next: int | None = None
        self._newest = -math.inf

    def add(self, record: Record) -> list[Window]:
        """Take one record; returns the windows that this record's time has closed."""
        at = event_time(record)
        index = math.floor(at / self.length_s)
        if self._next is not None and index < self._next:
            self.late += 1
            return []
        self._open.setdefault(index, []).append(record)
        self._newest = max(self._newest, at)
        return self._close_until(math.floor((self._newest - self.lateness_s) / self.length_s))

    def finish(self) -> list[Window]:
        """The run is over: everything still open."""
        return self._close_until(max(self._open) + 1) if self._open else []

    def _close_until(self, stop: int) -> list[Window]:
        if self._next is None:
            if not self._open or min(self._open) >= stop:
                return []
            self._next = min(self._open)
        out = []
        while self._next < stop:
            if self._next not in self._open and self._gap_is_long(self._next):
                following = min(i for i in self._open if i > self._next)
                if following >= stop:
                    break  # what lies in the gap may still come: it is left once the watermark has passed it
                self._next = following
                continue
            out.append(_window(self._next, self.length_s, self._newest, self._open.pop(self._next, [])))
            self._next += 1
        return out

    def _gap_is_long(self, index: int) -> bool:
        following = min((i for i in self._open if i > index), default=index)
        return (following - index) * self.length_s > self.longest_gap_s


def _window(index: int, length_s: float, newest: float, records: list[Record]) -> Window:
    # Struct defaults that are empty lists are copied by msgspec for each instance.
    end = (index + 1) * length_s
    window = Window(index=index, start=index * length_s, end=end, until=min(end, newest))
    for record in sorted(records, key=order_key):
        getattr(window, _LISTS[type(record)]).append(record)
    return window


def windows(records: Iterable[Record], length_s: float, lateness_s: float = 0.0) -> Iterator[Window]:
    """All windows of `records`.

    >>> [w.index for w in windows([Log(ts=3.0, event="x", text=""), Log(ts=5.5, event="x", text="")], length_s=1.0)]
    [3, 4, 5]
    """
    cutter = WindowCutter(length_s, lateness_s)
    for record in records:
        yield from cutter.add(record)
    yield from cutter.finish()
