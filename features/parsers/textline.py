"""A line of text without its head, as the readers of messages take it."""

from __future__ import annotations

from typing import NamedTuple

SCAN_MAX = 4096  # characters of a line in which messages are looked for; what is longer is a dump of data
TEXT_KEPT = 400  # characters of a message that a record repeats


class Line(NamedTuple):
    """Who wrote a line, where and when."""

    number: int
    text: str
    rank: int | None
    node: str | None
    stream: str
    ts: float | None
