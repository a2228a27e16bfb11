"""Judges one event of a trace that could not be read at once: where it ends, and whether it can be read all the same."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, TypeVar

import msgspec

MAX_DEPTH: Final = 16  # an event nests some three times; more is damage, and giving up keeps the search short
_TRUNCATED: Final = "Input data was truncated"
_GAP: Final = re.compile(rb'(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)  # up to the next brace that is in no string
_OPEN, _CLOSE = b"{}"
_NO_NUMBER: Final = re.compile(r"(?<=[:\[,\s])[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_CONTROLS: Final = dict.fromkeys(range(32), " ")
_BAD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


class Verdict(Enum):
    """What became of the bytes of one event."""

    SOUND = auto()
    MENDED = auto()  # readable once what JSON forbids is taken out
    FOREIGN = auto()  # sound JSON, but no event
    SHORT = auto()  # its end is not there
    BROKEN = auto()


def judge(buf: bytes, start: int, likely: int, limit: int, decoder: msgspec.json.Decoder[T]) -> tuple[Verdict, T | None, int]:
    """The event that opens at `start`, and where it ends.

    `likely` is the first place where it may end; `limit` is how far it may reach. What comes out depends on no byte
    behind `limit`.
    """
    try:
        return Verdict.SOUND, decoder.decode(buf[start:likely]), likely
    except msgspec.ValidationError:
        reach = limit  # the error may stand before a nested list of objects
    except _BAD as error:
        reach = limit if str(error).startswith(_TRUNCATED) else likely
    end = object_end(buf, start, reach)
    if end is None:
        return (Verdict.SHORT if reach == limit else Verdict.BROKEN), None, start
    return _whole(buf[start:end], end, decoder)


def _whole(raw: bytes, end: int, decoder: msgspec.json.Decoder[T]) -> tuple[Verdict, T | None, int]:
    try:
        return Verdict.SOUND, decoder.decode(raw), end
    except msgspec.ValidationError:
        return (Verdict.FOREIGN if _is_json(raw) else Verdict.BROKEN), None, end
    except _BAD:
        pass
    text = raw.decode("utf-8", "replace").translate(_CONTROLS)
    try:
        return Verdict.MENDED, decoder.decode(_NO_NUMBER.sub("null", text).encode()), end
    except _BAD:
        return Verdict.BROKEN, None, end


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except _BAD:
        return False
    return True


def object_end(buf: bytes, start: int, limit: int) -> int | None:
    """Where the object that opens at `start` ends (exclusive); None if not before `limit`."""
    depth, pos = 0, start
    while pos < limit:
        sign = buf[pos]
        pos += 1
        if sign == _OPEN:
            depth += 1
        elif sign == _CLOSE:
            depth -= 1
        else:  # a quote that nothing closes
            return None
        if depth == 0:
            return pos
        if depth > MAX_DEPTH:
            return None
        gap = _GAP.match(buf, pos, limit)
        pos = gap.end() if gap is not None else limit
    return None
