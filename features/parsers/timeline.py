"""Horovod timeline of either generation, at rest or growing: Collective and Cycles records in order of completion."""

from __future__ import annotations

from typing import Final

from features.notices import Notices
from features.parsers.protocol import ParserRow
from features.parsers.timeline_job import EPOCH_KEY
from features.parsers.timeline_ledger import Ledger
from features.parsers.timeline_reader import Reader
from features.parsers.timeline_scan import Scanner
from features.records import Record

_MARKERS: Final = (b"CYCLE_START", b"NEGOTIATE_", EPOCH_KEY.encode())


def sniff(head: bytes) -> bool:
    """Whether these first bytes are a Horovod timeline, an empty one included."""
    if head.strip() in (b"[", b"[]"):
        return True
    return b'"ph"' in head and b"traceEvents" not in head and any(marker in head for marker in _MARKERS)


class TimelineParser:
    """Feed it bytes in any chunking. `absolute` tells whether the times are since the Unix epoch.

    A collective comes out when its operation ends, fused tensors as one. What never ended comes out of `finish` with
    `end=None`: evidence of a stall or a crash. `ready` holds offsets from `ts`, the opening of the negotiation.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._ledger = Ledger(file, notices)
        self._scanner = Scanner(file, notices, Reader(self._ledger))
        self._finished = False

    @property
    def absolute(self) -> bool:
        """Whether the times are since the Unix epoch, as the header of newer files makes them."""
        return self._ledger.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Records that `data` completes."""
        self._scanner.feed(data)
        return self._ledger.take()

    def finish(self) -> list[Record]:
        """What is still open, and the notices about the file as a whole; once."""
        if self._finished:
            return []
        self._finished = True
        self._scanner.finish()
        self._ledger.finish()
        return self._ledger.take()


TIMELINE: Final = ParserRow("timeline", sniff, TimelineParser)
