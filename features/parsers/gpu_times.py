"""Gives every sample of a GPU file a time: from its cells, from the file's last time, or by counting samples."""

from __future__ import annotations

import re

from features.notices import Notices
from features.parsers.clocks import Clock

SAMPLE_S = 1.0
"""Stands for the distance of two samples where a file has no time at all; most tools sample once a second."""
EPOCH_FROM_S = 1e8
"""Bare numbers below this (March 1973) count seconds from the start of the sampling."""
BACK_S = 1.0
"""Times of one GPU that go back by more than this are worth a word."""

NO_ZONE = "time without zone read as UTC"
NO_DATE = "time without date: counted from 1970, only differences mean something"
NO_TIME = "no time in this file: its samples count as one second each, from 0"
ELAPSED = "times count from the start of the sampling, not from a date"
UNREADABLE = "time that cannot be read: the one before is used"
UNPLACED = "sample left out: no time in it nor before it"
BACK = "time goes back"

_BARE = re.compile(r"\d{1,19}(?:\.\d{0,9})?")
_DAY = re.compile(r"(\d{4})[-/.]?(\d\d)[-/.]?(\d\d)")


class SampleClock:
    """Reads the times of one file. `absolute` is False where they count from an unknown start."""

    def __init__(self, file: str, notices: Notices) -> None:
        self.absolute = True
        self._file, self._notices = file, notices
        self._clock = Clock()
        self._last: float | None = None
        self._dated = False
        self._round = 0.0
        self._seen: set[str] = set()
        self._newest: dict[str, float] = {}

    def read(self, text: str, place: str) -> float | None:
        """The time in a cell; the last one where it cannot be read, None where there was none yet."""
        ts = self._bare(text.strip(), place) if _BARE.fullmatch(text.strip()) else self._written(text.strip(), place)
        if ts is None:
            self._notices.add("warning", UNREADABLE if self._last is not None else UNPLACED, file=self._file, place=place)
            return self._last
        self._last = ts
        return ts

    def read_parts(self, date: str, clock: str, place: str) -> float | None:
        """The time in two cells, a date such as 20240507 and a time of day; `date` may be empty."""
        day = _DAY.fullmatch(date.strip())
        return self.read(f"{day[1]}-{day[2]}-{day[3]} {clock.strip()}" if day else clock, place)

    def elapsed(self, text: str, place: str) -> float | None:
        """The time in a cell of seconds since the start of the sampling."""
        bare = _BARE.fullmatch(text.strip())
        if bare is None:
            return self.read(text, place)
        self._relative(ELAPSED, place)
        self._last = float(bare[0])
        return self._last

    def count(self, gpu: str, place: str) -> float:
        """The time of a sample where no sample has one: rounds over all GPUs, a second each."""
        self._relative(NO_TIME, place)
        if gpu in self._seen:
            self._seen.clear()
            self._round += SAMPLE_S
        self._seen.add(gpu)
        return self._round

    def check(self, gpu: str, ts: float, place: str) -> None:
        """Say so where the times of one GPU go back."""
        if ts < self._newest.get(gpu, ts) - BACK_S:
            self._notices.add("warning", BACK, file=self._file, place=place)
        self._newest[gpu] = ts

    def _bare(self, text: str, place: str) -> float | None:
        """A number alone: seconds, milli-, micro- or nanoseconds since the epoch, or seconds since some start."""
        value = float(text)
        if value < EPOCH_FROM_S:
            self._relative(ELAPSED, place)
            return value
        whole = text.partition(".")[0]
        thousands = max(0, (len(whole) - 10 + 2) // 3)  # digits beyond those of seconds, in steps of three
        self._dated = True
        return value / 1000.0**thousands

    def _written(self, text: str, place: str) -> float | None:
        stamp = self._clock.read(text + " ")  # a bare time of day wants something after it
        if stamp is None or stamp.missing == "boot":
            return None
        if stamp.missing in {"year", "date"}:
            self._relative(NO_DATE, place)
        else:
            self._dated = True
            if stamp.missing == "zone":
                self._notices.add("info", NO_ZONE, file=self._file, place=place)
        return stamp.ts

    def _relative(self, why: str, place: str) -> None:
        if not self._dated:
            self.absolute = False
        self._notices.add("info", why, file=self._file, place=place)
