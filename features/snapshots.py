"""Joins counters that were read at different moments, perhaps into different files, into the rates between them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from features.counters import BENCHMARK, BYTES, MACHINE, NOMINAL_S, Counters, is_counted
from features.growth import Differences, Span, host_between, net_between, out_of_memory
from features.notices import Notices
from features.records import Net, Record

if TYPE_CHECKING:
    from features.rundir import SourceFile

NOWHERE = "localhost"
"""Node of counters that come from one place that nobody named."""

UNTIMED = f"snapshots without times: rates are as if {NOMINAL_S:.0f} s lay between them; ratios hold, absolute rates do not"
NOT_LATER = "time of a snapshot is not later than the one before, no rates for that interval"
ALONE = "errors were counted at some time in the past; only a second snapshot of the same device tells whether they grow"

_ORDER = re.compile(
    r"(?<![A-Za-z\d])(?:(?P<time>\d{4}-?\d\d-?\d\d(?:[T_ -]?\d\d[-:_.]?\d\d(?:[-:_.]?\d\d)?Z?)?|\d{6,19})"
    r"|(?P<first>before|pre|start|begin|first|old|baseline|initial)|(?P<last>after|post|end|last|new|final)"
    r"|(?:t|scrape|sample|snapshot|snap|poll|read|step|round|seq)[-_.]?(?P<number>\d{1,9}))(?![A-Za-z\d])",
    re.IGNORECASE,
)
"""What tells the order of files that are alike otherwise. A bare small number does not: it may be that of a node."""


class Name(NamedTuple):
    """What the name of a file says of the snapshots in it."""

    series: str  # equal for files that differ in their order only
    order: tuple[tuple[int, int], ...]
    label: str  # what stands for the node where nobody named it


def read_name(name: str) -> Name:
    """Part a file's name into its series and its order.

    >>> read_name("gpu07.t1.prom").series == read_name("gpu07.t0.prom").series
    True
    >>> read_name("before/gpu07.txt").order < read_name("after/gpu07.txt").order
    True
    >>> read_name("gpu-1.prom").series == read_name("gpu-2.prom").series
    False
    """
    path = PurePosixPath(name.removesuffix(".gz"))
    suffix = "" if _ORDER.search(path.suffix) else path.suffix
    text = path.as_posix().removesuffix(suffix)
    order = tuple(_place(match) for match in _ORDER.finditer(text))
    parts = [re.sub(r"([._-])[._-]+", r"\1", _ORDER.sub("", part)).strip("._-") for part in text.split("/")]
    kept = [part for part in parts if part]
    return Name("/".join(kept) + suffix, order, kept[-1] if kept else "")


def _place(match: re.Match[str]) -> tuple[int, int]:
    if match["first"] is not None:
        return -1, 0
    if match["last"] is not None:
        return 1, 0
    return 0, int(re.sub(r"\D", "", match["time"] or match["number"]))


class _Snapshot(NamedTuple):
    counters: Counters
    file: int
    row: int
    name: Name


def join_snapshots(files: list[SourceFile], notices: Notices) -> None:
    """Replace the Counters among the records of `files`, in place, by the Host, Net and Log records that follow from them.

    Two snapshots belong together if files of one kind hold them of the same device of the same node; where nobody names
    the node, the names of the files may differ in their order only (t0/t1, before/after, times). A record goes into the
    file of its later snapshot. Without times the rates are nominal, and `interval_s` of the record is None.
    """
    series: dict[tuple[str, str, str, bool], list[_Snapshot]] = defaultdict(list)
    lone = len({read_name(f.name).series for f in files for r in f.records if isinstance(r, Counters) and r.node is None}) < 2
    for number, f in enumerate(files):
        name = read_name(f.name)
        for index, c in enumerate(r for r in f.records if isinstance(r, Counters)):
            placed = msgspec.structs.replace(c, node=(NOWHERE if lone else name.label or NOWHERE) if c.node is None else c.node)
            key = (f.kind, c.node or f"?{name.series}", c.device, c.ts is not None)
            series[key].append(_Snapshot(placed, number, index, name))
    newest = max((r.ts for f in files for r in f.records if not isinstance(r, Counters) and r.ts is not None), default=None)
    made: dict[int, list[Record]] = defaultdict(list)
    for _, members in sorted(series.items()):
        joiner = SnapshotJoiner(notices)
        for k, snapshot in enumerate(_ordered(members)):
            nominal = k * NOMINAL_S if newest is None else newest
            made[snapshot.file] += joiner.add(snapshot.counters, nominal_ts=nominal)
        joiner.finish()
    for number, f in enumerate(files):
        f.records = [r for r in f.records if not isinstance(r, Counters)] + made[number]


def _ordered(members: list[_Snapshot]) -> list[_Snapshot]:
    """In order of time; without times as the names of their files say, or else so that what was transferred rises."""
    if members[0].counters.ts is not None:
        return sorted(members, key=lambda s: (s.counters.ts or 0.0, s.name.order, s.file, s.row))
    transferred: dict[int, float] = {}
    for s in members:
        transferred.setdefault(s.file, sum(s.counters.values.get(name, 0) for name in BYTES))
    return sorted(members, key=lambda s: (s.name.order, transferred[s.file], s.file, s.row))


class SnapshotJoiner:
    """Takes the snapshots of devices in their order and gives back what lies between each and the one before it.

    The first snapshot of a device gives only what is true at one moment: memory, load, whether the link is up.
    """

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._before: dict[tuple[str, str], Counters] = {}
        self._alone: dict[tuple[str, str], Counters] = {}

    def add(self, counters: Counters, *, nominal_ts: float = 0.0) -> list[Record]:
        """The records that this snapshot completes; `nominal_ts` is their time if the snapshot has none."""
        key = (counters.node or NOWHERE, counters.device)
        if BENCHMARK in counters.values:
            ts, rate = nominal_ts if counters.ts is None else counters.ts, counters.values[BENCHMARK]
            return [Net(ts=ts, node=key[0], device=counters.device, tx_bytes_per_s=float(rate), source=counters.source)]
        before = self._before.get(key)
        self._before[key] = counters
        if before is None:
            self._alone[key] = counters
        else:
            self._alone.pop(key, None)
        span = Span(key[0], nominal_ts if counters.ts is None else counters.ts, self._interval(before, counters))
        if before is not None and counters.ts is not None and span.interval_s is None:
            before = None  # the time went back
        records = self._machine(span, before, counters) if counters.device == MACHINE else self._device(span, before, counters)
        return [r for r in records if r is not None]

    def finish(self) -> None:
        """Say which errors nobody can date, since their device was seen once only."""
        for counters in self._alone.values():
            if any(value > 0 for name, value in counters.values.items() if is_counted(name)):
                self._note("info", ALONE, counters)

    def _interval(self, before: Counters | None, now: Counters) -> float | None:
        if before is None:
            return None
        if before.ts is None or now.ts is None:
            self._note("info", UNTIMED, now)
            return None
        interval = round(now.ts - before.ts, 6)
        if interval <= 0:
            self._note("warning", NOT_LATER, now)
            return None
        return interval

    def _machine(self, span: Span, before: Counters | None, now: Counters) -> list[Record | None]:
        if before is None:
            return [host_between(span, None, now.values, now.source)]
        differences = Differences(before, now)
        host = host_between(span, differences, now.values, now.source)
        killed = out_of_memory(span, differences, now.source)
        self._tell(differences, now)
        return [host, killed]

    def _device(self, span: Span, before: Counters | None, now: Counters) -> list[Record | None]:
        if before is None:
            up = now.values.get("is_up")
            known = Net(ts=span.ts, node=span.node, device=now.device, is_up=up != 0, source=now.source)
            return [None if up is None else known]
        differences = Differences(before, now)
        record = net_between(span, differences, now.device, now.source)
        self._tell(differences, now)
        return [record]

    def _tell(self, differences: Differences, now: Counters) -> None:
        for _, what in differences.oddities:
            self._note("warning", what, now)

    def _note(self, level: str, text: str, at: Counters) -> None:
        file, _, line = at.source.rpartition(":")
        self._notices.add("warning" if level == "warning" else "info", text, file=file, place=f"line {line}")
