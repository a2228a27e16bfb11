"""Facts from GPU telemetry: devices that are lost, slowed, failing or waiting, judged against their peers and their past."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from detector.fact import Fact, Role
from features.measures.gpu import BUSY, Fleet, GpuPast, Peers, is_busy, merged, rounds
from features.measures.table import RunMemory
from features.parsers.gpu_events import CONTENDED, GPU_LOST, REMAP_FAILED
from features.parsers.gpu_identity import gpu_shown
from features.parsers.logkernel import APPLICATION, FOLLOWUP
from features.records import Log
from features.vocabulary import Channel
from features.windows import Window

HOLDS = 3
"""Samples in a row before a condition is told: clocks and power swing for one or two at every start and pause."""
ENDS = 10
"""Samples in a row without it before a condition is over, and is told anew when it comes back."""
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
LITTLE_USED = 0.4
LOST_ROUNDS, LOST_INTERVALS, LOST_SAMPLES = 5, 4.0, 3
"""A GPU is gone when the others of its source were asked this often without it, over this many of its usual distances,
after at least this many samples of its own. A file that ends within a round misses one."""

HARDWARE = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
SLOWING = HARDWARE | {"sw_thermal_slowdown", "thermal_violation"}
"""Reasons that hold clocks down against the owner's will. The software power cap at full load is how GPUs run, and AMD's
word "throttled" covers it as well."""
COOL_POWER = 0.7
"""Share of the power limit: drawing less at work while the hardware slows the clocks is never load alone."""

_APPLICATION, _FOLLOWUP = frozenset(APPLICATION.split("|")), frozenset(FOLLOWUP.split("|"))
_LINK = frozenset({"74", "121", "136", *map(str, range(144, 151)), "155"})
_MEMORY = frozenset({"48", "64", "92", "95", "140", "156", "157", "168"})
_LOST = frozenset({"46", "54", "62", "79", "109", "119", "120", "143", "158", "167"})
_GROUPS = (("log_xid_application", _APPLICATION), ("log_xid_link", _LINK), ("log_xid_memory", _MEMORY), ("log_xid_lost", _LOST))

_OF_LOG: dict[str, tuple[str, Role, bool]] = {
    REMAP_FAILED: ("gpu_ecc", "root", True),
    CONTENDED: ("gpu_contended", "root", False),
}
"""Word, role and hardness of messages that only parsers of GPU telemetry write."""


class Finding(NamedTuple):
    """A condition that holds for a GPU now: its word, whether it is proof by itself, and the sentence that tells it."""

    name: str
    text: str
    hard: bool
    channel: Channel = "pace"
    holds: int = HOLDS  # samples in a row before it is told


class GpuFacts:
    """Finds the facts of each window; remembers each GPU's past. The windows of a run come in order."""

    def __init__(self) -> None:
        self.fleet = Fleet()

    def of(self, window: Window, memory: RunMemory) -> list[Fact]:
        """Facts of this window, earliest first. Messages that a GPU is lost are facts of their own and are not repeated."""
        told_lost = {log.fields.get("gpu", "") for log in window.logs if log.event == GPU_LOST}
        for gpu in told_lost & set(self.fleet.gpus):
            self.fleet.gpus[gpu].is_gone = True
        found = [fact for log in window.logs for fact in _of_log(log, window)]
        held: dict[tuple[str, str], Fact] = {}
        counted: list[Fact] = []
        for samples in rounds(merged(window.gpus)):
            now = samples[0].ts
            pasts = self.fleet.see(samples)
            comparison = self.fleet.peers(now)
            for past in pasts:
                counted += _counters(past)
                for fact in self._conditions(past, comparison.without(past.newest)):
                    held.setdefault((fact.name, past.newest.gpu), fact)
                past.learn()
            found += self._gone(now)
        found += [*held.values(), *_once(counted), *_little_used(window)]
        return sorted(found, key=lambda f: (f.ts, f.name, f.ranks, f.text))

    def _conditions(self, past: GpuPast, peers: Peers) -> Iterator[Fact]:
        """Conditions told when they have held for some samples, and once a window for as long as they hold."""
        findings = {f.name: f for f in (_slowed(past, peers), _spinning(past, peers), _full(past), _idle(past, peers)) if f}
        for name in ("gpu_throttled", "gpu_power_low_util_high", "gpu_memory_full", "gpu_util_low_one"):
            finding = findings.get(name)
            streak = past.streaks.get(name, 0)
            past.streaks[name] = max(streak, 0) + 1 if finding is not None else min(streak, 0) - 1
            if past.streaks[name] == 1 and name not in past.told:
                past.since[name] = past.newest.ts
            if past.streaks[name] <= -ENDS:
                past.told.pop(name, None)
            if finding is None or past.streaks[name] < finding.holds:
                continue
            is_new = name not in past.told
            text = past.told.setdefault(name, finding.text)
            role: Role = "root" if is_new and finding.hard else "context"
            fact = _fact(past, name, text, role=role, hard=role == "root", channel=finding.channel)
            yield msgspec.structs.replace(fact, ts=past.since[name]) if is_new else fact

    def _gone(self, now: float) -> Iterator[Fact]:
        """GPUs that are not told of any more while others of the same source are."""
        for past in self.fleet.gpus.values():
            missed = self.fleet.round_of[past.group] - past.round
            if past.is_gone or missed < LOST_ROUNDS or past.samples < LOST_SAMPLES or past.interval_s is None:
                continue
            if self.fleet.newest_of[past.group] - past.newest.ts >= LOST_INTERVALS * past.interval_s:
                past.is_gone = True
                text = f"{gpu_shown(past.newest.gpu)} is not told of any more while others beside it are"
                yield _fact(past, "gpu_lost", text, role="root", hard=True)


def _fact(past: GpuPast, name: str, text: str, *, role: Role, hard: bool, channel: Channel = "pace") -> Fact:
    now = past.newest
    return Fact(
        ts=now.ts,
        name=name,
        role=role,
        channel=channel,
        text=text,
        hard=hard,
        ranks=() if now.rank is None else (now.rank,),
        node=now.node,
        source=now.source,
        kind="telemetry",
    )


def _of_log(log: Log, window: Window) -> Iterator[Fact]:
    if log.event not in _OF_LOG:
        return
    name, role, hard = _OF_LOG[log.event]
    is_old = log.fields.get("old") == "true"  # from before the run: it explains, but nothing happened
    yield Fact(
        ts=window.start if log.ts is None else log.ts,
        name=name,
        role="context" if is_old else role,
        channel="pace",
        text=log.text,
        hard=hard and not is_old,
        ranks=() if log.rank is None else (log.rank,),
        node=log.node,
        source=log.source,
        kind="telemetry",
    )


def _counters(past: GpuPast) -> Iterator[Fact]:
    """Counters that grew, and an Xid that was not there before; what was there from the start is history."""
    now, shown = past.newest, gpu_shown(past.newest.gpu)
    if now.ecc_uncorrected is not None:
        if past.ecc is not None and now.ecc_uncorrected > past.ecc:
            text = f"{shown}: uncorrected memory errors and remapped rows rose from {past.ecc} to {now.ecc_uncorrected}"
            yield _fact(past, "gpu_ecc", text, role="root", hard=True)
        past.ecc = now.ecc_uncorrected
    if now.xid is not None:
        # The series of a GPU without Xid may be missing until the first one.
        is_new = past.xid is not None or past.samples > LOST_SAMPLES
        if is_new and now.xid > 0 and now.xid != past.xid:
            yield from _xid(past, str(now.xid))
        past.xid = now.xid


def _xid(past: GpuPast, code: str) -> Iterator[Fact]:
    if code in _FOLLOWUP:
        return
    text = f"{gpu_shown(past.newest.gpu)} reports Xid {code}"
    for name in ("log_xid", *(group for group, codes in _GROUPS if code in codes)):
        yield _fact(past, name, text, role="root", hard=True)


def _once(facts: list[Fact]) -> list[Fact]:
    """The first fact of each kind about one device: counters that go on growing say nothing new within a window."""
    first: dict[tuple[str, str], Fact] = {}
    for fact in facts:
        first.setdefault((fact.name, fact.text.partition(": uncorrected")[0]), fact)
    return list(first.values())


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


def _little_used(window: Window) -> Iterator[Fact]:
    """All GPUs have little to do in this window."""
    used = sorted(g.utilization_ratio for g in window.gpus if g.utilization_ratio is not None)
    if len(used) < HOLDS or used[len(used) // 2] >= LITTLE_USED:
        return
    last = window.gpus[-1]
    text = f"GPUs are used below {LITTLE_USED:.0%} in the median"
    yield Fact(
        ts=last.ts,
        name="gpu_util_low",
        role="context",
        channel="pace",
        text=text,
        hard=False,
        source=last.source,
        kind="telemetry",
    )
