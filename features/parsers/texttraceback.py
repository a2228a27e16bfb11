"""Reads Python tracebacks and the exceptions that lines name."""

from __future__ import annotations

import re

from features.parsers.textevents import find
from features.parsers.textline import SCAN_MAX, TEXT_KEPT, Line
from features.records import Log

_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s+(?:\| *)?File "([^"]+)", line (\d+)(?:, in (\S+))?')
_GROUP = re.compile(r"\s+\| (?=\S)")  # the margin of an exception group
_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: ?(.*))?$")
_LIKELY = re.compile(
    r"(?:uncaught exception |Uncaught exception |Unhandled exception )?"
    r"((?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration)|(?:Base)?Exception(?:Group)?))"
    r"(?:: ?(.*))?$"
)
CASCADE_TYPES = {
    "HorovodInternalError": "horovod_error",
    "ConnectionResetError": "connection_lost",
    "ConnectionAbortedError": "connection_lost",
    "BrokenPipeError": "connection_lost",
    "DistNetworkError": "connection_lost",
}


class Traceback:
    """A Python traceback while its lines come in."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.place: str | None = None

    def takes(self, text: str) -> bool:
        """Whether `text` is a frame or code line; False for the line that names the exception."""
        if match := _FRAME.match(text):
            self.place = f"{match[1]}:{match[2]}" + (f" in {match[3]}" if match[3] else "")
            return True
        if (margin := _GROUP.match(text)) is not None:
            return _LIKELY.match(text, margin.end()) is None
        return not text.strip() or text[0] in " \t"


def starts_traceback(text: str) -> bool:
    """Whether `text` is the head of a traceback."""
    return _TRACEBACK in text


def exception_in(line: Line, source: str, traceback: Traceback | None = None) -> Log | None:
    """The exception that `line` names: after a traceback many names will do, alone only one that looks like it."""
    text = _GROUP.sub("", line.text[:SCAN_MAX], count=1).strip()
    match = _LIKELY.match(text)
    if match is None and traceback is not None:
        match = _EXCEPTION.match(text)
        if match is not None and match[2] is None and "." not in match[1]:  # a lone word of another program
            match = None
    if match is None:
        return None
    kind, message = match[1], match[2] or ""
    found = find(text)
    short = kind.rpartition(".")[2]
    event = CASCADE_TYPES.get(short) or (found.event if found is not None else "exception")
    fields = {} if found is None else dict(found.fields)
    cascade = event in CASCADE_TYPES.values()
    fields |= {"type": kind, "message": message[:TEXT_KEPT], "cascade": "true" if cascade else "false"}
    if traceback is not None and traceback.place is not None:
        fields["at"] = traceback.place
    return Log(
        ts=line.ts,
        event=event,
        text=text[:TEXT_KEPT],
        rank=line.rank,
        node=line.node,
        ranks=found.ranks if found is not None else (),
        fields=fields,
        source=source,
    )
