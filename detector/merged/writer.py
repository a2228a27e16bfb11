"""Writes trace events to a file as they come, in the JSON object form of the Trace Event Format."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

GZIP_LEVEL = 6
"""zlib's own choice; a higher one takes twice the time for one hundredth of the size."""
SCHEMA = "rankwatch.trace/1"
HEAD = b'{"displayTimeUnit":"ms","traceEvents":['
"""`displayTimeUnit` comes first: Perfetto looks for it only where a file begins."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One trace event; `ts` and `dur` are microseconds. Defaults are left out of the file."""

    ph: str
    ts: int
    pid: int
    tid: int
    name: str
    cat: str = ""
    dur: int | None = None
    s: str | None = None  # scope of an instant
    args: dict[str, Any] = {}


class TraceWriter:
    """A context in which events are written; the file appears whole when it ends well, and not at all otherwise."""

    def __init__(self, out: Path) -> None:
        """A name that ends in .gz is compressed. The bytes depend on the events alone: no time, no file name in them."""
        self.written = 0
        self._out = out
        # A device or a pipe is written to; a file is replaced when its successor is complete.
        self._to = out if out.exists() and not out.is_file() else out.with_name(f".{out.name}.part")
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> Self:
        self._raw = self._to.open("wb")
        self._file: io.BufferedIOBase = self._raw
        if self._out.suffix == ".gz":
            zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=self._raw, mtime=0)
            self._file = io.BufferedWriter(zipped, 1 << 16)
        self._file.write(HEAD)
        # A label that viewers know, so that whoever meets the file among others can tell it by its first bytes.
        self.write([Event(ph="M", ts=0, pid=1, tid=1, name="process_labels", args={"labels": SCHEMA})])
        return self

    def write(self, events: Iterable[Event]) -> None:
        """Write these events in this order."""
        for event in events:
            self._file.write(b",\n" if self.written else b"\n")
            self._file.write(self._encoded(event))
            self.written += 1

    def close(self, other: dict[str, Any]) -> None:
        """Nothing more comes; `other` is what the file says of itself (otherData)."""
        self._file.write(b'\n],"otherData":' + self._encoded(other) + b"}\n")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._file.close()
            self._raw.close()
        finally:
            if self._to != self._out and kind is not None:
                self._to.unlink(missing_ok=True)
        if self._to != self._out and kind is None:
            os.replace(self._to, self._out)

    def _encoded(self, value: object) -> bytes:
        try:
            return self._encoder.encode(value)
        except UnicodeEncodeError:  # half of a surrogate pair, out of somebody's JSON: kept as an escape
            return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
