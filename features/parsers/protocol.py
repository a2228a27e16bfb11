"""What a parser is: bytes of one source in, telemetry records out, whatever the chunking."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from features.notices import Notices
from features.records import Record


class Parser(Protocol):
    """Turns the bytes of one source into records; bad input is counted in the notices it was made with."""

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes, cut anywhere; return the records that became complete."""
        ...

    def finish(self) -> list[Record]:
        """The file is at rest: return, once, what was still open."""
        ...


class ParserRow(NamedTuple):
    """One line of the table of parsers."""

    kind: str
    sniff: Callable[[bytes], bool]  # the first bytes of a file (at most 64 KiB, decompressed): is it ours?
    make: Callable[[str, Notices], Parser]  # (display name of the file, notices)
