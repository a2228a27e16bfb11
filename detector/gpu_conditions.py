"""Conditions of a GPU at one moment, judged against its peers and its past: slowed, waiting, full, or left idle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from features.measures.gpu import BUSY, GpuPast, Peers, is_busy
from features.parsers.gpu_identity import gpu_shown
from features.records import Gpu
from features.vocabulary import Channel

HOLDS = 3
"""Samples in a row before a condition is told: clocks and power swing for one or two at every start and pause."""
LOW_CLOCK, LOW_CLOCK_LIMITED = 0.8, 0.92
"""Share of the peers' clock. Under one power cap, chips of one model differ by a tenth; with a lower limit than the
peers', less is enough to see what the limit does."""
AS_FAST = 0.95
"""Share of the peers' clock from which a GPU is not slower than they are, whatever reason it gives."""
LOWER_LIMIT = 0.9
"""Share of the peers' power limit below which somebody lowered it."""
SPIN_UTILIZATION, SPIN_POWER = 0.95, 0.6
"""A kernel that waits for a collective keeps the GPU fully used at little more than half of the working power."""
FULL = 0.98
"""Share of the memory beyond which the next allocation of any size fails."""
IDLE, AT_WORK, IDLE_HOLDS = 0.2, 0.8, 5
"""Utilisations of one GPU and of its peers, and samples in a row: ranks do not reach their pauses at the same moment."""
HARDWARE = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
SLOWING = HARDWARE | {"sw_thermal_slowdown", "thermal_violation"}
"""Reasons that hold clocks down against the owner's will. The software power cap at full load is how GPUs run, and AMD's
word "throttled" covers it as well."""
COOL_POWER = 0.7
"""Share of the power limit: drawing less at work while the hardware slows the clocks is never load alone."""


class Finding(NamedTuple):
    """A condition that holds for a GPU now: its word, whether it is proof by itself, and the sentence that tells it."""

    name: str
    text: str
    hard: bool
    channel: Channel = "pace"
    holds: int = HOLDS  # samples in a row before it is told


def _slowed(past: GpuPast, peers: Peers) -> Finding | None:
    """Clocks held down: by a reason that says so, or seen against busy peers."""
    now, clock = past.newest, past.newest.sm_clock_hz
    reasons = frozenset(now.throttle or ())
    slowing = sorted(reasons & SLOWING) if "gpu_idle" not in reasons else []
    share = clock / peers.clock_hz if clock is not None and is_busy(now) and peers.clock_hz > 0 else math.nan
    limited = now.power_limit_w is not None and now.power_limit_w < LOWER_LIMIT * peers.limit_w
    low = share < (LOW_CLOCK_LIMITED if limited else LOW_CLOCK)
    if not low and (not slowing or share >= AS_FAST):
        return None
    had_been_as_fast = past.top_clock_hz >= AS_FAST * peers.clock_hz
    same_kind = now.memory_total_bytes is not None and peers.count > 1
    is_cool = bool(HARDWARE & set(slowing)) and _is_cool(past)
    hard = (low and (had_been_as_fast or same_kind)) or is_cool or _slowed_for_sure(past, slowing)
    text = _slowed_text(past, peers, slowing, limited=limited)
    return Finding("gpu_throttled", text, hard, holds=1 if is_cool else HOLDS)


def _is_cool(past: GpuPast) -> bool:
    """Draws much less than it may."""
    power, limit = past.newest.power_w, past.newest.power_limit_w
    return power is not None and limit is not None and power < COOL_POWER * limit


def _slowed_for_sure(past: GpuPast, slowing: list[str]) -> bool:
    """A reason counts by itself while the GPU works, unless its own clock contradicts."""
    now = past.newest
    if not slowing or (now.utilization_ratio is not None and now.utilization_ratio < 1 - BUSY):
        return False
    if now.sm_clock_hz is not None and past.top_clock_hz > 0:
        return now.sm_clock_hz < AS_FAST * past.top_clock_hz
    return _is_cool(past) or now.power_w is None or now.power_limit_w is None


def _slowed_text(past: GpuPast, peers: Peers, slowing: list[str], *, limited: bool) -> str:
    now = past.newest
    parts = []
    if now.sm_clock_hz is not None:
        beside = f" beside {peers.clock_hz / 1e6:.0f} MHz of its busy peers" if peers.clock_hz > 0 else ""
        parts.append(f"SM clock {now.sm_clock_hz / 1e6:.0f} MHz{beside}")
    if slowing:
        parts.append(f"slowed by {', '.join(slowing)}")
    if limited:
        parts.append(f"power limit {now.power_limit_w:.0f} W, the peers' {peers.limit_w:.0f} W")
    parts += [f"{now.utilization_ratio:.0%} used"] if now.utilization_ratio is not None else []
    parts += [f"{now.power_w:.0f} W"] if now.power_w is not None else []
    parts += [f"{now.temperature_c:.0f} C"] if now.temperature_c is not None else []
    return f"{gpu_shown(now.gpu)}: {', '.join(parts)}"


def _spinning(past: GpuPast, peers: Peers) -> Finding | None:
    """Fully used at little power, and not because of low clocks: kernels that wait."""
    now = past.newest
    if now.power_w is None or now.utilization_ratio is None or now.utilization_ratio < SPIN_UTILIZATION:
        return None
    slow = now.sm_clock_hz is not None and now.sm_clock_hz < LOW_CLOCK * max(past.top_clock_hz, peers.clock_hz)
    usual = max((w for w in (past.usual_power_w, peers.power_w) if w is not None and w > 0), default=math.nan)
    if slow or not now.power_w < SPIN_POWER * usual:
        return None
    text = f"{gpu_shown(now.gpu)} is fully used at {now.power_w:.0f} W instead of {usual:.0f} W: its kernels wait"
    return Finding("gpu_power_low_util_high", text, hard=False)


def _full(past: GpuPast) -> Finding | None:
    used, total = past.newest.memory_used_bytes, past.newest.memory_total_bytes
    if used is None or total is None or used < FULL * total:
        return None
    text = f"{gpu_shown(past.newest.gpu)}: {used / 2**30:.1f} of {total / 2**30:.1f} GiB of its memory are in use"
    return Finding("gpu_memory_full", text, hard=False, channel="memory", holds=1)


def _idle(past: GpuPast, peers: Peers) -> Finding | None:
    """Has nothing to do while its peers work, though it had."""
    used = past.newest.utilization_ratio
    if used is None or used >= IDLE or not past.was_busy or peers.others < 2 or not peers.utilization >= AT_WORK:
        return None
    text = f"{gpu_shown(past.newest.gpu)} is {used:.0%} used while its peers are at {peers.utilization:.0%}"
    return Finding("gpu_util_low_one", text, hard=False, holds=IDLE_HOLDS)


def findings(past: GpuPast, peers: Peers) -> dict[str, Finding]:
    """The conditions that hold for the newest sample, by their words."""
    found = (_slowed(past, peers), _spinning(past, peers), _full(past), _idle(past, peers))
    return {finding.name: finding for finding in found if finding is not None}


TELLS: dict[str, Callable[[Gpu], bool]] = {
    "gpu_throttled": lambda g: g.throttle is not None or (g.sm_clock_hz is not None and g.utilization_ratio is not None),
    "gpu_power_low_util_high": lambda g: g.power_w is not None and g.utilization_ratio is not None,
    "gpu_memory_full": lambda g: g.memory_used_bytes is not None and g.memory_total_bytes is not None,
    "gpu_util_low_one": lambda g: g.utilization_ratio is not None,
}
"""The conditions, and whether a sample says enough to tell that one does not hold."""
