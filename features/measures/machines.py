"""Measures from processes and hosts: what each rank's process got and did, and what else the machines were busy with."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from features.measures.table import Measures, RunMemory, known, mean, per_rank
from features.records import Host, Process
from features.windows import Window

_MEANS: dict[str, Callable[[Process], float | None]] = {
    "cpu": lambda p: p.cpu_cores,
    "sleeps": lambda p: p.switches_voluntary_per_s,
    "preempted": lambda p: p.switches_involuntary_per_s,
    "workers_cpu": lambda p: p.workers_cpu_cores,
    "workers_read": lambda p: p.workers_read_bytes_per_s,
    "net_tx": lambda p: p.net_tx_bytes_per_s,
    "net_rx": lambda p: p.net_rx_bytes_per_s,
    "drops": lambda p: p.net_drops_per_s,
    "retransmits": lambda p: p.tcp_retransmits_per_s,
}
STOPPED = frozenset({"stopped", "tracing-stop", "T", "t"})
GONE = frozenset({"gone", "zombie", "dead", "Z", "X"})


def measure_machines(window: Window, memory: RunMemory, into: Measures) -> None:
    """Fill in everything that process and host samples tell about this window."""
    by_rank: dict[int, list[Process]] = defaultdict(list)
    for p in window.processes:
        by_rank[p.rank].append(p)
    at = memory.position()
    for name, of in _MEANS.items():
        into.per_rank[name] = per_rank(at, {r: mean(known(map(of, ps))) for r, ps in by_rank.items()})
    into.per_rank["stopped"] = per_rank(at, {r: _share(ps, STOPPED) for r, ps in by_rank.items()})
    into.per_rank["gone"] = per_rank(at, {r: _share(ps, GONE) for r, ps in by_rank.items()})
    for p in window.processes:
        if p.status in GONE:
            memory.gone.setdefault(p.rank, p.ts)
        else:
            memory.gone.pop(p.rank, None)  # a restarted rank lives again
    _memory_of_ranks(window, by_rank, memory, into)
    _hosts(window.hosts, memory, into)


def _share(samples: list[Process], states: frozenset[str]) -> float:
    told = [p.status for p in samples if p.status is not None]
    return sum(s in states for s in told) / len(told) if told else math.nan


def _memory_of_ranks(window: Window, by_rank: dict[int, list[Process]], memory: RunMemory, into: Measures) -> None:
    rss: dict[int, float] = {}
    growth: dict[int, float] = {}
    for rank in memory.ranks:
        values = known(p.rss_bytes for p in by_rank.get(rank, []))
        if not values:  # the training script's own word, where nobody sampled the process
            values = known(s.rss_bytes for s in window.steps if s.rank == rank)
        if not values or values[-1] <= 0:
            continue
        rss[rank] = values[-1]
        before = memory.rss.get(rank, values[0])
        if before > 0:
            growth[rank] = math.log2(values[-1] / before)
        memory.rss[rank] = values[-1]
    into.per_rank["rss"] = per_rank(memory.position(), rss)
    into.per_rank["rss_growth"] = per_rank(memory.position(), growth)


def _hosts(hosts: list[Host], memory: RunMemory, into: Measures) -> None:
    """Host measures go to the ranks placed on that host; with one host, to all of them."""
    by_node: dict[str, list[Host]] = defaultdict(list)
    for h in hosts:
        by_node[h.node].append(h)
    memory.hosts += [node for node in by_node if node not in memory.hosts]
    columns: dict[str, dict[int, float]] = defaultdict(dict)
    for node, samples in by_node.items():
        ranks = [r for r in memory.ranks if memory.nodes.get(r) == node] if len(memory.hosts) > 1 else memory.ranks
        for name, value in _host_values(samples, ranks, into, memory).items():
            columns[name].update(dict.fromkeys(ranks, value))
    for name, values in columns.items():
        into.per_rank[name] = per_rank(memory.position(), values)


def _host_values(samples: list[Host], ranks: list[int], into: Measures, memory: RunMemory) -> dict[str, float]:
    values = {
        "host_cpu": mean(known(h.cpu_ratio for h in samples)),
        "steal": mean(known(h.steal_ratio for h in samples)),
        "iowait": mean(known(h.iowait_ratio for h in samples)),
        "load": mean(known(h.load1 for h in samples)),
        "disk_busy": mean(known(h.disk_busy_ratio for h in samples)),
        "available": _available(samples),
        "swap": _swap(samples),
        "foreign_cpu": math.nan,
    }
    cpus = next((h.cpus for h in samples if h.cpus is not None), None)
    position = memory.position()
    rows = [position[r] for r in ranks]
    own = into.per_rank["cpu"][rows]
    if cpus is not None and rows and not np.isnan(own).all():
        workers = np.nansum(into.per_rank["workers_cpu"][rows])
        foreign = values["host_cpu"] - (np.nansum(own) + workers) / cpus
        values["foreign_cpu"] = float(np.maximum(foreign, 0.0))  # unknown stays unknown: max() would make it 0
    return values


def _available(samples: list[Host]) -> float:
    shares = [
        h.memory_available_bytes / (h.memory_available_bytes + h.memory_used_bytes)
        for h in samples
        if h.memory_available_bytes is not None and h.memory_used_bytes is not None
        if h.memory_available_bytes + h.memory_used_bytes > 0
    ]
    return min(shares, default=math.nan)


def _swap(samples: list[Host]) -> float:
    shares = [
        h.swap_used_bytes / (h.memory_used_bytes + h.memory_available_bytes)
        for h in samples
        if h.swap_used_bytes is not None and h.memory_used_bytes is not None and h.memory_available_bytes is not None
        if h.memory_used_bytes + h.memory_available_bytes > 0
    ]
    return max(shares, default=math.nan)
