"""Keeps the messages of several lines that are open: stalls, tracebacks, the process that failed first."""

from __future__ import annotations

import re

from features.parsers.textevents import with_signal
from features.parsers.textline import Line
from features.parsers.textstall import Stall, starts_stall
from features.parsers.texttraceback import Traceback, exception_in, starts_traceback
from features.records import Log

CLOSE_AFTER_S = 1.0  # a stall's lines are written at once: a line of the file this much later cannot belong to it

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
