"""Takes launcher and platform prefixes off log lines: who wrote a line, in which stream, on which node.

mpirun and horovodrun put a tag before every piece that they read from a process, so one physical line may hold pieces
of several ranks and one logical line may need several physical ones. `TagJoiner` undoes that; `peel` takes off what
platforms and frameworks put before the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

PENDING_CAP = 1 << 20  # characters of one unfinished logical line; the rest of a longer one is dropped

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_TAG = re.compile(r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ?)?\[(?:[\w.@-]*?\d+,)?(\d{1,9})\]<(stdout|stderr|stddiag)>: ?")
_BARE_TAG = re.compile(r"\[(?:\d+,)?(\d{1,9})\]<(stdout|stderr|stddiag)>:")


class Piece(NamedTuple):
    """One logical line: the number of the physical line that it began in, its writer and its text."""

    number: int
    text: str
    rank: int | None = None
    stream: str = ""


class Pending(NamedTuple):
    """A logical line whose end has not come yet."""

    number: int
    text: str


def strip_escapes(text: str) -> str:
    """Text without colours, cursor movements and window titles."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


class TagJoiner:
    """Joins the pieces of each rank and stream; the end of a physical line ends only the piece before it."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], Pending] = {}
        self.tagged = False  # a launcher's tag was seen: lines without one are the launcher's own

    def feed(self, number: int, text: str) -> Iterator[Piece]:
        """Logical lines that this physical line ends."""
        if "]<std" not in text:
            yield Piece(number, text)
            return
        self.tagged = True
        match = _BARE_TAG.match(text)
        if match is not None and text.find("]<std", match.end()) < 0:  # the usual case: one tag, in front
            yield self._close(number, int(match[1]), match[2], text[match.end() :], None)
            return
        yield from self._split(number, text)

    def finish(self) -> Iterator[Piece]:
        """Logical lines whose end never came, in the order in which they began."""
        for (rank, stream), (number, text) in sorted(self._open.items(), key=lambda item: item[1].number):
            yield Piece(number, text, rank, stream)
        self._open.clear()

    def _split(self, number: int, text: str) -> Iterator[Piece]:
        tags = list(_TAG.finditer(text))
        if not tags:
            yield Piece(number, text)
            return
        outer = text[: tags[0].start()]  # what a platform put before the whole line, its time above all
        for tag, after in zip(tags, [*tags[1:], None], strict=True):
            # The blank after a tag is the tag's own only in the long form of newer Open MPI.
            start = tag.end() if "@" in tag[0] else tag.end() - tag[0].endswith(" ")
            rank, stream = int(tag[1]), tag[2]
            if after is None:
                yield self._close(number, rank, stream, text[start:], outer)
            else:
                self._extend(number, rank, stream, outer, text[start : after.start()])
                outer = ""

    def _extend(self, number: int, rank: int, stream: str, outer: str, text: str) -> None:
        pending = self._open.get((rank, stream))
        if pending is None:
            self._open[rank, stream] = Pending(number, outer + text)
        elif len(pending.text) < PENDING_CAP:
            self._open[rank, stream] = Pending(pending.number, pending.text + text)

    def _close(self, number: int, rank: int, stream: str, text: str, outer: str | None) -> Piece:
        pending = self._open.pop((rank, stream), None) if self._open else None
        if pending is not None:
            return Piece(pending.number, pending.text + text, rank, stream)
        return Piece(number, outer + text if outer else text, rank, stream)


class Peeled(NamedTuple):
    """A line without one prefix: what the prefix said of rank and node, and the rest."""

    rank: int | None
    node: str | None
    rest: str


# By the first character of the line: in brackets, in parentheses, anything else. Each takes one prefix off; `rank` and
# `node` are what it says. The first that matches is taken.
_BRACKETS = (
    re.compile(r"\[(?:default|rank|worker|trainer)(?P<rank>\d{1,7})\]: ?"),  # torch and torchrun --tee
    re.compile(r"\[\d{1,9}\] (?=\[rank\d)"),  # a collector's own number before torch's
)
_PARENTHESES = (re.compile(r"\(\w[\w.:<>]* pid=\d+(?:, ip=(?P<node>[\w.:-]+))?\) ?"),)  # Ray
_WORDS = (
    re.compile(r"[\w.-]{1,60}\.\d+ -- "),  # Kubernetes platforms: pod and index
    re.compile(r"[\w.-]{1,80}\.\d+(?:\.\w+)?(?:@(?P<node>[\w.-]+))? +\| ?"),  # docker service logs
    re.compile(r"[\w.-]{1,80}-\d+ +\| "),  # docker compose
    re.compile(r"(?P<node>[\w.-]{1,80}): (?=\[\d{4}-)"),  # pdsh, under DeepSpeed
    re.compile(r"(?:stdout|stderr) [FP] "),  # containerd
    re.compile(r"(?:kern|user|daemon|syslog) *: ?(?:emerg|alert|crit|err|warn|notice|info|debug) *: "),  # dmesg -x
    re.compile(r"(?P<node>[A-Za-z][\w.-]*) kernel: ?"),  # syslog and journal
)
_WORD_MARKS = ("| ", " -- ", ": [", "kernel:", "std", " : ")  # one of these is in every line that one of `_WORDS` fits
_SRUN = re.compile(r" {0,4}(\d{1,5}): ")
_LIST = re.compile(r"\[[^\]]*(?:\]|\.\.\.)? *$")


def peel(text: str) -> Peeled | None:
    """Take one prefix off the front of `text`, None if there is none."""
    for pattern in _candidates(text):
        match = pattern.match(text)
        if match is not None:
            said = match.groupdict()
            rank = said.get("rank")
            return Peeled(None if rank is None else int(rank), said.get("node"), text[match.end() :])
    return None


def _candidates(text: str) -> tuple[re.Pattern[str], ...]:
    head = text[:1]
    if head == "[":
        return _BRACKETS
    if head == "(":
        return _PARENTHESES
    if head.isalnum():
        for mark in _WORD_MARKS:
            if mark in text:
                return _WORDS
    return ()


def peel_label(text: str, sure: bool) -> Peeled | None:
    """Take the label of `srun -l` off ("12: ", " 3: "); unless `sure`, items like "3: [name, name]" are no labels."""
    match = _SRUN.match(text)
    if match is None or (not sure and _LIST.match(text, match.end())):
        return None
    return Peeled(int(match[1]), None, text[match.end() :])
