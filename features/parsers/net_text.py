"""Reads text in which counters of network devices were saved, once or again and again, by the tools that print them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol, cast

from features.notices import Notices
from features.parsers.loglines import LineSplitter
from features.parsers.net_ethtool import Ethtool, RdmaStatistic, Tcp
from features.parsers.net_interfaces import Interfaces
from features.parsers.net_moments import Moments
from features.parsers.net_perfquery import Perfquery
from features.parsers.net_sysfs import Sysfs
from features.parsers.net_titles import ZONELESS, Titles
from features.parsers.protocol import ParserRow
from features.records import Record

LONGEST = 8192
"""Characters. The longest line of these tools, all counters of an RDMA port, has some 1500."""
LEAST = 2
"""Lines with counters that make a file one of these."""

DAMAGED = "counter without a usable value left out"
UNKNOWN = "line that holds no known counter left out"

_SIGNS = (
    *(b"counters: ", b"/counters/", b"hw_counters/", b"/statistics/", b"Counter:..", b"PortXmit"),
    *(b"face |bytes", b"> mtu ", b">  mtu ", b"NIC statistics", b"out_of_sequence", b"segments retransmit", b"RtoAlgorithm"),
)
"""One of these is in every file that is read here: cheap to look for."""

_PREFIX = re.compile(r"\[?(?P<node>[A-Za-z][\w.-]{0,80})\]?: (?=.*\S)")
_PROMPT = re.compile(r"\[?[\w.-]{1,40}@(?P<node>[A-Za-z][\w.-]{0,80})[ :][^#$]{0,200}[#$] (?P<command>.*)")


class Reader(Protocol):
    """Knows the lines of one tool."""

    def read(self, line: str, into: Moments, number: int) -> bool | None:
        """Whether the line is one of its own; None if it is, but cannot be used."""
        ...


def _readers() -> list[Reader]:
    return [Perfquery(), Sysfs(), RdmaStatistic(), Ethtool(), Interfaces(), Tcp()]


class _Lines:
    """Gives each line to the reader that knows it; lines that start with the name of a node are that node's."""

    def __init__(self, moments: Moments) -> None:
        self.titles = Titles(moments)
        self._moments = moments
        self._readers: dict[str | None, list[Reader]] = defaultdict(_readers)

    def read(self, line: str, number: int) -> bool | None:
        """True: counters or what belongs to them. None: a counter that cannot be used. False: anything else."""
        if "@" in line and (prompt := _PROMPT.match(line)):
            self._moments.node = prompt["node"]
            return self._counters(prompt["command"], number) or True
        told = self._counters(line, number)
        if told is False and not self.titles.read(line):
            return self._behind_name(line, number)
        return None if told is None else True

    def _behind_name(self, line: str, number: int) -> bool | None:
        prefix = _PREFIX.match(line)
        if prefix is None:
            return False
        node, self._moments.node = self._moments.node, prefix["node"]
        rest = line[prefix.end() :]
        told = self._counters(rest, number)
        if told is False:
            told = self.titles.read(rest)
        self._moments.node = node
        return told

    def _counters(self, line: str, number: int) -> bool | None:
        for reader in self._readers[self._moments.node]:
            told = reader.read(line, self._moments, number)
            if told is not False:
                return told
        return False


class NetText:
    """Each reading becomes a Counters record; what the lines of other programs say is left out and counted."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._splitter = LineSplitter(file, notices)
        self._moments = Moments(file)
        self._lines = _Lines(self._moments)

    @property
    def absolute(self) -> bool:
        """Whether a time was read."""
        return self._moments.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Readings of the moments that `data` completes."""
        for line in self._splitter.feed(data):
            self._line(line)
        return self._take()

    def finish(self) -> list[Record]:
        """Readings of the last moment."""
        for line in self._splitter.finish():
            self._line(line)
        self._moments.close()
        if self._lines.titles.zoneless:
            self._notices.add("info", ZONELESS, file=self._file)
        return self._take()

    def _line(self, line: bytes) -> None:
        told = (
            self._lines.read(line.decode("utf-8", errors="replace"), self._splitter.number) if len(line) <= LONGEST else False
        )
        if told is not True:
            place = f"line {self._splitter.number}"
            self._notices.add(
                "info" if told is False else "warning", UNKNOWN if told is False else DAMAGED, file=self._file, place=place
            )

    def _take(self) -> list[Record]:
        return cast("list[Record]", self._moments.take())


def sniff(head: bytes) -> bool:
    """Whether these first bytes are mostly lines of such tools, with counters among them."""
    if not any(sign in head for sign in _SIGNS):
        return False
    moments = Moments("")
    counted, other = _tally(head, _Lines(moments).read)
    moments.close()
    readings = sum(len(counters.values) for counters in moments.take())
    return readings >= LEAST and counted > other


def _tally(head: bytes, read: Callable[[str, int], bool | None]) -> tuple[int, int]:
    """Lines that belong to counters, and lines that do not; the last one may be cut and is left out."""
    lines = head.split(b"\n")
    whole = lines[:-1] if len(lines) > 1 else lines
    told = [
        read(line.rstrip(b"\r").decode("utf-8", errors="replace"), 1) for line in whole if line.strip() and len(line) <= LONGEST
    ]
    belongs = sum(answer is not False for answer in told)
    return belongs, len(told) - belongs


NET_TEXT = ParserRow("net", sniff, NetText)
