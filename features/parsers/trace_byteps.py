"""Communication traces of BytePS (comm.json): each push and pull of a tensor as one worker saw it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import Final

import numpy as np

from features.notices import Notices
from features.parsers.protocol import ParserRow
from features.parsers.trace_event import Event
from features.parsers.trace_json import Scanner
from features.parsers.trace_model import MAX_KEPT, TOO_MANY
from features.parsers.trace_place import rank_of_file, rank_of_folder
from features.parsers.trace_spans import Edges, merged
from features.records import Collective, Record

MICROS: Final = 1e6
PREFIX: Final = "Comm."
WHOLE: Final = "total"  # the tid of a tensor's whole way; others are its partitions
ON_THE_NETWORK: Final = frozenset({"PUSH", "PULL"})
NO_WHOLE: Final = "pushes and pulls of a tensor whose whole is missing were left out"
FOLDER_RANK: Final = "the rank is that of the folder, which older versions number within each machine"

_BYTEPS: Final = re.compile(rb'"(?:pid|name)"\s*:\s*"Comm\.')
_TID: Final = re.compile(rb'"tid"\s*:\s*"(?:total|\d+)"')


def sniff(head: bytes) -> bool:
    """Whether these first bytes are a communication trace of BytePS."""
    return b'"traceEvents"' in head and _BYTEPS.search(head) is not None and _TID.search(head) is not None


class BytePSTrace:
    """Feed it bytes in any chunking; records come out of `finish`, since the parts of a tensor stand apart.

    `execute_s` is the whole way of a tensor, `transfer_s` the time in which any part of it was pushed or pulled.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._scanner = Scanner(file, notices, self)
        self._wholes: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._parts: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._kept = 0
        self._finished = False

    def feed(self, data: bytes) -> list[Record]:
        """Nothing yet."""
        self._scanner.feed(data)
        return []

    def finish(self) -> list[Record]:
        """All records of the trace, once."""
        if self._finished:
            return []
        self._finished = True
        self._scanner.finish()
        rank = rank_of_file(self._file)
        if rank is None and (rank := rank_of_folder(self._file)) is not None:
            self._notices.add("info", FOLDER_RANK, file=self._file)
        records = [c for tensor in sorted(self._wholes) for c in self._collectives(tensor, rank)]
        alone = sum(len(parts) for tensor, parts in self._parts.items() if tensor not in self._wholes)
        if alone:
            self._notices.add("warning", NO_WHOLE, file=self._file, count=alone)
        records.sort(key=lambda c: (c.ts, c.tensor))
        return [*records]

    def about(self, key: str, raw: bytes) -> None:
        """Nothing stands beside the events."""

    def events(self, events: list[Event]) -> None:
        """Take these events."""
        for e in events:
            if e.ph != "X" or e.ts is None or e.dur is None or e.dur < 0 or not e.name.startswith(PREFIX):
                continue
            tensor, _, stage = e.name.rpartition(".")
            if e.tid == WHOLE:
                self._keep(self._wholes[e.name.removeprefix(PREFIX)], e.ts, e.dur)
            elif stage in ON_THE_NETWORK:
                self._keep(self._parts[tensor.removeprefix(PREFIX)], e.ts, e.dur)

    def _keep(self, spans: list[tuple[float, float]], ts: float, dur: float) -> None:
        self._kept += 1
        if self._kept <= MAX_KEPT:
            spans.append((ts, ts + dur))
        else:
            self._notices.add("warning", TOO_MANY, file=self._file)

    def _collectives(self, tensor: str, rank: int | None) -> list[Collective]:
        wholes = sorted(self._wholes[tensor])
        begins = [begin for begin, _ in wholes]
        within: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for part in self._parts.get(tensor, ()):
            within[bisect_right(begins, part[0]) - 1].append(part)
        return [
            Collective(
                ts=begin / MICROS,
                tensor=tensor,
                op="allreduce",  # what a push and a pull come to
                execute_s=(end - begin) / MICROS,
                transfer_s=_covered(within[i]),
                end=end / MICROS,
                transport="byteps",
                rank=rank,
                source=f"{self._file}:{tensor}",
            )
            for i, (begin, end) in enumerate(wholes)
        ]


def _covered(spans: list[tuple[float, float]]) -> float | None:
    """Seconds in which any of the spans (microseconds) lasts."""
    if not spans:
        return None
    table = np.array(spans)
    union = merged(Edges(table[:, 0], table[:, 1]))
    return float((union.end - union.begin).sum()) / MICROS


BYTEPS: Final = ParserRow("trace", sniff, BytePSTrace)
