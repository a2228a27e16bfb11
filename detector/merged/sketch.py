"""Keeps of the finished collectives of a timeline what aligning and planning need, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from detector.merged.sampling import weight_of_collective
from features.records import Collective, Record

ENDS = 2000
"""Ends kept of a tensor: as many as are matched with steps when clocks are aligned."""
NAMES = 2000
"""Tensors looked at. A name that first comes after so many others is made up for one use and marks no rhythm."""


class Uses:
    """How often a tensor was used, and when it was done: the first times, and the last one."""

    __slots__ = ("count", "ends", "last")

    def __init__(self) -> None:
        self.count, self.ends, self.last = 0, array("d"), 0.0

    def add(self, end: float) -> None:
        """It was done once more."""
        self.count += 1
        self.last = end
        if len(self.ends) < ENDS:
            self.ends.append(end)


class Sketch:
    """Takes records as a parser makes them; times are those of the file."""

    def __init__(self) -> None:
        self.collectives = self.weight = 0  # how many, and how many events draw them
        self.first: float | None = None
        self.last: float | None = None
        self.ranks: set[int] = set()
        self._uses: dict[str, Uses] = {}

    def without_finished(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that have to be kept."""
        for record in records:
            if isinstance(record, Collective) and record.end is not None:
                self._add(record, record.end)
            else:
                yield record

    def stand_ins(self) -> list[Record]:
        """Few records that alignment takes for all: the ends of the most used tensor, and the first moment."""
        if self.first is None:
            return []
        moment: Record = Collective(ts=self.first, tensor="", op="")
        name, uses = max(self._uses.items(), key=lambda item: item[1].count)
        ends = [*uses.ends, *([uses.last] if uses.count > len(uses.ends) else [])]
        return [moment, *(Collective(ts=end, tensor=name, op="", end=end) for end in ends)]

    def _add(self, record: Collective, end: float) -> None:
        self.collectives += 1
        self.weight += weight_of_collective(record)
        self.first = record.ts if self.first is None else min(self.first, record.ts)
        self.last = end if self.last is None else max(self.last, end)
        self.ranks.update(r.rank for r in record.ready)
        if record.rank is not None:
            self.ranks.add(record.rank)
        uses = self._uses.get(record.tensor)
        if uses is None and len(self._uses) < NAMES:
            uses = self._uses[record.tensor] = Uses()
        if uses is not None:
            uses.add(end)
