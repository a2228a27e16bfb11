"""A line of text without its head, as the readers of messages take it."""

from __future__ import annotations

from typing import NamedTuple

TEXT_KEPT = 400  # characters of a message that a record repeats


class Line(NamedTuple):
    """Who wrote a line, where and when."""

    number: int
    text: str
    rank: int | None
    node: str | None
    stream: str
    ts: float | None
