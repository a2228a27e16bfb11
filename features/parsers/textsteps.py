"""Finds training steps in free text: the wordings of frameworks, and the numbering of steps that start again."""

from __future__ import annotations

from features.notices import Notices
from features.parsers.steplines import Reading, count, from_json, from_pairs

_WORDS = ("step", "Step", "iter", "Iter")


class StepReader:
    """Reads steps of one file and keeps their numbers growing where a script starts again from 0 each epoch."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._last: dict[int, int] = {}

    def seen(self, rank: int, step: int) -> None:
        """A step of the recorded layout, whose numbers never start again."""
        self._last[rank] = step

    def read(self, text: str, line: int) -> Reading | None:
        """The step that `text` tells of."""
        if text[:1] == "{":
            return from_json(text)
        if not any(word in text for word in _WORDS):
            return None
        return from_pairs(text)

    def number(self, reading: Reading, rank: int) -> int | None:
        """The number of the step, growing with time; None for a line that repeats the one before."""
        return count(reading.values["step"])

    def duration(self, reading: Reading, rank: int, number: int) -> float | None:
        """How long the step took, if the line or the lines before tell it."""
        return reading.values.get("duration_s")
