"""Recognises messages of several lines of one rank and stream: stalls, tracebacks, the first failed process."""

from __future__ import annotations

import re

from features.parsers.textevents import find, with_signal
from features.parsers.textline import SCAN_MAX, TEXT_KEPT, Line
from features.records import Log

NAMES_KEPT = 6  # tensor names of a stall that a record repeats; Horovod's own list stops there too
CLOSE_AFTER_S = 1.0  # a stall's lines are written at once: a line of the file this much later cannot belong to it

_STALL = "submitted to be reduced"
_STALL_SECONDS = re.compile(r"for more than (\d+) seconds")
_SEVERITY = re.compile(r"\b([WEF]) \S+\.cc:\d+\]")
_RANK_LINE = re.compile(r"\s*(\d{1,7})(!?): \[")
_OPS = re.compile(r"(?<![^\s,\[\]:])([^\s,\[\]:]+) \[(ready|missing) ranks: ?([\d, ]*)\]?")
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

    @property
    def complete(self) -> bool:
        """Whether the last line that such a message can have was taken in."""
        return self._shutdown is not None

    def takes(self, text: str) -> bool:
        """Whether `text` goes on with this message; takes it in if so."""
        if not text.strip() or _LIST_HEAD.search(text):
            return True
        if match := _RANK_LINE.match(text):
            listed = text[match.end() :].rstrip().removesuffix("]").removesuffix(" ...")
            names = [name for part in listed.split(",") if (name := part.strip())]
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
    text = line.text[:SCAN_MAX].strip()
    match = (_EXCEPTION if traceback is not None else _BARE_EXCEPTION).match(text)
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


# How launchers name the first process that failed, over two lines: Horovod and Open MPI, MPICH, torchrun.
_FIRST_NAME = re.compile(
    r"\s*Process name:\s*(?:\[\[\d+,\d+\],(?P<a>\d{1,7})\]|(?P<b>\d{1,7})\s*$|(?P<name>\S+))"
    r"|=\s+RANK (?P<c>\d{1,7}) PID \d+ RUNNING AT (?P<node>\S+)"
    r"|\s+rank +: (?P<d>\d{1,7}) \(local_rank: \d+\)"
)
_FIRST_CODE = re.compile(r"\s*Exit code:\s*(-?\d+)|=\s+EXIT (?:CODE|STATUS): (\d+)|\s+exitcode +: (-?\d+)")
_FIRST_SIGNAL = re.compile(r"=\s+KILLED BY SIGNAL: (\d+)")


class FirstFailed:
    """The process that a launcher names as the first to fail, in one line by name and in another by its end."""

    def __init__(self) -> None:
        self._name: re.Match[str] | None = None

    def takes(self, line: Line, source: str) -> list[Log] | None:
        """The message that `line` completes, an empty list if it begins one, None if it has nothing to do with it."""
        if "ame:" in line.text or "RANK" in line.text or "local_rank" in line.text:
            match = _FIRST_NAME.match(line.text)
            if match is not None:
                self._name = match
                return []
        if self._name is None:
            return None
        fields = _ending(line.text)
        if not fields:
            return None
        said, self._name = self._name.groupdict(), None
        rank = next((said[key] for key in "abcd" if said[key] is not None), None)
        log = Log(
            ts=line.ts,
            event="process_exit",
            text=line.text.strip(),
            node=said["node"] or said["name"],
            ranks=() if rank is None else (int(rank),),
            fields=with_signal(fields | {"first": "yes"}),
            source=source,
        )
        return [log]


def _ending(text: str) -> dict[str, str]:
    if match := _FIRST_CODE.match(text):
        return {"code": next(group for group in match.groups() if group is not None)}
    signal = _first(_FIRST_SIGNAL, text)
    return {} if signal is None else {"signal": signal}


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else match[1]


def _numbers(ranks: list[int] | set[int]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))


class Blocks:
    """The messages of several lines that are open in one file, one for each rank and stream."""

    def __init__(self, file: str) -> None:
        self.open: dict[tuple[int | None, str], Stall | Traceback] = {}
        self._file = file
        self._failed = FirstFailed()

    def listing(self, key: tuple[int | None, str]) -> bool:
        """Whether the next line of this rank and stream may be an item of a stall's list."""
        return isinstance(self.open.get(key), Stall)

    def feed(self, key: tuple[int | None, str], line: Line, world: int | None) -> tuple[bool, list[Log]]:
        """Whether the line has been used up, and the messages that it completes."""
        logs: list[Log] = []
        block = self.open.get(key)
        if block is not None:
            if block.takes(line.text):
                return True, self._close(key, world) if isinstance(block, Stall) and block.complete else []
            logs = self._close(key, world)
            if isinstance(block, Traceback) and (log := exception_in(line, self._source(block.line), block)):
                return True, [*self.close(world, stalls_only=True), log]
        if starts_stall(line.text):
            logs += self.close(world, stalls_only=True)
            self.open[key] = Stall(line)
            return True, logs
        if starts_traceback(line.text):
            self.open[key] = Traceback(line)
            return True, logs
        single = self._single(line)
        if not single:
            return single is not None, logs
        return True, [*logs, *self.close(world, stalls_only=True), *single]  # what came before goes before

    def overdue(self, ts: float, world: int | None) -> list[Log]:
        """Stalls whose lines must all have come by `ts`."""
        late = [
            key
            for key, block in self.open.items()
            if isinstance(block, Stall) and block.line.ts is not None and ts >= block.line.ts + CLOSE_AFTER_S
        ]
        return [log for key in late for log in self._close(key, world)]

    def close(self, world: int | None, stalls_only: bool = False) -> list[Log]:
        """What is open; a traceback without its exception says too little and is left out."""
        keys = [key for key, block in self.open.items() if isinstance(block, Stall) or not stalls_only]
        return [log for key in keys for log in self._close(key, world)]

    def _close(self, key: tuple[int | None, str], world: int | None) -> list[Log]:
        block = self.open.pop(key)
        return [block.record(world, self._source(block.line))] if isinstance(block, Stall) else []

    def _single(self, line: Line) -> list[Log] | None:
        """Messages of one line that need the lines before: None if this is none of them."""
        failed = self._failed.takes(line, self._source(line))
        if failed is not None:
            return failed
        if "rror" in line.text or "xception" in line.text or "nterrupt" in line.text:
            found = exception_in(line, self._source(line))
            return None if found is None else [found]
        return None

    def _source(self, line: Line) -> str:
        return f"{self._file}:{line.number}"
