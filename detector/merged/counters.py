"""Draws what is sampled as counters: processes, hosts, GPUs, network devices and the cycles of the coordinator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from detector.merged.layout import Layout, exact_enough, micros
from detector.merged.writer import Event
from features.records import Cycles, Gpu, Host, Net, Process

Sample = Process | Host | Gpu | Net | Cycles


class Series(NamedTuple):
    """One counter: where its value stands, what it is called, and its unit."""

    field: str
    name: str
    unit: str
    is_over_interval: bool = True  # it was so since the sample before: drawn from there on, not from this sample on


PROCESS = (
    Series("cpu_cores", "CPU", "cores"),
    Series("rss_bytes", "RSS", "bytes", False),
    Series("workers_cpu_cores", "CPU of loader workers", "cores"),
    Series("workers_rss_bytes", "RSS of loader workers", "bytes", False),
    Series("read_bytes_per_s", "disk read", "bytes/s"),
    Series("write_bytes_per_s", "disk written", "bytes/s"),
    Series("net_tx_bytes_per_s", "network sent", "bytes/s"),
    Series("net_rx_bytes_per_s", "network received", "bytes/s"),
    Series("tcp_retransmits_per_s", "TCP retransmits", "1/s"),
)
HOST = (
    Series("cpu_ratio", "CPU", "ratio"),
    Series("iowait_ratio", "iowait", "ratio"),
    Series("load1", "load", "tasks", False),
    Series("memory_used_bytes", "memory used", "bytes", False),
    Series("memory_available_bytes", "memory available", "bytes", False),
    Series("swap_used_bytes", "swap used", "bytes", False),
    Series("disk_read_bytes_per_s", "disk read", "bytes/s"),
    Series("disk_write_bytes_per_s", "disk written", "bytes/s"),
    Series("disk_busy_ratio", "disk busy", "ratio"),
    Series("net_tx_bytes_per_s", "network sent", "bytes/s"),
    Series("net_rx_bytes_per_s", "network received", "bytes/s"),
    Series("net_drops_per_s", "network drops", "1/s"),
)
GPU = (
    Series("utilization_ratio", "utilisation", "ratio", False),
    Series("power_w", "power", "W", False),
    Series("memory_used_bytes", "memory used", "bytes", False),
    Series("temperature_c", "temperature", "°C", False),
    Series("sm_clock_hz", "SM clock", "Hz", False),
)
NET = (
    Series("tx_bytes_per_s", "sent", "bytes/s"),
    Series("rx_bytes_per_s", "received", "bytes/s"),
    Series("drops_per_s", "drops", "1/s"),
)
CYCLES = (
    Series("count", "cycles", "in this second", False),
    Series("max_gap_s", "longest time between cycles", "s", False),
)
GONE = "gone"
"""Status of a process that has ended: it uses nothing, although nobody could measure that."""


def weight_of_sample(record: Sample) -> int:
    """The most events that may draw a sample: values that stay the same make none."""
    return sum(1 for _ in _values(record))


class Counters:
    """Draws samples; a value that stays the same is not repeated, since counters hold their value."""

    def __init__(self, layout: Layout, start: float) -> None:
        """`start` is the moment that the trace counts from."""
        self._layout, self._start = layout, start
        self._last: dict[tuple[int, str], float] = {}

    def draw(self, record: Sample) -> Iterator[Event]:
        """The counters of one sample."""
        pid = self._process(record)
        interval_s = getattr(record, "interval_s", None)
        for series, value in _values(record):
            if self._last.get((pid, series.name)) == value:
                continue
            self._last[pid, series.name] = value
            at = record.ts - interval_s if series.is_over_interval and interval_s is not None else record.ts
            args = {series.unit: exact_enough(value)}
            yield Event(ph="C", ts=micros(at - self._start), pid=pid, tid=pid, name=series.name, cat="sample", args=args)

    def _process(self, record: Sample) -> int:
        match record:
            case Process():
                return self._layout.rank(record.rank)
            case Gpu():
                return self._layout.writer(record.rank, record.node)
            case Cycles():
                return self._layout.coordinator()
            case _:
                return self._layout.node(record.node)


def _values(record: Sample) -> Iterator[tuple[Series, float]]:
    table, prefix = _table(record)
    gone = isinstance(record, Process) and record.status == GONE
    for series in table:
        value = 0.0 if gone and series.field in ("cpu_cores", "rss_bytes") else getattr(record, series.field)
        if value is not None and math.isfinite(value):
            yield series._replace(name=prefix + series.name) if prefix else series, value
    if isinstance(record, Net):
        for name, value in sorted(record.errors.items()):
            if math.isfinite(value):
                yield Series(name, prefix + name, "1/s"), value


def _table(record: Sample) -> tuple[tuple[Series, ...], str]:
    match record:
        case Process():
            return PROCESS, ""
        case Host():
            return HOST, ""
        case Gpu():
            return GPU, f"{record.gpu} " if record.gpu.upper().startswith("GPU") else f"GPU {record.gpu} "
        case Net():
            return NET, f"{record.device} "
        case Cycles():
            return CYCLES, ""
