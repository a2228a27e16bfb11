"""Reads dumps of counter files under /sys: `path:value` lines of grep, or `==> path <==` with the value below."""

from __future__ import annotations

import re

from features.parsers.net_moments import Moments
from features.parsers.net_numbers import integer
from features.parsers.net_perfquery import WORD

_ABOVE = r"(?:[\w./:+-]*/)?"
_PATHS = tuple(
    re.compile(pattern)
    for pattern in (
        _ABOVE + r"(?P<device>[\w.-]+)/ports/(?P<port>\d+)/(?:hw_)?counters/(?P<name>\w+)",
        _ABOVE + r"(?P<device>[\w.-]+)/ports/(?P<port>\d+)/(?P<name>state|phys_state|rate)",
        _ABOVE + r"(?P<device>[\w-][\w.-]*)/(?P<port>)hw_counters/(?P<name>\w+)",
        r"(?:\./)?(?P<device>)(?P<port>)(?:hw_)?counters/(?P<name>\w+)",
        _ABOVE + r"(?P<device>[\w.@-]+)/(?P<port>)statistics/(?P<name>\w+)",
        _ABOVE + r"net/(?P<device>[\w.@-]+)/(?P<port>)(?P<name>carrier(?:_changes|_\w+_count)?|operstate)(?!\w)",
    )
)
_VALUE = re.compile(r"(?:\s*[:=]\s*|\s+)(?P<value>\S.*)$")
_HEADING = re.compile(r"==> (?P<path>\S+) <==$")

UNNAMED = "ib"
"""Device of counters whose path begins below it."""
_DATA = {"port_xmit_data": "tx_bytes", "port_rcv_data": "rx_bytes"}
"""Files in words, under the name for bytes."""
_OTHER_NAMES = {"carrier_down_count": "carrier_down_changes", "carrier_up_count": "carrier_up_changes"}
_STATES = {"state": ("ACTIVE", "DOWN"), "operstate": ("up", "down")}
"""Files that say whether the link is up, with the words for it; other words (INIT, unknown) decide nothing."""
_NO_COUNT = frozenset({"phys_state", "rate", "carrier"})
_NO_VALUE = ("N/A", "n/a", "Invalid", "cannot", "Permission")
"""What the kernel or grep writes where there is no counter: nothing is damaged then."""


class Sysfs:
    """The path names the device; a heading keeps its path for the line that follows."""

    def __init__(self) -> None:
        self._heading: str | None = None

    def read(self, line: str, into: Moments, number: int) -> bool | None:
        """Whether this is a line of such a dump; None if it is one that cannot be used."""
        above, self._heading = self._heading, None
        if above is None and "/" not in line:
            return False
        if heading := _HEADING.match(line):
            self._heading = heading["path"]
            return any(pattern.fullmatch(heading["path"]) for pattern in _PATHS)
        if above is not None:
            match = next((m for pattern in _PATHS if (m := pattern.fullmatch(above))), None)
            return _put(match, line.strip(), into, number) if match is not None else False
        for pattern in _PATHS:
            match = pattern.match(line)
            if match is not None and (value := _VALUE.match(line, match.end())):
                return _put(match, value["value"].strip(), into, number)
        return False


def _put(path: re.Match[str], value: str, into: Moments, number: int) -> bool | None:
    name = path["name"]
    device = "/".join(part for part in (path["device"].partition("@")[0] or UNNAMED, path["port"]) if part)
    if name in _STATES:
        up, down = _STATES[name]
        if up in value or down in value:
            into.put(device, "is_up", int(up in value), number)
        return True
    if name in _NO_COUNT or value.startswith(_NO_VALUE):
        return True
    count = integer(value)
    if count is None:
        return None
    if name in _DATA:
        into.put(device, _DATA[name], count * WORD, number)
    else:
        into.put(device, _OTHER_NAMES.get(name, name), count, number)
    return True
