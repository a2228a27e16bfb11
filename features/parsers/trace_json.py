"""Cuts a Chrome trace (an object with traceEvents, or a bare array) into events, in bounded memory and past damage."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from features.notices import Notices
from features.parsers.trace_event import LIST, ONE, Event, Sink
from features.parsers.trace_mend import Verdict, judge

SLICE_BYTES: Final = 256 * 1024  # decoded at once: large enough to make the call free, small enough to bound memory
MAX_EVENT_BYTES: Final = 1 << 20  # an event takes some 300 bytes, with stacks and shapes some 10 kB; beyond this it is damage
MAX_META_BYTES: Final = 64 * 1024  # kept of what stands beside the events: ranks come before the long lists of groups
EVENTS_KEY: Final = "traceEvents"
WANTED: Final = frozenset({
    "distributedInfo", "baseTimeNanoseconds", "deviceProperties", "cuda_runtime_version", "cuda_driver_version",
    "hip_runtime_version", "hip_driver_version", "nccl_version",
})  # fmt: skip

DAMAGED: Final = "damaged bytes were skipped"
MENDED: Final = "an event that is no valid JSON (bytes, numbers or control characters) was read all the same"
UNKNOWN: Final = "an object that is no event of a trace was skipped"
CUT: Final = "the trace is cut off"
MORE: Final = "bytes after the end of the trace were left out"

_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_SEPARATORS: Final = b", \t\r\n"
_BOUNDARY: Final = re.compile(rb"\}\s*(?:,\s*\{|\])")
_KEY: Final = re.compile(rb'"((?:[^"\\]|\\.){0,256}+)"\s*:\s*(?=\S)', re.DOTALL)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},"]', re.DOTALL)
_TOP_KEYS: Final = (
    rb"traceEvents|schemaVersion|traceName|displayTimeUnit|baseTimeNanoseconds|distributedInfo|deviceProperties|trace_id|"
    rb"record_shapes|with_stack|with_flops|with_modules|profile_memory|username|otherData|INFO|WARNING|ERROR|"
    rb"(?:cuda|hip)_(?:runtime|driver)_version|nccl_version"
)
_AGAIN: Final = re.compile(
    rb'(\{)\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:|\](?=\s*,\s*"(?:' + _TOP_KEYS + rb')"\s*:)'
)
_AGAIN_MAYBE: Final = re.compile(rb'[{\]][\s,]{0,4096}(?:"\w{0,64}"?\s{0,4096})?\Z')
_SEEK: Final = re.compile(rb'"(?:' + _TOP_KEYS + rb')"\s*:')
_SEEK_MAYBE: Final = re.compile(rb'"\w{0,64}"?\s{0,4096}\Z')


class Scanner:
    """Bytes in any chunking to events; what it skips is counted with its byte offset."""

    def __init__(self, file: str, notices: Notices, sink: Sink) -> None:
        """`file` is the name to show in notices."""
        self._file, self._notices, self._sink = file, notices, sink
        self._carry = b""
        self._offset = 0  # of the first byte of the buffer within the file
        self._go = self._start
        self._damage: int | None = None  # where the damaged stretch that we are in began
        self._patient = 0  # up to where events are taken one by one
        self._is_array = False
        self._key, self._value, self._depth = "", b"", 0  # the value beside the events that is being passed
        self._seen_events = self._torn = self._said_more = False

    def feed(self, data: bytes) -> None:
        """Pass on the events that `data` completes."""
        buf = self._carry + data if self._carry else data
        if self._go == self._events and b"}" not in data and len(buf) < MAX_EVENT_BYTES:
            self._carry = buf  # nothing can have been completed: do not look at the same bytes again and again
            return
        self._run(buf, final=False)

    def finish(self) -> None:
        """Pass on what was held back; a trace without an end is noted."""
        self._run(self._carry, final=True)
        if self._damage is not None:
            self._note(CUT if self._torn else DAMAGED, self._damage)
        elif self._go != self._end:
            self._note(CUT, self._offset)

    def _run(self, buf: bytes, *, final: bool) -> None:
        pos = 0
        while pos < len(buf):
            go = self._go
            to = go(buf, pos, final)
            if to == pos and self._go == go:
                break
            pos = to
        self._carry = buf[pos:]
        self._offset += pos

    # The parts of the file. Each takes what it can from `pos` on and returns where it stopped.

    def _start(self, buf: bytes, pos: int, final: bool) -> int:
        at = _skip(buf, pos, _BLANK)
        if at < len(buf):
            self._is_array = buf[at : at + 1] == b"["
            if self._is_array:
                self._go = self._events
            elif buf[at : at + 1] == b"{":
                self._go = self._keys
            else:
                return self._lose(at, self._seek)
            return at + 1
        return at

    def _keys(self, buf: bytes, pos: int, final: bool) -> int:
        at = _skip(buf, pos, _SEPARATORS)
        if at == len(buf):
            return at
        if buf[at : at + 1] == b"}":
            self._go = self._end
            return at + 1
        match = _KEY.match(buf, at)
        if match is None:
            waits = buf[at : at + 1] == b'"' and not final and len(buf) - at < MAX_META_BYTES
            return at if waits else self._lose(at, self._seek) + 1
        self._sound()
        self._key, self._value, self._depth = match[1].decode("utf-8", "replace"), b"", 0
        if self._key == EVENTS_KEY and buf[match.end() : match.end() + 1] == b"[" and not self._seen_events:
            self._go, self._seen_events = self._events, True
            return match.end() + 1
        self._go = self._values
        return match.end()

    def _values(self, buf: bytes, pos: int, final: bool) -> int:
        """Passes a value of any size, and keeps the beginning of one that is wanted."""
        done, at = False, len(buf)
        for token in _TOKEN.finditer(buf, pos):
            sign = token[0]
            if sign == b'"':  # no closing quote yet
                at = token.start()
                if final or len(buf) - at >= MAX_EVENT_BYTES:
                    return self._lose(at, self._seek)
                break
            if self._depth == 0 and sign in b"},]":
                done, at = True, token.start()
                break
            self._depth += (sign in b"[{") - (sign in b"]}")
        if self._key in WANTED:
            self._value += buf[pos : min(at, pos + MAX_META_BYTES - len(self._value))]
            if done:
                self._sink.about(self._key, self._value)
        if done:
            self._go = self._keys
            return at + 1 if buf[at : at + 1] == b"]" else at
        return at

    def _events(self, buf: bytes, pos: int, final: bool) -> int:
        while pos < len(buf) and self._go == self._events:
            to = self._slice(buf, pos)
            if to == pos:
                to = self._one(buf, pos, final)
            if to == pos:
                break
            pos = to
        return pos

    def _slice(self, buf: bytes, pos: int) -> int:
        """The fast way: all up to the last event that certainly ends within a slice; nothing if anything is odd."""
        if self._damage is not None or self._offset + pos < self._patient:
            return pos
        start = _skip(buf, pos, _SEPARATORS)
        cut = _last_end(buf, start, min(pos + SLICE_BYTES, len(buf)))
        if cut <= start or buf[start : start + 1] != b"{":
            return pos
        try:
            events = LIST.decode(b"".join((b"[", memoryview(buf)[start:cut], b"]")))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._patient = self._offset + cut
            return pos
        self._sink.events(events)
        return cut

    def _one(self, buf: bytes, pos: int, final: bool) -> int:
        """The patient way: one event, the end of the array, or the beginning of damage."""
        start = _skip(buf, pos, _SEPARATORS)
        sign = buf[start : start + 1]
        if sign == b"]" and self._damage is None:
            self._go = self._end if self._is_array else self._keys
            return start + 1
        if sign != b"{":
            return self._lose(start, self._lost) if sign else start
        window = min(len(buf), start + MAX_EVENT_BYTES)
        boundary = _BOUNDARY.search(buf, start, window)
        is_whole = final or window == start + MAX_EVENT_BYTES
        if boundary is None and not is_whole:
            return start
        judgement = judge(buf, start, boundary.start() + 1 if boundary else window, window, ONE)
        verdict, event, end = judgement
        if verdict is Verdict.SHORT and not is_whole:
            return start
        if verdict is Verdict.SHORT or verdict is Verdict.BROKEN:
            self._torn = self._torn or (self._damage is None and verdict is Verdict.SHORT and final)
            self._lose(start, self._lost)
            return start + 1 if boundary is not None else self._leave(start, window)
        self._take(verdict, event, start)
        return end

    def _leave(self, start: int, window: int) -> int:
        """Where to go on after damage, when up to `window` no event ends: only one that is not too long is waited for."""
        return max(start + 1, window - MAX_META_BYTES) if window == start + MAX_EVENT_BYTES else window

    def _take(self, verdict: Verdict, event: Event | None, start: int) -> None:
        is_event = event is not None and event.ph != ""
        if self._damage is not None and not is_event:  # the args of an event, found within the damage
            return
        self._sound()
        if verdict is Verdict.FOREIGN:
            self._note(UNKNOWN, self._offset + start)
        elif verdict is Verdict.MENDED:
            self._note(MENDED, self._offset + start)
        if event is not None:
            self._sink.events([event])

    def _lost(self, buf: bytes, pos: int, final: bool) -> int:
        """After damage: on to the next thing that looks like an event, or to what follows the events."""
        match = _AGAIN.search(buf, pos)
        if match is None:
            maybe = None if final else _AGAIN_MAYBE.search(buf, max(pos, len(buf) - MAX_META_BYTES))
            return len(buf) if maybe is None else maybe.start()
        if match[1] is not None:
            self._go = self._events
            return match.start()
        self._sound()
        self._go = self._keys
        return match.end()

    def _seek(self, buf: bytes, pos: int, final: bool) -> int:
        """After damage outside the events: on to the next key that is known."""
        match = _SEEK.search(buf, pos)
        if match is not None:
            self._go = self._keys
            return match.start()
        maybe = None if final else _SEEK_MAYBE.search(buf, max(pos, len(buf) - MAX_META_BYTES))
        return len(buf) if maybe is None else maybe.start()

    def _end(self, buf: bytes, pos: int, final: bool) -> int:
        at = _skip(buf, pos, _SEPARATORS)
        if at < len(buf) and not self._said_more:
            self._note(MORE, self._offset + at)
            self._said_more = True
        return len(buf)

    def _lose(self, at: int, to: object) -> int:
        if self._damage is None:
            self._damage = self._offset + at
        self._go = self._lost if to == self._lost else self._seek
        return at

    def _sound(self) -> None:
        """A damaged stretch, if we were in one, ends here."""
        if self._damage is not None:
            self._note(DAMAGED, self._damage)
            self._damage, self._torn = None, False

    def _note(self, text: str, at: int) -> None:
        self._notices.add("warning", text, file=self._file, place=f"byte {at}")


def _skip(buf: bytes, pos: int, blank: bytes) -> int:
    """Where the first byte stands that is not one of `blank`."""
    while pos < len(buf) and buf[pos] in blank:
        pos += 1
    return pos


def _last_end(buf: bytes, start: int, limit: int) -> int:
    """Where the last object before `limit` ends that another one follows; -1 if none does."""
    brace = buf.rfind(b"{", start, limit)
    while brace > start:
        head = buf[max(start, brace - 64) : brace].rstrip(b" \t\r\n")
        if head.endswith(b","):
            head = head[:-1].rstrip(b" \t\r\n")
            if head.endswith(b"}"):
                return max(start, brace - 64) + len(head)
        brace = buf.rfind(b"{", start, brace)
    return -1
