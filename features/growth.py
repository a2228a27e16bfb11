"""What two readings of the same counters say together: the Host or Net record of the time between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from features.counters import DROPS, FULL, NOMINAL_S, Counters, is_counted
from features.parsers.hostcounters import CounterReset, cpu_ratios
from features.records import Host, Log, Net

RESET = "counter went back (restart, reset or overflow): of errors what it counted since is used, of traffic nothing"
STUCK = "counter stands at its maximum: what it would have counted since is not known"
AT_LEAST = "counter reached its maximum: it grew by at least what is shown"

NOT_A_DISK = ("dm-", "md", "loop", "ram", "zram", "sr", "fd")
"""Block devices that repeat the traffic of the disks below them, or are none."""


class Span(NamedTuple):
    """The time between two readings as it is written into their record."""

    node: str
    ts: float
    interval_s: float | None  # None: the snapshots carry no times

    @property
    def length_s(self) -> float:
        """Seconds to divide by."""
        return NOMINAL_S if self.interval_s is None else self.interval_s


class Differences:
    """Growth of each counter from one reading to the next, and what was odd about it, counter by counter."""

    def __init__(self, old: Counters, new: Counters) -> None:
        self.old, self.new = old.values, new.values
        self.oddities: list[tuple[str, str]] = []  # (counter, what)

    def of(self, name: str, *, reset_to_new: bool = False) -> float | None:
        """Growth of `name`; None if it is not known at both ends or says nothing.

        `reset_to_new`: a counter that went back began anew, and its value is the least that it can have grown.
        """
        before, after = self.old.get(name), self.new.get(name)
        if before is None or after is None:
            return None
        if after < before:
            self.oddities.append((name, RESET))
            return float(after) if reset_to_new else None
        if after == FULL.get(name):
            self.oddities.append((name, STUCK if before == after else AT_LEAST))
            return None if before == after else float(after - before)
        return float(after - before)

    def total(self, names: Iterable[str], *, reset_to_new: bool = False) -> float | None:
        """Growth of several counters together; None if none of them is known."""
        parts = [part for name in names if (part := self.of(name, reset_to_new=reset_to_new)) is not None]
        return math.fsum(parts) if parts else None

    def family(self, prefix: str) -> list[str]:
        """Names that start with `prefix` and a dot: one counter of many disks, interfaces or modes."""
        return [name for name in self.new if name.startswith(prefix + ".")]


def net_between(span: Span, differences: Differences, device: str, source: str) -> Net:
    """The record of one network device, or of all TCP connections of a node together."""
    names = sorted(name for name in differences.new if is_counted(name))
    grown = {name: part for name in names if (part := differences.of(name, reset_to_new=True)) is not None}
    drops = [part for name, part in grown.items() if name in DROPS]
    up = differences.new.get("is_up")
    return Net(
        ts=span.ts,
        node=span.node,
        device=device,
        interval_s=span.interval_s,
        rx_bytes_per_s=_traffic(differences, "rx_bytes", span.length_s),
        tx_bytes_per_s=_traffic(differences, "tx_bytes", span.length_s),
        drops_per_s=math.fsum(drops) / span.length_s if drops else None,
        errors={name: part / span.length_s for name, part in grown.items()},
        is_up=None if up is None else up > 0,
        source=source,
    )


def _traffic(differences: Differences, name: str, length_s: float) -> float | None:
    wire = f"{name}_phy"
    grown = differences.of(wire if wire in differences.new else name)
    return None if grown is None else grown / length_s


def host_between(span: Span, differences: Differences | None, values: dict[str, int | float], source: str) -> Host | None:
    """The record of one machine; without an older reading what it holds at this moment. None if that is nothing."""
    told = _gauges(values)
    if differences is not None:
        told |= _cpu(differences) | _rates(differences, span)
    if not told:
        return None
    cpus = values.get("cpus")
    interval = span.interval_s if differences is not None else None
    return Host(
        ts=span.ts,
        node=span.node,
        interval_s=interval,
        cpus=None if cpus is None else int(cpus),
        source=source,
        **told,
    )


def _gauges(values: dict[str, int | float]) -> dict[str, float]:
    told: dict[str, float] = {}
    available = values.get("memory_available_bytes", values.get("memory_free_bytes"))
    total = values.get("memory_total_bytes")
    if available is not None:
        told["memory_available_bytes"] = float(available)
    if available is not None and total is not None:
        told["memory_used_bytes"] = max(0.0, float(total - available))
    if "swap_total_bytes" in values and "swap_free_bytes" in values:
        told["swap_used_bytes"] = max(0.0, float(values["swap_total_bytes"] - values["swap_free_bytes"]))
    if "load1" in values:
        told["load1"] = float(values["load1"])
    return told


def _cpu(differences: Differences) -> dict[str, float]:
    new, old = (_modes(values) for values in (differences.new, differences.old))
    try:
        return cpu_ratios(new, old) if old else {}
    except CounterReset:
        differences.oddities.append(("cpu", RESET))
        return {}


def _modes(values: dict[str, int | float]) -> dict[str, float]:
    return {name.removeprefix("cpu."): float(value) for name, value in values.items() if name.startswith("cpu.")}


def _rates(differences: Differences, span: Span) -> dict[str, float]:
    grown = {
        "disk_read_bytes_per_s": differences.total(_disks(differences, "disk_read_bytes")),
        "disk_write_bytes_per_s": differences.total(_disks(differences, "disk_write_bytes")),
        "net_rx_bytes_per_s": differences.total(differences.family("net_rx_bytes")),
        "net_tx_bytes_per_s": differences.total(differences.family("net_tx_bytes")),
        "net_drops_per_s": differences.total(differences.family("net_drops")),
    }
    rates = {name: part / span.length_s for name, part in grown.items() if part is not None}
    busy = [part for name in _disks(differences, "disk_busy_s") if (part := differences.of(name)) is not None]
    if busy and span.interval_s is not None:  # the busiest disk; a share of a time that is not known is none
        rates["disk_busy_ratio"] = min(1.0, max(busy) / span.interval_s)
    return rates


def _disks(differences: Differences, prefix: str) -> list[str]:
    return [name for name in differences.family(prefix) if not name.partition(".")[2].startswith(NOT_A_DISK)]


def out_of_memory(span: Span, differences: Differences, source: str) -> Log | None:
    """The event that the kernel killed processes for lack of memory between the two readings."""
    killed = differences.of("oom_kill", reset_to_new=True)
    if killed is None or killed <= 0:
        return None
    text = f"the kernel killed {killed:.0f} processes of {span.node} for lack of memory (oom_kill)"
    return Log(ts=span.ts, event="host_oom", text=text, node=span.node, fields={"killed": f"{killed:.0f}"}, source=source)
