"""Reads `telemetry.jsonl`: cumulative counters of one host and its ranks' processes, one JSON object a sample."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from features.notices import Notices
from features.parsers.hostcounters import (
    CounterReset,
    cpu_ratios,
    delta,
    net_delta,
    number,
    scaled,
    sum_delta,
    table,
    whole,
)
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.records import Host, Process, Record

MEGABYTE = 1e6  # bytes; the sampler divides by 10**6, not by 2**20
LINE_CAP = 16 << 20  # bytes; a sample takes 600 bytes a rank, so this holds 25 000 ranks on one host
DEFAULT_NODE = "localhost"  # a sample without `node` speaks of the machine that wrote it

RESET = "counter went back (restart or overflow), no rates for that interval"
BACKWARDS = "time of a sample is not later than the one before, no rates for that interval"
DAMAGED = "damaged line left out: not a JSON object with a time `ts`"
NO_SAMPLE = "process of a rank could not be sampled"

_decode = msgspec.json.Decoder().decode


def sniff(head: bytes) -> bool:
    """True if the first line is a sample; a line cut by the end of `head` is judged by its first keys."""
    line, newline, _ = head.lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if not newline and not line.rstrip().endswith(b"}"):
        return b'"ts"' in line and b'"host"' in line and b'"cpu_times"' in line
    try:
        sample = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(sample, dict) and "ts" in sample and (_is_table(sample, "host") or _is_table(sample, "ranks"))


def _is_table(sample: dict[str, Any], key: str) -> bool:
    return isinstance(sample.get(key), dict)


class TelemetryJsonl:
    """Each sample gives one Host and one Process a rank; rates are over the interval since the sample before.

    The first sample has gauges only. A rank's network rates are those of its network namespace, the loopback
    included: ranks that share one host's namespace all show the same, a rank with its own shows its own traffic.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices, LINE_CAP)
        self._before: dict[str, dict[str, Any]] = {}  # node -> its sample before

    def feed(self, data: bytes) -> list[Record]:
        """Records of the lines that `data` completes."""
        return [record for line in self._lines.feed(data) for record in self._read(line)]

    def finish(self) -> list[Record]:
        """Records of a last line without end of line."""
        return [record for line in self._lines.finish() for record in self._read(line)]

    def _read(self, line: bytes) -> list[Record]:
        if not line.strip():
            return []
        try:
            sample = table(_decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            sample = {}
        ts = number(sample.get("ts"))
        if ts is None:
            self._note("warning", DAMAGED)
            return []
        return self._records(ts, sample)

    def _records(self, ts: float, sample: dict[str, Any]) -> list[Record]:
        node = sample.get("node")
        node = node if isinstance(node, str) and node else DEFAULT_NODE
        before = self._before.get(node, {})
        self._before[node] = sample
        interval = delta_or_none(ts, number(before.get("ts")))
        if interval is not None and interval <= 0:
            self._note("warning", BACKWARDS)
            interval = None
        records: list[Record] = []
        if host := table(sample.get("host")):
            old = table(before.get("host"))
            records.append(self._host(ts, node, interval, host, old))
        ranks, old_ranks = table(sample.get("ranks")), table(before.get("ranks"))
        for rank in sorted((key for key in ranks if key.isdecimal() and len(key) < 10), key=int):
            state = table(ranks[rank])
            records.append(self._process(ts, int(rank), node, interval, state, table(old_ranks.get(rank))))
        return records

    def _host(self, ts: float, node: str, interval: float | None, new: dict[str, Any], old: dict[str, Any]) -> Host:
        rates: dict[str, float] = {}
        if interval is not None and old:
            rates = self._guard(lambda: cpu_ratios(table(new.get("cpu_times")), table(old.get("cpu_times"))))
            rates |= self._guard(lambda: _disk_rates(table(new.get("disk")), table(old.get("disk")), interval))
            net = table(new.get("net")), table(old.get("net"))
            rates |= self._guard(lambda: _net_rates(*net, interval, ("drop", "rx_drop", "tx_drop")))
        cpus = new.get("cpu_percent")
        return Host(
            ts=ts,
            node=node,
            interval_s=interval,
            cpus=len(cpus) if isinstance(cpus, list) and cpus else None,
            load1=number(new.get("load1")),
            memory_used_bytes=scaled(new.get("mem_used_mb"), MEGABYTE),
            memory_available_bytes=scaled(new.get("mem_available_mb"), MEGABYTE),
            swap_used_bytes=scaled(new.get("swap_used_mb"), MEGABYTE),
            source=f"{self._file}:{self._lines.number}",
            **rates,
        )

    def _process(
        self, ts: float, rank: int, node: str, interval: float | None, new: dict[str, Any], old: dict[str, Any]
    ) -> Process:
        status = new.get("status")
        if status == "error":
            self._note("info", NO_SAMPLE)
        same = interval is not None and old.get("pid") == new.get("pid")
        rates = self._process_rates(new, old, interval) if same and interval is not None else {}
        workers = table(new.get("workers"))
        return Process(
            ts=ts,
            rank=rank,
            node=node,
            pid=whole(new.get("pid")),
            status=status if isinstance(status, str) and status != "error" else None,
            interval_s=interval,
            rss_bytes=scaled(new.get("rss_mb"), MEGABYTE),
            threads=whole(new.get("threads")),
            workers=whole(workers.get("n")),
            workers_rss_bytes=scaled(workers.get("rss_mb"), MEGABYTE),
            source=f"{self._file}:{self._lines.number}",
            **rates,
        )

    def _process_rates(self, new: dict[str, Any], old: dict[str, Any], interval: float) -> dict[str, float]:
        rates = self._guard(lambda: _own_rates(new, old, interval))
        rates |= self._guard(lambda: _net_rates(table(new.get("net")), table(old.get("net")), interval, DROPS))
        rates |= self._guard(lambda: _tcp_rates(table(new.get("tcp")), table(old.get("tcp")), interval))
        with suppress(CounterReset):  # workers come and go with every epoch, and their sums fall: no fault of counters
            rates |= _worker_rates(table(new.get("workers")), table(old.get("workers")), interval)
        return rates

    def _guard(self, rates: Callable[[], dict[str, float]]) -> dict[str, float]:
        try:
            return rates()
        except CounterReset:
            self._note("warning", RESET)
            return {}

    def _note(self, level: Any, text: str) -> None:
        self._notices.add(level, text, file=self._file, place=f"line {self._lines.number}")


DROPS = ("rx_drop", "tx_drop")


def delta_or_none(new: float, old: float | None) -> float | None:
    """Difference of two times, None without the older one; rounded to the microsecond that samples resolve."""
    return None if old is None else round(new - old, 6)


def _known(values: dict[str, float | None], interval: float) -> dict[str, float]:
    return {key: value / interval for key, value in values.items() if value is not None}


def _disk_rates(new: dict[str, Any], old: dict[str, Any], interval: float) -> dict[str, float]:
    rates = _known(
        {
            "disk_read_bytes_per_s": delta(new.get("read_bytes"), old.get("read_bytes")),
            "disk_write_bytes_per_s": delta(new.get("write_bytes"), old.get("write_bytes")),
        },
        interval,
    )
    busy_ms = delta(new.get("busy_time"), old.get("busy_time"))
    if busy_ms is not None:  # summed over all disks, and the sampler's clock jitters: never above the whole
        rates["disk_busy_ratio"] = min(1.0, busy_ms / 1000 / interval)
    return rates


def _net_rates(new: dict[str, Any], old: dict[str, Any], interval: float, drops: tuple[str, ...]) -> dict[str, float]:
    return _known(
        {
            "net_tx_bytes_per_s": net_delta(new, old, ("tx_bytes",)),
            "net_rx_bytes_per_s": net_delta(new, old, ("rx_bytes",)),
            "net_drops_per_s": net_delta(new, old, drops),
        },
        interval,
    )


def _own_rates(new: dict[str, Any], old: dict[str, Any], interval: float) -> dict[str, float]:
    return _known(
        {
            "cpu_cores": sum_delta(new, old, ("cpu_user_s", "cpu_system_s")),
            "switches_voluntary_per_s": delta(new.get("ctx_voluntary"), old.get("ctx_voluntary")),
            "switches_involuntary_per_s": delta(new.get("ctx_involuntary"), old.get("ctx_involuntary")),
            "read_bytes_per_s": delta(new.get("read_bytes"), old.get("read_bytes")),
            "write_bytes_per_s": delta(new.get("write_bytes"), old.get("write_bytes")),
        },
        interval,
    )


def _tcp_rates(new: dict[str, Any], old: dict[str, Any], interval: float) -> dict[str, float]:
    return _known(
        {
            "tcp_out_segments_per_s": delta(new.get("out_segs"), old.get("out_segs")),
            "tcp_retransmits_per_s": delta(new.get("retrans_segs"), old.get("retrans_segs")),
        },
        interval,
    )


def _worker_rates(new: dict[str, Any], old: dict[str, Any], interval: float) -> dict[str, float]:
    if new.get("n") != old.get("n"):
        return {}
    return _known(
        {
            "workers_cpu_cores": delta(new.get("cpu_s"), old.get("cpu_s")),
            "workers_read_bytes_per_s": delta(new.get("read_bytes"), old.get("read_bytes")),
        },
        interval,
    )


TELEMETRY_JSONL = ParserRow("telemetry", sniff, TelemetryJsonl)
