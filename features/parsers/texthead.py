"""Takes the head off a line of text: prefixes, times and the rank that the line names, in whatever order they come."""

from __future__ import annotations

import re
from typing import NamedTuple

from features.parsers.clocks import Clock, Stamp
from features.parsers.prefixes import Peeled, Piece, peel, peel_label

HEADS_MAX = 8  # more in front of one line are text, not a head
SAME_MOMENT_S = 1.5  # a platform's time and the program's own this near tell the same moment, the inner one better

_RANK = re.compile(
    r"\[rank[= ](?P<a>\d{1,7})(?: host=(?P<host>[^\]\s]*))?\] ?"
    r"|\[(?:PG [^\]]*?)?Rank (?P<b>\d{1,7})\]"
    r"|(?:^|\] )\[(?P<c>\d{1,7})\]: "
    r"|^r(?P<d>\d{1,7}) "
    r"|\(rank=(?P<e>\d{1,7}), size="
    r"|^[Rr]ank[ =:]{1,2}(?P<f>\d{1,7})\b[ |:]*"
)
_LEVELS = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_BEFORE = re.compile(rf"[\W]{{0,3}}(?:{_LEVELS}[ :|\]\[-]*)?")  # what may stand before a time
_AFTER = re.compile(rf"[ |:\]-]*(?:\[?{_LEVELS}\]?[ :|-]+)?")  # what belongs to the head after it
_QUALITY = ("", "zone", "year", "date", "boot")  # what a form misses, from the best to the worst


class Head(NamedTuple):
    """A line without its head."""

    text: str
    rank: int | None
    node: str | None
    stamp: Stamp | None
    own_rank: bool  # the program itself named the rank, not a launcher


class HeadReader:
    """Reads the heads of one file's lines; knows by then whether `srun -l` labels them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.labelled = False  # lines carry the labels of `srun -l` or another launcher's mark

    def read(self, piece: Piece, listing: bool) -> Head:
        """Split `piece`; `listing` says that a list of ranks is expected, whose items look like labels of srun."""
        text, rank = piece.text, piece.rank
        node: str | None = None
        stamp: Stamp | None = None
        own = False
        for _ in range(HEADS_MAX):
            if text[:1] in " \t" and (rank is not None or not text[:6].lstrip()[:1].isdigit()):
                break
            label = self._label(text, listing) if rank is None else None
            peeled = peel(text) if label is None else label
            if peeled is not None:
                own = own or (peeled.rank is not None and label is None)
                rank = peeled.rank if peeled.rank is not None else rank
                node = peeled.node if peeled.node is not None else node
                text = peeled.rest
                continue
            found = self.clock.read(text, inner=stamp is not None)
            if found is None:
                break
            stamp = _better(stamp, found)
            if _BEFORE.fullmatch(text, 0, found.start) is None:  # a time inside the message, not in its head
                break
            match = _AFTER.match(text, found.end)
            text = text[found.end if match is None else match.end() :]
        return self._named(text, rank, node, stamp, own)

    def _label(self, text: str, listing: bool) -> Peeled | None:
        if listing and not self.labelled:
            return None
        peeled = peel_label(text, sure=self.labelled)
        self.labelled = self.labelled or peeled is not None
        return peeled

    def _named(self, text: str, rank: int | None, node: str | None, stamp: Stamp | None, own: bool) -> Head:
        if "ank" in text or "]: " in text or text[:1] == "r":
            match = _RANK.search(text)
            if match is not None and (rank is None or match["a"] is not None):
                # A tag in front is worth more than "Rank 3" in the text, which may count within a process group.
                said = match.groupdict()
                node = said.pop("host") or node
                rank = int(next(value for value in said.values() if value is not None))
                own = True
                if match.start() == 0:
                    text = text[match.end() :]
        return Head(text, rank, node, stamp, own)


def _better(outer: Stamp | None, inner: Stamp) -> Stamp:
    if outer is None:
        return inner
    worse = _QUALITY.index(inner.missing) > _QUALITY.index(outer.missing)
    if worse and abs(inner.ts - outer.ts) < SAME_MOMENT_S:
        return inner._replace(missing=outer.missing)
    return outer if worse else inner
