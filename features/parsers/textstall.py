"""Reads the stall warnings of Horovod: who did not submit which tensors, in each layout since 2017."""

from __future__ import annotations

import re

from features.parsers.textline import TEXT_KEPT, Line
from features.records import Log

NAMES_KEPT = 6  # tensor names of a stall that a record repeats; Horovod's own list stops there too

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


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else match[1]


def _numbers(ranks: list[int] | set[int]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))
