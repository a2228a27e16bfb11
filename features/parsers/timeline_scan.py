"""Cuts the bytes of a Horovod timeline into events, in big typed slices while they are sound, one by one where not."""

from __future__ import annotations

import re
from typing import Annotated, Protocol

import msgspec

from features.notices import Notices

SLICE_BYTES = 256 * 1024  # decoded at once: large enough to make the call free, small enough to bound memory
STEP_BYTES = 16 * 1024  # the same, while waiting for a quiet moment to leap from
LEAP_BYTES = 32 * 1024  # fewer are not worth the numpy calls of a leap
MAX_LEAP_BYTES = 1024 * 1024  # columns of this many are some 5 MB
MAX_RECORD_BYTES = 64 * 1024  # a record is some 60 to 300 bytes; without an end after this many it is damage
MAX_DEPTH = 8  # a record nests twice; more is damage, and giving up keeps the search linear
SEPARATORS = b"[], \t\r\n"  # in any order: the writer puts "]" after each event, later "," in its place

OUR_PHASES = frozenset("BEXiM")

DAMAGED = "damaged bytes were skipped"
CUT = "the last record is cut off"
UNKNOWN = "a record of an unknown kind was skipped"

_TOKEN = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*+"|["{}]')
_OPEN_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*+\\?\Z')
_INCOMPLETE, _BROKEN = 0, -1

Micros = Annotated[float, msgspec.Meta(ge=-(2.0**63), le=2.0**63)]


class Begin(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="B"):
    """A span opens on a tensor."""

    name: str
    ts: Micros
    pid: int


class End(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="E"):
    """The innermost open span of a tensor closes; `args` tells dtype and shape at the outermost."""

    ts: Micros
    pid: int
    args: msgspec.Raw = msgspec.Raw(b"")


class Tick(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="X"):
    """A rank, given by `name`, announced the tensor."""

    name: str
    ts: Micros
    pid: int


class Mark(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="i"):
    """A moment of the whole coordinator, such as CYCLE_START."""

    name: str
    ts: Micros


class Meta(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="M"):
    """Says something about a tensor, or (pid 0) about the clock."""

    name: str
    pid: int
    args: msgspec.Raw = msgspec.Raw(b"")


class _Phase(msgspec.Struct, gc=False):
    ph: str


Event = Begin | End | Tick | Mark | Meta
_EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[Event])
_PHASE: msgspec.json.Decoder[_Phase] = msgspec.json.Decoder(_Phase)
_EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


class Sink(Protocol):
    """Where events go."""

    @property
    def idle(self) -> bool:
        """Whether it is between collectives."""
        ...

    def run(self, events: list[Event]) -> None:
        """Take these events."""
        ...

    def run_until_idle(self, events: list[Event]) -> int:
        """Take events until it is idle; how many it took."""
        ...

    def leap(self, buf: bytes, base: int, limit: int) -> int:
        """When idle: take as many bytes as it can in one go; where it stopped, idle again (`base` for nowhere)."""
        ...


class Scanner:
    """Bytes in any chunking to events; what it skips is counted with its byte offset."""

    def __init__(self, file: str, notices: Notices, sink: Sink) -> None:
        """`file` is the name to show in notices."""
        self._file, self._notices, self._sink = file, notices, sink
        self._carry = b""
        self._offset = 0  # of the first byte of the buffer within the file
        self._damage: int | None = None  # where the damaged stretch that we are in began
        self._torn = False  # whether that stretch began with a record
        self._again = self._pause = STEP_BYTES  # where to leap next, and how long to wait after a vain try

    def feed(self, data: bytes) -> None:
        """Pass on the events that `data` completes."""
        buf = self._carry + data if self._carry else data
        if b"}" not in data and len(buf) < MAX_RECORD_BYTES:
            self._carry = buf  # nothing can have been completed: do not look at the same bytes again and again
            return
        self._scan(buf, final=False)

    def finish(self) -> None:
        """Pass on what was held back; a last record without an end is noted."""
        self._scan(self._carry, final=True)
        self._sound(at_end=True)

    def _scan(self, buf: bytes, *, final: bool) -> None:
        pos = 0
        while pos < len(buf):
            cut = self._leap(buf, pos)
            if cut == pos:
                cut = self._walk(buf, pos, final=final)
            if cut == pos:
                break
            pos = cut
        self._carry = buf[pos:]
        self._offset += pos

    def _leap(self, buf: bytes, pos: int) -> int:
        """All at once, where there is much to take and nothing has gone wrong; after vain tries ever more seldom."""
        if len(buf) - pos < LEAP_BYTES or self._damage is not None or not self._sink.idle:
            return pos
        if self._offset + pos < self._again:
            return pos
        cut = self._sink.leap(buf, pos, min(pos + MAX_LEAP_BYTES, len(buf)))
        if cut > pos:
            self._pause = STEP_BYTES
        else:
            self._again = self._offset + pos + self._pause
            self._pause = min(2 * self._pause, MAX_LEAP_BYTES)
        return cut

    def _walk(self, buf: bytes, pos: int, *, final: bool) -> int:
        """Decode a slice; where a leap could follow, only up to a quiet moment."""
        large = len(buf) - pos >= LEAP_BYTES
        hurry = large and not self._sink.idle
        pause = STEP_BYTES if hurry else self._again - self._offset - pos
        limit = min(pos + (min(pause, SLICE_BYTES) if large and pause > 0 else SLICE_BYTES), len(buf))
        cut, events = self._slice(buf, pos, limit)
        if not events:
            return self._one_by_one(buf, pos, limit, final=final)
        if not hurry:
            self._sink.run(events)
            return cut
        for _ in range(self._sink.run_until_idle(events)):
            pos = _object_end(buf, buf.index(b"{", pos))
        return pos

    def _slice(self, buf: bytes, pos: int, limit: int) -> tuple[int, list[Event]]:
        """The fast way: all up to the last event that certainly ends before `limit`; nothing if anything is odd."""
        cut = max(buf.rfind(b"},", pos, limit), buf.rfind(b"}]", pos, limit)) + 1
        start = buf.find(b"{", pos, limit)
        if self._damage is not None or cut <= start or start < 0 or buf[pos:start].strip(SEPARATORS):
            return pos, []
        try:
            return cut, _EVENTS.decode(b"".join((b"[", memoryview(buf)[start:cut], b"]")))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return pos, []

    def _one_by_one(self, buf: bytes, pos: int, limit: int, *, final: bool) -> int:
        """The patient way: each record by itself; after damage, on at the next brace. Returns how far it came."""
        while pos < limit:
            start = buf.find(b"{", pos)
            self._between(buf, pos, start if start >= 0 else len(buf))
            if start < 0:
                return len(buf)
            end = _object_end(buf, start)
            if end == _INCOMPLETE and not final and len(buf) - start < MAX_RECORD_BYTES:
                return start
            event = self._event(buf[start:end], start) if end > 0 else None
            if event is None:
                self._damaged(start, torn=True)
                pos = start + 1
            else:
                self._sound(at_end=False)
                self._sink.run([event])
                pos = end
        return pos

    def _between(self, buf: bytes, start: int, end: int) -> None:
        odd = buf[start:end].lstrip(SEPARATORS)
        if odd:
            self._damaged(end - len(odd), torn=False)

    def _event(self, raw: bytes, start: int) -> Event | None:
        try:
            return _EVENT.decode(raw)
        except msgspec.ValidationError:
            return self._foreign(raw, start)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _foreign(self, raw: bytes, start: int) -> Event | None:
        """Sound JSON that is no event of ours: of another kind, or damage."""
        try:
            phase = _PHASE.decode(raw).ph
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if phase in OUR_PHASES:
            return None
        self._notices.add("warning", UNKNOWN, file=self._file, place=f"byte {self._offset + start}")
        return Meta(name="", pid=0)  # says nothing

    def _damaged(self, at: int, *, torn: bool) -> None:
        if self._damage is None:
            self._damage, self._torn = self._offset + at, torn

    def _sound(self, *, at_end: bool) -> None:
        """A damaged stretch, if we were in one, ends here."""
        if self._damage is not None:
            text = CUT if at_end and self._torn else DAMAGED
            self._notices.add("warning", text, file=self._file, place=f"byte {self._damage}")
            self._damage = None


def _object_end(buf: bytes, start: int) -> int:
    """Where the object that opens at `start` ends (exclusive), or that it is incomplete or broken."""
    depth, window = 0, min(len(buf), start + MAX_RECORD_BYTES)
    for token in _TOKEN.finditer(buf, start, window):
        sign = token[0]
        if sign == b"{":
            depth += 1
        elif sign == b"}":
            depth -= 1
            if depth == 0:
                return token.end()
        elif sign == b'"':  # no closing quote: cut off, or no string at all
            return _INCOMPLETE if _OPEN_STRING.match(buf, token.start(), window) else _BROKEN
        if depth > MAX_DEPTH:
            return _BROKEN
    return _INCOMPLETE
