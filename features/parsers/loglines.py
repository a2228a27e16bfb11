"""Cuts a stream of bytes into numbered lines, whatever the chunks, with a bound on memory."""

from __future__ import annotations

from collections.abc import Iterator

from features.notices import Notices

LINE_CAP = 1 << 20  # bytes; a line of text above this is a dump or binary data and its tail says nothing more


class LineSplitter:
    """Lines end in LF (a CR before it is dropped); the last one may lack it and comes with `finish`."""

    def __init__(self, file: str, notices: Notices, cap: int = LINE_CAP) -> None:
        self._file, self._notices, self._cap = file, notices, cap
        self._tail = b""
        self._cut = False  # the line in `_tail` lost bytes beyond the cap
        self.number = 0  # of the line handed out last, from 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Hand out the lines that `data` completes."""
        first, *rest = data.split(b"\n")
        self._extend(first)
        for part in rest:
            yield self._take()
            self._extend(part)

    def finish(self) -> Iterator[bytes]:
        """Hand out the line that has no end of line, if there is one."""
        if self._tail:
            yield self._take()

    def _extend(self, part: bytes) -> None:
        room = self._cap - len(self._tail)
        if len(part) > room:
            self._cut = True
            part = part[:room]
        self._tail = self._tail + part if self._tail else part

    def _take(self) -> bytes:
        self.number += 1
        if self._cut:
            text = f"line longer than {self._cap} bytes, its end left out"
            self._notices.add("warning", text, file=self._file, place=f"line {self.number}")
        line, self._tail, self._cut = self._tail, b"", False
        return line[:-1] if line.endswith(b"\r") else line
