"""Reads what `ethtool -S`, `rdma statistic` and `netstat -s` (or /proc/net/snmp) count of one adapter or of TCP."""

from __future__ import annotations

import re

from features.counters import TCP
from features.parsers.net_moments import Moments
from features.parsers.net_numbers import integer

UNNAMED = "nic"
"""Device of a table above which nobody wrote the command."""

_COMMAND = re.compile(r".{0,200}\bethtool (?:-S|--statistics) (?P<device>[\w.@-]{1,40})\s*$")
_TITLE = re.compile(r"(?:(?P<device>[\w.@-]{1,40}):? )?NIC statistics(?: for (?P<other>[\w.@-]{1,40}))?:\s*$")
_ROW = re.compile(r"\s+(?P<name>[\w.\[\]() :-]{1,80}?):\s*(?P<value>\S+)\s*$")
_RDMA = re.compile(r"link (?P<device>[\w.-]{1,40}/\d+) (?P<pairs>[a-z]\w+ \d{1,20}(?: [a-z]\w+ \d{1,20})*)\s*$")
_SENT_AGAIN = re.compile(r"\s+(?P<value>\d{1,20}) segments (?:re)transmit+ed\s*$")
_SNMP = re.compile(r"(?:(?P<tcp>Tcp)|Ip|Icmp|IcmpMsg|Udp|UdpLite): (?P<columns>[A-Z]\w+(?: \w+)*|-?\d+(?: -?\d+)*)\s*$")


class Ethtool:
    """A table is the device's that the command or title above it names; those of nobody are told apart by their order."""

    def __init__(self) -> None:
        self._command: str | None = None
        self._device = UNNAMED
        self._in_table = False
        self._times, self._unnamed = 0, 0

    def read(self, line: str, into: Moments, number: int) -> bool | None:
        """Whether this is a line of such a table; None if it is one that cannot be used."""
        if not self._in_table and "ethtool" not in line and "NIC stat" not in line:
            return False
        if command := _COMMAND.match(line):
            self._command, self._in_table = command["device"], False
            return True
        if title := _TITLE.match(line):
            self._device = title["device"] or title["other"] or self._command or into.heading or self._ordinal(into)
            self._command, self._in_table = None, True
            return True
        row = _ROW.match(line) if self._in_table else None
        if row is None:
            self._in_table = False
            return False
        value = integer(row["value"])
        if value is None:
            return None
        into.put(self._device, row["name"], value, number, series="ethtool")
        return True

    def _ordinal(self, into: Moments) -> str:
        """Without names, the second table of a moment is taken for a second device, not for a second reading."""
        if into.times != self._times:
            self._times, self._unnamed = into.times, 0
        self._unnamed += 1
        return UNNAMED if self._unnamed == 1 else f"{UNNAMED} {self._unnamed}"


class RdmaStatistic:
    """One line holds all counters of a port."""

    def read(self, line: str, into: Moments, number: int) -> bool | None:
        """Whether this is a line of `rdma statistic`."""
        link = _RDMA.match(line) if line.startswith("link ") else None
        if link is None:
            return False
        words = link["pairs"].split()
        for name, text in zip(words[::2], words[1::2], strict=True):
            into.put(link["device"], name, int(text), number)
        return True


class Tcp:
    """Segments that were sent again: one line of netstat, or two of /proc/net/snmp, the first with the names."""

    def __init__(self) -> None:
        self._columns: list[str] = []

    def read(self, line: str, into: Moments, number: int) -> bool | None:
        """Whether this line counts what TCP sent again; None if its numbers do not fit their names."""
        if "segments" not in line and ": " not in line:
            return False
        if again := _SENT_AGAIN.match(line):
            into.put(TCP, "retrans_segs", int(again["value"]), number)
            return True
        table = _SNMP.match(line)
        if table is None:
            return False
        if table["tcp"] is None:
            return True
        words = table["columns"].split()
        if words[0] == "RtoAlgorithm":
            self._columns = words
            return True
        columns, self._columns = self._columns, []
        value = (
            integer(words[columns.index("RetransSegs")]) if "RetransSegs" in columns and len(words) == len(columns) else None
        )
        if value is None:
            return None
        into.put(TCP, "retrans_segs", value, number)
        return True
