"""Reads the time that a line of text starts with, in the forms of training, launcher and kernel logs."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, NamedTuple

# A leap year, so that 29 February exists: stands in where a form has no year and the file has told none.
YEARLESS = 1972
HALF_YEAR_S = 183 * 86400.0
HALF_DAY_S = 43200.0
DAY_S = 86400.0
SEARCH = 120  # characters from the start of a line in which a full date and time counts as the line's own

Missing = Literal["", "zone", "year", "date", "boot"]


class Stamp(NamedTuple):
    """A time read from a line: seconds, where its text starts and ends, and what the form did not say."""

    ts: float
    start: int
    end: int
    missing: Missing


MONTHS: dict[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar jänner janvier janv enero ene januari gennaio gen janeiro",
            "feb february februar feber février févr fevr febrero februari febbraio fevereiro fev",
            "mar march märz mär mrz mars marzo maart mrt março",
            "apr april avril avr abril abr aprile",
            "may mai mayo mei maggio mag maio",
            "jun june juni juin junio giugno giu junho",
            "jul july juli juillet juil julio luglio lug julho",
            "aug august août aout agosto ago augustus",
            "sep sept september septembre septiembre settembre set setembro",
            "oct october oktober okt octobre octubre ottobre ott outubro out",
            "nov november novembre noviembre novembro",
            "dec december dezember dez décembre déc diciembre dic dicembre dezembro",
        ),
        start=1,
    )
    for name in names.split()
}

_ZONE = r"(Z|UTC|GMT|[+-]\d\d:?\d\d)?"
# Horovod pads the six decimals with blanks on the left: ". 89665"
_TIME = r"(\d\d):(\d\d):(\d\d)(?:(?:\.(?= {0,5}\d)|,(?=\d))( {0,5}\d{1,9}))?"
_ISO = re.compile(rf"(\d{{4}})[-/.](\d\d)[-/.](\d\d)[T ,_]\s?{_TIME}\s?{_ZONE}")
_ISO_WIDTH = 48  # characters of the longest form, blanks and decimals included
_US = re.compile(rf"\[?(\d\d)/(\d\d)/(\d{{4}}) {_TIME}")
_GLOG = re.compile(rf"\[?[TDIWEFC](\d{{4}})?(\d{{1,2}})(\d\d) {_TIME}")
# "Sun Feb 23 16:24:18 2025", in brackets or not; day and month in either order, a zone before the year
_CTIME = re.compile(
    r"\[?[^\W\d]{1,4}\.? (?:(\d{1,2})[. ]\s?)?([^\W\d]{3,10}|\d{1,2}月)\.?\s+(?:(\d{1,2}) )?"
    rf"{_TIME}\s?(?:[A-Z]{{3,4}} )?(\d{{4}})\]?"
)
_SYSLOG = re.compile(rf"([^\W\d]{{3,10}})\.?\s+(\d{{1,2}}) {_TIME}")
_BOOT = re.compile(r"\[\s*(\d{1,9}\.\d{6})\]")
_EPOCH = re.compile(r"\[?(1\d{9}(?:\.\d{1,9})?|1\d{12}|1\d{15}|1\d{18})\]?(?=[\s,:;|])")
_CLOCK = re.compile(rf"\[?{_TIME}\]?(?=[\s,|])")


@lru_cache(maxsize=4096)
def minute(year: str, month: str, day: str, hour: str, minutes: str, zone: str) -> int | None:
    """Seconds since the epoch of a minute in a zone ("" is UTC); None if there is no such minute."""
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minutes), tzinfo=UTC)
    except ValueError:
        return None
    seconds = calendar.timegm(moment.timetuple())
    if zone[:1] in {"+", "-"}:
        offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return seconds


def seconds_in(base: int, seconds: str, fraction: str | None) -> float:
    """`base` plus seconds and their decimals, rounded once; Horovod pads the six decimals with blanks on the left."""
    nanoseconds = int((fraction or "0").replace(" ", "0")[:9].ljust(9, "0"))
    return ((base + int(seconds)) * 1_000_000_000 + nanoseconds) / 1_000_000_000


def _instant(date: tuple[str, str, str], clock: tuple[str | None, ...], zone: str | None) -> float | None:
    hour, minutes, seconds, fraction = clock
    base = minute(*date, hour or "", minutes or "", zone or "")
    return None if base is None or seconds is None else seconds_in(base, seconds, fraction)


def find_iso(text: str, within: int = SEARCH) -> Stamp | None:
    """The first full date and time that starts in the first `within` characters of `text`."""
    match = _ISO.search(text, 0, within + _ISO_WIDTH)
    if match is None or match.start() >= within:
        return None
    year, month, day, *clock, zone = match.groups()
    ts = _instant((year, month, day), tuple(clock), zone)
    return _stamp(ts, match, "" if zone else "zone")


class Clock:
    """Reads the times of one file; forms without year or date lean on the times read before."""

    def __init__(self) -> None:
        self.last: float | None = None  # the time read last
        self._dated = False  # a full date was read, so `last` tells the year

    def read(self, text: str, inner: bool = False) -> Stamp | None:
        """The time that `text` starts with, or a full date and time near its start; remembers it.

        `inner`: another time came before in this line, so bare numbers are no times here.
        """
        stamp = self._leading(text, inner)
        if stamp is not None and stamp.missing != "boot":
            self.note(stamp)
        return stamp

    def note(self, stamp: Stamp) -> None:
        """Remember a time that was read elsewhere."""
        self.last = stamp.ts
        self._dated = self._dated or stamp.missing in {"", "zone"}

    def _leading(self, text: str, inner: bool) -> Stamp | None:
        found = find_iso(text, 2 if inner else SEARCH)
        if found is not None:
            return found
        second = text[1:2] if text[:1] == "[" else text[:1]
        if second.isdigit() or second == " ":
            return self._numeric(text, inner)
        return self._named(text) if second.isalpha() else None

    def _numeric(self, text: str, inner: bool) -> Stamp | None:
        if match := _BOOT.match(text):
            return Stamp(float(match[1]), 0, match.end(), "boot")
        if match := _US.match(text):
            first, second, year, *clock = match.groups()
            month, day = (first, second) if int(first) <= 12 else (second, first)
            return _stamp(_instant((year, month, day), tuple(clock), None), match, "zone")
        if inner:
            return None
        if match := _EPOCH.match(text):
            whole, _, _ = match[1].partition(".")
            return Stamp(float(match[1]) / 10.0 ** (len(whole) - 10), 0, match.end(), "")
        return self._today(match) if (match := _CLOCK.match(text)) else None

    def _named(self, text: str) -> Stamp | None:
        if match := _GLOG.match(text):
            year, month, day, *clock = match.groups()
            return self._in_year(year, (month, day), tuple(clock), match)
        if match := _CTIME.match(text):
            before, name, after, *clock, year = match.groups()
            month = _month(name)
            day = before if before is not None else after
            if month is None or day is None:
                return None
            return _stamp(_instant((year, month, day), tuple(clock), None), match, "zone")
        if match := _SYSLOG.match(text):
            name, day, *clock = match.groups()
            month = _month(name)
            return None if month is None else self._in_year(None, (month, day), tuple(clock), match)
        return None

    def _in_year(
        self, year: str | None, date: tuple[str, str], clock: tuple[str | None, ...], match: re.Match[str]
    ) -> Stamp | None:
        if year is not None:
            return _stamp(_instant((year, *date), clock, None), match, "zone")
        guess = YEARLESS if self.last is None else datetime.fromtimestamp(self.last, UTC).year
        ts = _instant((str(guess), *date), clock, None)
        if ts is not None and self.last is not None and ts < self.last - HALF_YEAR_S:  # over New Year
            ts = _instant((str(guess + 1), *date), clock, None)
        return _stamp(ts, match, "zone" if self._dated else "year")

    def _today(self, match: re.Match[str]) -> Stamp | None:
        hour, minutes, seconds, fraction = match.groups()
        if int(hour) > 23 or int(minutes) > 59:
            return None
        day = 0.0 if self.last is None else self.last // DAY_S * DAY_S
        ts = seconds_in(int(day) + int(hour) * 3600 + int(minutes) * 60, seconds, fraction)
        if self.last is not None and ts < self.last - HALF_DAY_S:  # over midnight
            ts += DAY_S
        return _stamp(ts, match, "zone" if self._dated else "date")


def _stamp(ts: float | None, match: re.Match[str], missing: Missing) -> Stamp | None:
    return None if ts is None else Stamp(ts, match.start(), match.end(), missing)


def _month(name: str) -> str | None:
    if name.endswith("月"):
        return name[:-1]
    number = MONTHS.get(name.lower())
    return None if number is None else str(number)
