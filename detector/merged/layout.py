"""Where things are drawn: a process per rank and node, threads inside it, and lanes for what overlaps."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator

from detector.merged.writer import Event

INCIDENTS, COORDINATOR, JOB = 1, 2, 3
"""Processes of their own, above the ranks. Not 0: Perfetto takes that for the idle process of a kernel."""
FIRST_RANK = 4
THREADS = 1000
"""Threads of a process have numbers of their own from here on: viewers want them unique in a whole trace."""
SLOTS = {"steps": 1, "readiness": 2, "messages": 3, "incidents": 10, "phases": 10, "collectives": 100}
"""Place of each kind of thread in its process; the last ones have lanes."""
MOST_LANES = {"incidents": 80, "phases": 80, "collectives": 900}
"""Beside each other in one process: here the slots end. Some hundred tensors may wait at once for a rank that is lost."""


class Lanes:
    """Finds a place for spans that overlap, such that none overlap in one lane; viewers drop what does."""

    def __init__(self, most: int) -> None:
        """`most`: how many lanes there may be."""
        self._ends: list[tuple[int, int]] = []  # end of the last span, lane
        self._count, self._most = 0, most

    def place(self, start: int, end: int) -> int | None:
        """The lane for a span; None when all are taken. In order of end it uses as few lanes as there are."""
        at = bisect_right(self._ends, (start, self._most)) - 1
        if at >= 0:
            _, lane = self._ends.pop(at)
        elif self._count < self._most:
            lane, self._count = self._count, self._count + 1
        else:
            return None
        insort(self._ends, (end, lane))
        return lane


class Layout:
    """Numbers of processes and threads; what is used for the first time is announced to the viewer."""

    def __init__(self, ranks: Iterable[int], nodes: Iterable[str], node_of: dict[int, str]) -> None:
        """All ranks and nodes of the run, and which rank ran where."""
        self._ranks = {rank: FIRST_RANK + i for i, rank in enumerate(sorted(ranks))}
        self._nodes = {node: FIRST_RANK + len(self._ranks) + i for i, node in enumerate(sorted(nodes))}
        self._names = {INCIDENTS: "incidents", COORDINATOR: "coordinator", JOB: "job"}
        self._names |= {pid: _rank_name(rank, node_of.get(rank)) for rank, pid in self._ranks.items()}
        self._names |= {pid: f"node {node}" for node, pid in self._nodes.items()}
        self._announced: set[tuple[int, int]] = set()
        self._news: list[Event] = []

    def rank(self, rank: int) -> int:
        """The process of a rank."""
        return self._process(self._ranks[rank])

    def node(self, node: str) -> int:
        """The process of a node."""
        return self._process(self._nodes[node])

    def writer(self, rank: int | None, node: str | None) -> int:
        """The process of whoever said something."""
        if rank is not None:
            return self.rank(rank)
        return self.node(node) if node is not None else self._process(JOB)

    def coordinator(self) -> int:
        """The process of the collectives as rank 0 sees them."""
        return self._process(COORDINATOR)

    def incidents(self) -> int:
        """The process of the incidents."""
        return self._process(INCIDENTS)

    def thread(self, pid: int, kind: str, lane: int = 0) -> int:
        """The thread of a process for a kind of thing."""
        slot = SLOTS[kind] + lane
        tid = pid * THREADS + slot
        if (pid, tid) not in self._announced:
            self._announced.add((pid, tid))
            name = kind if lane == 0 else f"{kind} {lane + 1}"
            self._news.append(_meta("thread_name", pid, tid, {"name": name}))
            self._news.append(_meta("thread_sort_index", pid, tid, {"sort_index": slot}))
        return tid

    def news(self) -> Iterator[Event]:
        """Announcements since the last call: to be written before what they announce."""
        news, self._news = self._news, []
        yield from news

    def _process(self, pid: int) -> int:
        if (pid, pid) not in self._announced:
            self._announced.add((pid, pid))
            self._news.append(_meta("process_name", pid, pid, {"name": self._names[pid]}))
            self._news.append(_meta("process_sort_index", pid, pid, {"sort_index": pid}))
        return pid


def micros(seconds: float) -> int:
    """Whole microseconds; Horovod counts in these, and whole numbers nest exactly."""
    return round(seconds * 1e6) if math.isfinite(seconds) else 0


def exact_enough(value: float) -> float:
    """Nine digits: bytes of a gigabyte stay exact, and differences of clocks lose their noise."""
    value = float(f"{value:.9g}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _rank_name(rank: int, node: str | None) -> str:
    return f"rank {rank}" if node is None else f"rank {rank} ({node})"


def _meta(name: str, pid: int, tid: int, args: dict[str, str | int]) -> Event:
    return Event(ph="M", ts=0, pid=pid, tid=tid, name=name, args=args)
