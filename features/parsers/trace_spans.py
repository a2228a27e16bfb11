"""Sets of time spans in bounded memory: their union, and how much of a window they cover."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
MAX_SPANS: Final = 1 << 18  # merged spans that are kept: 4 MB
PENDING: Final = 1 << 18  # spans that may wait to be merged
FIRST_GAP: Final = 1.0  # microseconds: gaps that are closed first when there are too many spans


class Edges(NamedTuple):
    """Disjoint spans in order."""

    begin: Vector
    end: Vector


class Spans:
    """Spans in any order. Beyond a number of them the shortest gaps are closed: what is kept then is a little too long."""

    def __init__(self, keep: int = MAX_SPANS) -> None:
        """`keep`: how many merged spans are kept at most."""
        self._keep, self._full = keep, keep + PENDING
        self._begin, self._end = array("d"), array("d")

    def add(self, begin: float, end: float) -> None:
        """Take one span."""
        self._begin.append(begin)
        self._end.append(end)
        if len(self._begin) >= self._full:
            edges = self.edges()
            self._begin, self._end = array("d", edges.begin.tobytes()), array("d", edges.end.tobytes())

    def __bool__(self) -> bool:
        """Whether there is any span."""
        return len(self._begin) > 0

    def edges(self) -> Edges:
        """The union."""
        edges = merged(Edges(np.array(self._begin), np.array(self._end)))
        gap = FIRST_GAP
        while len(edges.begin) > self._keep:
            edges = merged(edges, gap)
            gap *= 2
        return edges


def merged(spans: Edges, gap: float = 0.0) -> Edges:
    """The union, with gaps of at most `gap` closed."""
    if not len(spans.begin):
        return spans
    order = np.argsort(spans.begin, kind="stable")
    begin, end = spans.begin[order], np.maximum.accumulate(spans.end[order])
    first = np.ones(len(begin), bool)
    first[1:] = begin[1:] > end[:-1] + gap
    last = np.append(np.flatnonzero(first)[1:] - 1, len(begin) - 1)
    return Edges(begin[first], end[last])


def union(one: Edges, other: Edges) -> Edges:
    """All of both."""
    return merged(Edges(np.concatenate([one.begin, other.begin]), np.concatenate([one.end, other.end])))


def covered(edges: Edges, begin: Vector, end: Vector) -> Vector:
    """How much of each window from `begin` to `end` the spans cover."""
    return _before(edges, end) - _before(edges, begin)


def _before(edges: Edges, at: Vector) -> Vector:
    if not len(edges.begin):
        return np.zeros(len(at))
    total = np.concatenate([[0.0], np.cumsum(edges.end - edges.begin)])
    index = np.searchsorted(edges.begin, at, side="right")
    over = np.where(index > 0, edges.end[np.maximum(index - 1, 0)] - at, 0.0)
    behind: Vector = total[index] - np.maximum(over, 0.0)
    return behind
