"""Recognises messages that span several lines of one rank and stream: stalls, tracebacks, and the first failed process."""

from __future__ import annotations

import re
from typing import NamedTuple

from features.parsers.textevents import find, with_signal
from features.records import Log

NAMES_KEPT = 6  # tensor names of a stall that a record repeats; Horovod's own list stops there too
CLOSE_AFTER_S = 1.0  # a stall's lines are written at once: a line of the file this much later cannot belong to it
TEXT_KEPT = 400  # characters of a message that a record repeats


class Line(NamedTuple):
    """A line without prefixes: who wrote it, where and when."""

    number: int
    text: str
    rank: int | None
    node: str | None
    stream: str
    ts: float | None  # its own time, else that of the line before


_STALL = "submitted to be reduced"
_STALL_SECONDS = re.compile(r"for more than (\d+) seconds")
_SEVERITY = re.compile(r"\b([WEF]) \S+\.cc:\d+\]")
_RANK_LINE = re.compile(r"\s*(\d{1,7})(!?): \[(.*?)\]?\s*$")
_OPS = re.compile(r"([^\s,\[\]:]+) \[(ready|missing) ranks: ?([\d, ]*)\]?")
_LIST_HEAD = re.compile(r"(?:Missing ranks|Stalled ranks|Stalled ops):\s*$")
_SHUTDOWN = re.compile(r"stalled for longer than (\d+) seconds\. Will shutdown")


class Stall:
    """A stall warning of Horovod while its lines come in; five layouts, told apart by what the lines hold."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._seconds = _first(_STALL_SECONDS, line.text)
        self._severity = _first(_SEVERITY, line.text) or "W"
        self._missing: dict[int, list[str]] = {}
        self._ready: dict[str, set[int]] = {}  # the layout of 2018 names who is there
        self._beyond: list[int] = []  # ranks marked as beyond the shutdown time
        self._shutdown: str | None = None
        self._operations(line.text)

    def takes(self, text: str) -> bool:
        """Whether `text` goes on with this message; takes it in if so."""
        if not text.strip() or _LIST_HEAD.search(text):
            return True
        if match := _RANK_LINE.match(text):
            names = [name for part in match[3].replace(" ...", "").split(",") if (name := part.strip())]
            self._missing.setdefault(int(match[1]), []).extend(names)
            if match[2]:
                self._beyond.append(int(match[1]))
            return True
        if match := _SHUTDOWN.search(text):
            self._shutdown = match[1]
            return True
        return self._operations(text)

    def _operations(self, text: str) -> bool:
        found = _OPS.findall(text)
        for name, state, ranks in found:
            numbers = {int(rank) for rank in ranks.split(",") if rank.strip().isdecimal()}
            if state == "ready":
                self._ready.setdefault(name, set()).update(numbers)
            else:
                for rank in numbers:
                    self._missing.setdefault(rank, []).append(name)
        return bool(found)

    def record(self, world: int | None, source: str) -> Log:
        """The message as a record; `world` turns the ranks that are ready into those that are not."""
        missing = {rank: names for rank, names in self._missing.items()}
        ready = set[int]().union(*self._ready.values()) if self._ready else set[int]()
        if world is not None:
            for name, present in self._ready.items():
                for rank in sorted(set(range(world)) - present):
                    missing.setdefault(rank, []).append(name)
        fields = {"severity": self._severity}
        if self._seconds is not None:
            fields["seconds"] = self._seconds
        if self._shutdown is not None:
            fields["shutdown_seconds"] = self._shutdown
        if self._beyond:
            fields["beyond_shutdown"] = _numbers(self._beyond)
        if ready:
            fields["ready"] = _numbers(ready)
        names = {rank: list(dict.fromkeys(names)) for rank, names in sorted(missing.items())}
        tensors = list(dict.fromkeys(name for part in names.values() for name in part)) or list(self._ready)
        fields["tensors"] = ", ".join(tensors[:NAMES_KEPT])
        if len({tuple(sorted(part)) for part in names.values()}) > 1:  # ranks wait for each other in different places
            fields["per_rank"] = "; ".join(f"{r}: {', '.join(part[:NAMES_KEPT])}" for r, part in names.items())
        ended = self._shutdown is not None or self._severity == "E"
        return Log(
            ts=self.line.ts,
            event="stall_shutdown" if ended else "stall",
            text=self.line.text[:TEXT_KEPT],
            rank=self.line.rank,
            node=self.line.node,
            ranks=tuple(names),
            fields=fields,
            source=source,
        )


def starts_stall(text: str) -> bool:
    """Whether `text` is the head of a stall warning."""
    return _STALL in text


_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s+(?:\| *)?File "([^"]+)", line (\d+)(?:, in (\S+))?')
_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: ?(.*))?$")
_BARE_EXCEPTION = re.compile(
    r"(?:uncaught exception |Uncaught exception |Unhandled exception )?"
    r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|SystemExit))(?:: ?(.*))?$"
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
        return not text.strip() or text[0] in " \t|+"


def starts_traceback(text: str) -> bool:
    """Whether `text` is the head of a traceback."""
    return _TRACEBACK in text


def exception_in(line: Line, source: str, traceback: Traceback | None = None) -> Log | None:
    """The exception that `line` names: after a traceback any name will do, alone only one that looks like it."""
    match = (_EXCEPTION if traceback is not None else _BARE_EXCEPTION).match(line.text.strip())
    if match is None:
        return None
    kind, message = match[1], match[2] or ""
    found = find(line.text)
    short = kind.rpartition(".")[2]
    event = CASCADE_TYPES.get(short) or (found.event if found is not None else "exception")
    fields = {} if found is None else dict(found.fields)
    fields |= {"type": kind, "message": message[:TEXT_KEPT]}
    if traceback is not None and traceback.place is not None:
        fields["at"] = traceback.place
    return Log(
        ts=line.ts,
        event=event,
        text=line.text.strip()[:TEXT_KEPT],
        rank=line.rank,
        node=line.node,
        ranks=found.ranks if found is not None else (),
        fields=fields,
        source=source,
    )


_FIRST_NAME = re.compile(r"\s*Process name:\s*(?:\[\[\d+,\d+\],(\d+)\]|(\d+)\s*$|(\S+))")
_FIRST_CODE = re.compile(r"\s*Exit code:\s*(-?\d+)")


def first_failed(text: str) -> tuple[int | None, str | None] | None:
    """Rank or else name of the process that launchers name as the first to fail."""
    match = _FIRST_NAME.match(text)
    if match is None:
        return None
    rank = match[1] or match[2]
    return (None if rank is None else int(rank)), match[3]


def exit_code(text: str) -> str | None:
    """The exit code in the line after the name of the first failed process."""
    return _first(_FIRST_CODE, text)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else match[1]


def _numbers(ranks: list[int] | set[int]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))


class Blocks:
    """The messages of several lines that are open in one file, one for each rank and stream."""

    def __init__(self, file: str) -> None:
        self.took = False  # the line fed last belongs to such a message
        self._file = file
        self._open: dict[tuple[int | None, str], Stall | Traceback] = {}
        self._failed: tuple[int | None, str | None] | None = None

    def listing(self, key: tuple[int | None, str]) -> bool:
        """Whether the next line of this rank and stream may be an item of a stall's list."""
        return isinstance(self._open.get(key), Stall)

    def feed(self, key: tuple[int | None, str], line: Line, world: int | None) -> list[Log]:
        """Messages that this line completes; `took` tells whether it has been used up."""
        logs: list[Log] = []
        self.took = True
        block = self._open.get(key)
        if block is not None and block.takes(line.text):
            return logs
        if isinstance(block, Stall):
            logs.extend(self._close(key, world))
        elif block is not None:
            del self._open[key]
            log = exception_in(line, self._source(block.line), block)
            if log is not None:
                return [log]
        if starts_stall(line.text):
            self._open[key] = Stall(line)
        elif starts_traceback(line.text):
            self._open[key] = Traceback(line)
        elif log := self._single(line):
            logs.append(log)
        else:
            self.took = False
        return logs

    def overdue(self, ts: float, world: int | None) -> list[Log]:
        """Stalls whose lines must all have come by `ts`."""
        if not self._open:
            return []
        late = [
            key
            for key, block in self._open.items()
            if isinstance(block, Stall) and block.line.ts is not None and ts >= block.line.ts + CLOSE_AFTER_S
        ]
        return [log for key in late for log in self._close(key, world)]

    def finish(self, world: int | None = None) -> list[Log]:
        """What is open at the end of the file; a traceback without its exception says little and is left out."""
        return [log for key in list(self._open) for log in self._close(key, world)]

    def _close(self, key: tuple[int | None, str], world: int | None) -> list[Log]:
        block = self._open.pop(key)
        return [block.record(world, self._source(block.line))] if isinstance(block, Stall) else []

    def _single(self, line: Line) -> Log | None:
        if "rocess name:" in line.text and (failed := first_failed(line.text)) is not None:
            self._failed = failed
            return None
        if self._failed is not None and (code := exit_code(line.text)) is not None:
            (rank, node), self._failed = self._failed, None
            fields = {"code": code, "first": "yes"}
            return Log(
                ts=line.ts,
                event="process_exit",
                text=line.text.strip(),
                node=node,
                ranks=() if rank is None else (rank,),
                fields=with_signal(fields),
                source=self._source(line),
            )
        if "rror" in line.text or "xception" in line.text or "nterrupt" in line.text:
            return exception_in(line, self._source(line))
        return None

    def _source(self, line: Line) -> str:
        return f"{self._file}:{line.number}"
