"""Reads the counters of interfaces that `ip -s link`, `ifconfig` and /proc/net/dev show."""

from __future__ import annotations

import re

from features.parsers.net_moments import Moments
from features.parsers.net_numbers import integer

PROC_COLUMNS = (
    "rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "rx_fifo_errors", "rx_frame_errors", "rx_compressed", "multicast",
    "tx_bytes", "tx_packets", "tx_errors", "tx_dropped", "tx_fifo_errors", "collisions", "tx_carrier_errors", "tx_compressed",
)  # fmt: skip
"""Columns of /proc/net/dev."""

_PROC_HEADER = re.compile(r"Inter-\|\s+Receive\s+\||\s*face \|bytes\s+packets\s")
_PROC_LINE = re.compile(r"\s*(?P<device>[^\s:]{1,40}):\s*(?P<values>\d{1,20}(?:\s+\d{1,20}){15})\s*$")
_LINK = re.compile(r"\d+: (?P<device>[^\s:@]{1,40})(?:@\S+)?: <(?P<flags>[A-Z_,-]*)> mtu \d+(?P<rest>.*)")
_LINK_DETAIL = re.compile(r"\s+(?:link/\w+ [0-9a-f:]+|altname \S|inet6? \S|valid_lft \S|promiscuity \d|vf \d+ )")
_TABLE = re.compile(r"\s*(?P<side>[RT]X)(?P<more> errors)?:\s+(?P<columns>[a-z]\w*(?:\s+[a-z]\w*)*)\s*$")
_TABLE_ROW = re.compile(r"\s*\d+(?:\s+\d+)*\s*$")
_IFCONFIG = re.compile(r"(?P<device>[^\s:]{1,40}): flags=\d+<(?P<flags>[A-Z_,]*)>\s+mtu \d+")
_IFCONFIG_COUNTS = re.compile(r"\s+(?P<side>[RT]X) (?:packets|errors)\b")
_IFCONFIG_PAIR = re.compile(r"([a-z]+) (\d{1,20})\b")
_IFCONFIG_DETAIL = re.compile(r"\s+(?:inet6? |ether |infiniband |loop |unspec |device memory )")

_COLUMN_NAMES = {
    "errors": "errors",
    "dropped": "dropped",
    "overrun": "fifo_errors",
    "overruns": "fifo_errors",
    "missed": "missed_errors",
    "fifo": "fifo_errors",
    "crc": "crc_errors",
    "frame": "frame_errors",
    "carrier": "carrier_errors",
    "transns": "",
}
"""Words of the tools -> names of the kernel, less the direction; an empty one has none."""
_STATE = re.compile(r"\bstate (UP|DOWN)\b")


class Interfaces:
    """The line that names an interface stands above its counters, or before them in /proc/net/dev."""

    def __init__(self) -> None:
        self._device: str | None = None
        self._columns: list[str] = []

    def read(self, line: str, into: Moments, number: int) -> bool | None:
        """Whether this is a line of one of these; None if it is one that cannot be used."""
        columns, self._columns = self._columns, []
        if columns and _TABLE_ROW.match(line):
            return self._row(columns, line, into, number)
        if proc := _PROC_LINE.match(line):
            for name, value in zip(PROC_COLUMNS, proc["values"].split(), strict=True):
                into.put(proc["device"], name, int(value), number)
            return True
        return self._named(line, into, number) or _PROC_HEADER.match(line) is not None

    def _named(self, line: str, into: Moments, number: int) -> bool:
        if link := _LINK.match(line):
            self._device = link["device"]
            if state := _STATE.search(link["rest"]):
                into.put(self._device, "is_up", int(state[1] == "UP"), number)
            return True
        if interface := _IFCONFIG.match(line):
            self._device = interface["device"]
            into.put(self._device, "is_up", int("RUNNING" in interface["flags"]), number)
            return True
        if self._device is None:
            return False
        if table := _TABLE.match(line):
            self._columns = [f"{table['side']} {word}" for word in table["columns"].split()]
            return True
        if counts := _IFCONFIG_COUNTS.match(line):
            for word, value in _IFCONFIG_PAIR.findall(line):
                self._put(f"{counts['side']} {word}", int(value), into, number)
            return True
        return _LINK_DETAIL.match(line) is not None or _IFCONFIG_DETAIL.match(line) is not None

    def _row(self, columns: list[str], line: str, into: Moments, number: int) -> bool | None:
        values = line.split()
        if len(values) != len(columns):
            return None
        for column, text in zip(columns, values, strict=True):
            value = integer(text)
            if value is not None:
                self._put(column, value, into, number)
        return True

    def _put(self, column: str, value: int, into: Moments, number: int) -> None:
        """`ip -s -s` shows some counters twice, under two words."""
        side, _, word = column.partition(" ")
        kind = _COLUMN_NAMES.get(word, word)
        if kind and self._device is not None:
            into.put(self._device, f"{side.lower()}_{kind}", value, number, series=word)
