"""Decides how much of a run is drawn when it would be too much, and picks it evenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

import msgspec

from features.records import Collective, Step

MAX_EVENTS = 1_000_000
"""Events drawn unless told otherwise: what the viewers still move smoothly in a browser."""
COLLECTIVES_SHARE = Fraction(1, 4)
"""Part of the room that collectives keep even where steps and samples alone are too many."""
PHASES = ("data_s", "forward_s", "backward_s", "sync_s", "optimizer_s")
"""Parts of a step in the order in which they are done."""


def weight_of_collective(record: Collective) -> int:
    """Events that draw a collective: itself, its negotiation and operation inside it, and one per rank that was ready."""
    if record.end is None:
        return 2 + (record.negotiate_s is not None) + len(record.ready)
    return 1 + (record.negotiate_s is not None) + (record.execute_s is not None) + len(record.ready)


def weight_of_step(record: Step) -> int:
    """Events that draw a step: itself and the parts of it that are known."""
    return 1 + sum(getattr(record, name) is not None for name in PHASES)


class Plan(msgspec.Struct, frozen=True):
    """The part of each kind that is drawn; 1 is all of it."""

    collectives: Fraction = Fraction(1)
    others: Fraction = Fraction(1)  # steps and samples

    @property
    def is_whole(self) -> bool:
        """Nothing is left out."""
        return self.collectives == 1 and self.others == 1


def plan(max_events: int, *, fixed: int, collectives: int, others: int) -> Plan:
    """How to stay within `max_events`; the numbers are events, and `fixed` ones are drawn whatever happens.

    Collectives give way first. Only where they would be left with less than a quarter of the room do the others give way too.

    >>> plan(100, fixed=10, collectives=500, others=40)
    Plan(collectives=Fraction(1, 10), others=Fraction(1, 1))
    """
    room = max(max_events - fixed, 0)
    if collectives + others <= room:
        return Plan()
    kept = min(collectives, max(room - others, int(room * COLLECTIVES_SHARE)))
    return Plan(collectives=_part(kept, collectives), others=_part(room - kept, others))


def _part(kept: int, of: int) -> Fraction:
    return Fraction(min(kept, of), of) if of > 0 else Fraction(1)


class Thinner:
    """Lets a part of what comes pass, evenly; never more than that part of what came of any one class."""

    def __init__(self, part: Fraction) -> None:
        """`part` is between 0 and 1."""
        self._up, self._full = part.numerator, part.denominator
        self._owed: Counter[Hashable] = Counter()
        self.seen = self.passed = 0

    def passes(self, of_class: Hashable) -> bool:
        """Whether the next one of this class is drawn. All of a class must make equally many events."""
        self.seen += 1
        if self._up < self._full:
            self._owed[of_class] += self._up
            if self._owed[of_class] < self._full:
                return False
            self._owed[of_class] -= self._full
        self.passed += 1
        return True
