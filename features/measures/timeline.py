"""Measures from the coordinator's timeline: waits for the last rank, transfers, background cycles, arrival order."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from features.measures.table import Measures, RunMemory, known, median, per_rank
from features.records import Collective
from features.windows import Window

SMALL_BYTES = 65536
"""Below this a tensor gains from fusion: latency, not bandwidth, is what it costs."""
TRANSFER_HISTORY = 256
"""Transfer times kept per size class; enough for a steady median."""


def measure_timeline(window: Window, memory: RunMemory, into: Measures) -> None:
    """Fill in everything that collectives and cycles tell about this window."""
    done = [c for c in window.collectives if c.end is not None and c.op != "join"]
    for c in window.collectives:
        if c.end is None and c.op != "join":
            memory.dangling_since = c.ts if memory.dangling_since is None else min(c.ts, memory.dangling_since)
    waits = known(c.negotiate_s for c in done)
    into.run["negotiate"] = median(waits)
    into.run["negotiate_max"] = max(waits, default=math.nan)
    into.run["period"] = _period(done, memory)
    into.run["unfused_share"] = _unfused_share(done)
    _transfers(done, memory, into)
    gaps = [(c.median_gap_s, c.max_gap_s) for c in window.cycles]
    into.run["cycle"] = median(known(m for m, _ in gaps))
    into.run["cycle_max"] = max(known(m for _, m in gaps), default=math.nan)
    if done:
        memory.last_collective_end = max(c.end for c in done if c.end is not None)
    if memory.last_collective_end is not None:
        into.run["since_collective"] = window.until - memory.last_collective_end
    _arrivals(done, memory, into)


def _period(done: list[Collective], memory: RunMemory) -> float:
    """Median time between two uses of the same tensor: the step time as the coordinator sees it."""
    periods = []
    for c in done:
        if c.end is None:
            continue
        key = c.view()
        if key in memory.last_use:
            periods.append(c.end - memory.last_use[key])
        memory.last_use[key] = c.end
        memory.uses[key] = memory.uses.get(key, 0) + 1
    return median(periods)


def _unfused_share(done: list[Collective]) -> float:
    small = [c for c in done if c.bytes is not None and c.bytes / c.fused < SMALL_BYTES]
    return sum(c.fused == 1 for c in small) / len(small) if len(small) >= 4 else math.nan


def size_class(c: Collective) -> int | None:
    """Collectives of about the same size and fusion share a class: the power of two of their bytes."""
    return None if c.bytes is None or c.bytes <= 0 else int(math.log2(c.bytes))


def transfer_time(c: Collective) -> float | None:
    """Time inside the communication library, or of the whole operation where that is not told."""
    return c.transfer_s if c.transfer_s is not None else c.execute_s


def _transfers(done: list[Collective], memory: RunMemory, into: Measures) -> None:
    """Log2 ratios of transfer times to the past of their size class (NaN before there is one)."""
    ratios = []
    for c in done:
        size, took = size_class(c), transfer_time(c)
        past = None if size is None else memory.transfer_past.get(size)
        if past and took is not None and took > 0:
            ratios.append(math.log2(took / max(float(np.median(past)), 1e-6)))
    into.run["transfer"] = median(ratios)
    into.run["transfer_max"] = max(ratios, default=math.nan)


def learn_transfers(window: Window, memory: RunMemory) -> None:
    """Remember this window's transfer times; called for healthy windows only."""
    for c in window.collectives:
        size, took = size_class(c), transfer_time(c)
        if size is not None and took is not None and took > 0 and c.op != "join":
            past = memory.transfer_past.setdefault(size, [])
            past.append(took)
            if len(past) > TRANSFER_HISTORY:
                del past[::2]


def _arrivals(done: list[Collective], memory: RunMemory, into: Measures) -> None:
    """Who was ready last, and how long after the median rank; only where the source names ranks."""
    ranked = [c for c in done if len(c.ready) >= 2]
    if len(ranked) < 3:  # a few ticks at a tensor's first use say nothing about a rank
        return
    last: dict[int, int] = defaultdict(int)
    late: dict[int, list[float]] = defaultdict(list)
    for c in ranked:
        middle = float(np.median([t.offset_s for t in c.ready]))
        last[max(c.ready, key=lambda t: t.offset_s).rank] += 1
        for t in c.ready:
            late[t.rank].append(t.offset_s - middle)
    position = memory.position()
    present = [r for r in memory.ranks if late[r]]
    into.per_rank["last_share"] = per_rank(position, {r: last[r] / len(ranked) - 1 / len(present) for r in present})
    into.per_rank["late"] = per_rank(position, {r: float(np.mean(late[r])) for r in present})
