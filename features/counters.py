"""Raw counters of one moment, as snapshots give them, and what the known counters of network devices speak of."""

from __future__ import annotations

import re

import msgspec

NOMINAL_S = 60.0
"""Seconds that are taken to lie between two snapshots without times (the usual scrape interval), so that ratios can be
formed; such records carry `interval_s=None`."""

MACHINE = ""
"""`device` of readings that belong to the node as a whole."""
TCP = "tcp"
"""`device` of what the kernel counts for all TCP connections of a node together."""


class Counters(msgspec.Struct, frozen=True, kw_only=True, tag="counters"):
    """Readings of one device of one node at one moment; only the difference of two such records means something.

    A parser sees one file only, and the other reading may lie in another: `features.snapshots` turns these records into
    Host and Net records before anybody else sees them. `ts` and `node` are None where the file does not say.
    """

    ts: float | None
    node: str | None
    device: str  # eth0, mlx5_1/1, "lid 1719/1", TCP, or MACHINE
    values: dict[str, int | float]
    source: str = ""


# Names are those of the files under /sys/class/infiniband and /sys/class/net, and of mlx5's `ethtool -S`.
LINK_BREAKS = frozenset(
    {
        "link_downed",
        "link_error_recovery",
        "link_down_events_phy",
        "carrier_changes",
        "carrier_down_changes",
    }
)
"""Each count is an interruption of the link: one is enough."""

LINK_ERRORS = frozenset(
    {
        "symbol_error",
        "port_rcv_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "rx_crc_errors",
        "rx_crc_errors_phy",
        "rx_symbol_err_phy",
        "rx_frame_errors",
        "rx_errors_phy",
        "tx_errors_phy",
        "tx_carrier_errors",
    }
)
"""Damage seen at this end of the link: single counts are noise, many are a cable, transceiver or port."""

LINK_HINTS = frozenset({"rx_errors", "tx_errors", "port_rcv_remote_physical_errors"})
"""Errors that may have other reasons than this link: sums of many kinds, and what a switch on the way marked as bad."""

DROPS = frozenset(
    {
        "port_xmit_discards",
        "port_rcv_discards",
        "rx_dropped",
        "tx_dropped",
        "rx_missed_errors",
        "rx_fifo_errors",
        "tx_fifo_errors",
        "rx_discards_phy",
        "tx_discards_phy",
        "rx_out_of_buffer",
    }
)
"""Packets thrown away on this node: buffers were full."""

RETRIES = frozenset(
    {
        "retrans_segs",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "out_of_buffer",
    }
)
"""Sent again, since something was lost or nobody was ready. Not out_of_sequence: adaptive routing moves that in health."""

MARKS = frozenset({"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"})
"""Signs of RoCE's congestion control: packets that met a full queue, and requests to send more slowly."""

XMIT_WAIT = "port_xmit_wait"
"""Ticks in which the port had data to send and could not."""

PAUSED_US = re.compile(r"[rt]x_(?:prio\d|global)_pause_duration$")
"""Microseconds of pause: `rx` during which the other end forbade this one to send, `tx` this one the other."""

COUNTED = LINK_BREAKS | LINK_ERRORS | LINK_HINTS | DROPS | RETRIES | MARKS | {XMIT_WAIT, "out_of_sequence"}

BYTES = ("rx_bytes", "tx_bytes", "rx_bytes_phy", "tx_bytes_phy")
"""Traffic; `_phy` counts on the wire and so sees RDMA, which passes the kernel by."""

_WORD = 4 * 0xFFFF_FFFF  # bytes: a full 32-bit counter of 4-byte words
FULL: dict[str, int] = {
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
    XMIT_WAIT: 0xFFFF_FFFF,
    "rx_bytes": _WORD,
    "tx_bytes": _WORD,
}
"""Where the counters of the IBTA's PortCounters attribute stop and stay; extended counters go on beyond."""


def is_counted(name: str) -> bool:
    """Whether a counter moves in faults or congestion only, so that its growth belongs into `Net.errors`."""
    return name in COUNTED or PAUSED_US.match(name) is not None


BENCHMARK = "bus_bytes_per_s"
"""Value of a device that is a benchmark: the best rate it reached, no counter."""
