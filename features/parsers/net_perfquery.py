"""Reads the counters that `perfquery` prints of InfiniBand ports: `PortXmitWait:....................22730501`."""

from __future__ import annotations

import re

from features.parsers.net_moments import Moments
from features.parsers.net_numbers import integer

WORD = 4  # bytes: data is counted in words

NAMES: dict[str, tuple[str, int]] = {
    "PortXmitData": ("tx_bytes", WORD),
    "PortRcvData": ("rx_bytes", WORD),
    "SymbolErrorCounter": ("symbol_error", 1),
    "SymbolErrors": ("symbol_error", 1),
    "LinkErrorRecoveryCounter": ("link_error_recovery", 1),
    "LinkRecovers": ("link_error_recovery", 1),
    "LinkDownedCounter": ("link_downed", 1),
    "LinkDowned": ("link_downed", 1),
    "PortRcvErrors": ("port_rcv_errors", 1),
    "RcvErrors": ("port_rcv_errors", 1),
    "PortRcvRemotePhysicalErrors": ("port_rcv_remote_physical_errors", 1),
    "RcvRemotePhysErrors": ("port_rcv_remote_physical_errors", 1),
    "PortXmitDiscards": ("port_xmit_discards", 1),
    "XmtDiscards": ("port_xmit_discards", 1),
    "LocalLinkIntegrityErrors": ("local_link_integrity_errors", 1),
    "LinkIntegrityErrors": ("local_link_integrity_errors", 1),
    "ExcessiveBufferOverrunErrors": ("excessive_buffer_overrun_errors", 1),
    "ExcBufOverrunErrors": ("excessive_buffer_overrun_errors", 1),
    "PortXmitWait": ("port_xmit_wait", 1),
    "XmtWait": ("port_xmit_wait", 1),
    "XmtBytes": ("tx_bytes", WORD),
    "RcvBytes": ("rx_bytes", WORD),
    "XmtData": ("tx_bytes", WORD),
    "RcvData": ("rx_bytes", WORD),
}
"""Names of infiniband-diags, old and new, with what a count stands for. VL15 and switch-relay counts rise in health."""

HEADER = re.compile(r"# Port (?:extended )?counters: (?:Lid (?P<lid>\w+)|(?P<other>.+?)),? port (?P<port>\d+)")
COUNTER = re.compile(r"(?P<name>[A-Z][A-Za-z0-9]{3,40}):\.{2,}(?P<value>\S+)$")


class Perfquery:
    """The header names the port; lines without one belong to a port that nobody named."""

    def __init__(self) -> None:
        self._device = "ib"

    def read(self, line: str, into: Moments, number: int) -> bool | None:
        """Whether this is a line of perfquery; None if it is one that cannot be used."""
        if ":" not in line or (line[:1] != "#" and ":.." not in line):
            return False
        if header := HEADER.match(line):
            name = header["other"] if header["lid"] is None else f"lid {header['lid']}"
            self._device = f"{name}/{header['port']}"
            return True
        counter = COUNTER.match(line)
        if counter is None:
            return False
        if counter["name"] not in NAMES:
            return True
        value = integer(counter["value"])
        if value is None:
            return None
        name, unit = NAMES[counter["name"]]
        into.put(self._device, name, value * unit, number)
        return True
