"""Notices: what could not be read or known, counted and located, so that nothing is lost in silence."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

Level = Literal["info", "warning", "error"]


class Notice(msgspec.Struct, frozen=True):
    """One thing a reader of the report should know about the input."""

    level: Level
    text: str
    source: str
    count: int = 1


class Notices:
    """Collects notices; the same text about the same file is counted, and its first place is kept."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, Level]] = Counter()
        self._first: dict[tuple[str, str, Level], str] = {}

    def add(self, level: Level, text: str, *, file: str, place: str = "", count: int = 1) -> None:
        """Count `text` about `file`; `place` ("line 12", "byte 991") is kept for the first one."""
        key = (text, file, level)
        self._counts[key] += count
        self._first.setdefault(key, place)

    def items(self) -> list[Notice]:
        """All notices in the order in which they first came."""
        return [
            Notice(level, text, f"{file}:{self._first[key]}" if self._first[key] else file, n)
            for key, n in self._counts.items()
            for text, file, level in [key]
        ]
