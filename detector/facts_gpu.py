"""Facts from GPU telemetry: devices that are lost, slowed, failing or waiting, judged against their peers and their past."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from detector.fact import Fact, Role
from detector.gpu_conditions import HOLDS, TELLS, Finding, findings
from detector.xids import xid_words
from features.measures.gpu import Fleet, GpuPast, Peers, merged, rounds
from features.measures.table import RunMemory
from features.parsers.gpu_events import CONTENDED, GPU_LOST, REMAP_FAILED
from features.parsers.gpu_identity import gpu_shown
from features.records import Log
from features.vocabulary import Channel
from features.windows import Window

ENDS = 10
"""Samples in a row without it before a condition is over, and is told anew when it comes back."""
LITTLE_USED = 0.4
"""Median utilisation of all GPUs below which they wait for something; healthy training keeps most of them busy."""
LOST_ROUNDS, LOST_INTERVALS, LOST_SAMPLES = 5, 4.0, 3
"""A GPU is gone when the others of its source were asked this often without it, over this many of its usual distances,
after at least this many samples of its own. A file that ends within a round misses one."""


_OF_LOG: dict[str, tuple[str, Role, bool]] = {
    REMAP_FAILED: ("gpu_ecc", "root", True),
    CONTENDED: ("gpu_contended", "root", False),
}
"""Word, role and hardness of messages that only parsers of GPU telemetry write."""


class GpuFacts:
    """Finds the facts of each window; remembers each GPU's past. The windows of a run come in order."""

    def __init__(self) -> None:
        self.fleet = Fleet()

    def of(self, window: Window, memory: RunMemory) -> list[Fact]:
        """Facts of this window, earliest first. Messages that a GPU is lost are facts of their own and are not repeated."""
        told_lost = {log.fields.get("gpu", ""): log.ts for log in window.logs if log.event == GPU_LOST}
        found = [fact for log in window.logs for fact in _of_log(log, window)]
        held: dict[tuple[str, str], Fact] = {}
        counted: list[Fact] = []
        for samples in rounds(merged(window.gpus)):
            pasts = self.fleet.see(samples)
            comparison = self.fleet.peers(samples[0].ts)
            for past in pasts:
                counted += _counters(past)
                for fact in self._conditions(past, comparison.without(past.newest)):
                    key = (fact.name, past.newest.gpu)
                    held[key] = fact if fact.hard else held.get(key, fact)
                past.learn()
            found += [_vanished(past) for past in self._gone() if past.newest.gpu not in told_lost]
        for gpu, ts in told_lost.items():
            if gpu in self.fleet.gpus and ts is not None and self.fleet.gpus[gpu].newest.ts <= ts:
                self.fleet.gpus[gpu].is_gone = True
        found += [*held.values(), *_once(counted), *_little_used(window)]
        return sorted(found, key=lambda f: (f.ts, f.name, f.ranks, f.text))

    def _conditions(self, past: GpuPast, peers: Peers) -> Iterator[Fact]:
        """Conditions told when they have held for some samples, and once a window for as long as they hold."""
        found = findings(past, peers)
        for name in TELLS:
            finding = found.get(name)
            if finding is None and not TELLS[name](past.newest):
                continue  # one source of several, which does not speak of it
            streak = past.streaks.get(name, 0)
            past.streaks[name] = max(streak, 0) + 1 if finding is not None else min(streak, 0) - 1
            if past.streaks[name] == 1 and name not in past.told:
                past.since[name] = past.newest.ts
            if past.streaks[name] <= -ENDS:
                past.told.pop(name, None)
                past.proved.pop(name, None)
            if finding is None or past.streaks[name] < finding.holds:
                continue
            yield _told(past, finding)

    def _gone(self) -> list[GpuPast]:
        """GPUs that are not told of any more, since now, while others of the same source are."""
        gone = []
        for past in self.fleet.gpus.values():
            missed = self.fleet.round_of[past.group] - past.round
            if past.is_gone or missed < LOST_ROUNDS or past.samples < LOST_SAMPLES or past.interval_s is None:
                continue
            if self.fleet.newest_of[past.group] - past.newest.ts >= LOST_INTERVALS * past.interval_s:
                past.is_gone = True
                gone.append(past)
        return gone


def _told(past: GpuPast, finding: Finding) -> Fact:
    """A condition for the first time, as proof if it is one and since it began; afterwards as what goes on."""
    name = finding.name
    is_proof = finding.hard and not past.proved.get(name, False)
    is_new = is_proof or name not in past.told
    past.proved[name] = finding.hard or past.proved.get(name, False)
    if is_new:
        past.told[name] = finding.text
    role: Role = "root" if is_proof else "context"
    fact = _fact(past, name, past.told[name], role=role, hard=is_proof, channel=finding.channel)
    return msgspec.structs.replace(fact, ts=past.since[name]) if is_new else fact


def _vanished(past: GpuPast) -> Fact:
    text = f"{gpu_shown(past.newest.gpu)} is not told of any more while others beside it are"
    return _fact(past, "gpu_lost", text, role="root", hard=True)


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
        before = past.ecc.get(past.group, now.ecc_uncorrected)
        if now.ecc_uncorrected > before:
            text = f"{shown}: uncorrected memory errors and remapped rows rose from {before} to {now.ecc_uncorrected}"
            yield _fact(past, "gpu_ecc", text, role="root", hard=True)
        past.ecc[past.group] = now.ecc_uncorrected
    if now.xid is not None:
        # The series of a GPU without Xid may be missing until the first one.
        is_new = now.xid not in past.xid.values() if past.xid else past.samples > LOST_SAMPLES
        if is_new and now.xid > 0:
            yield from _xid(past, str(now.xid))
        past.xid[past.group] = now.xid


def _xid(past: GpuPast, code: str) -> Iterator[Fact]:
    text = f"{gpu_shown(past.newest.gpu)} reports Xid {code}"
    for name in xid_words(code):
        yield _fact(past, name, text, role="root", hard=True)


def _once(facts: list[Fact]) -> list[Fact]:
    """The first fact of each kind about one device: counters that go on growing say nothing new within a window."""
    first: dict[tuple[str, str], Fact] = {}
    for fact in facts:
        first.setdefault((fact.name, fact.text.partition(": uncorrected")[0]), fact)
    return list(first.values())


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
