"""Who is at fault: arrival order and local time before the collective, never the duration of the collective itself."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from detector.evidence import CaseNumbers
from features.measures.table import Vector

LATE_STEPS = 0.08
"""Usual steps; a rank that leaves the collectives this much later than before sits behind a slow link."""
SURPLUS = 0.01
"""Share; packets lost at a host are sent again and received twice, 1 % more than its peers is far above healthy hosts."""


class Suspect(msgspec.Struct, frozen=True):
    """A rank and how much speaks against it (any positive number), with the strongest reason."""

    rank: int
    weight: float
    reason: str


def suspects(n: CaseNumbers) -> list[Suspect]:
    """Ranks in order of suspicion; empty where nothing points at anyone."""
    named = _named_by_facts(n)
    if named:
        return named
    if n.case.channel == "numbers":
        return _by(n, {"loss_vs_peers": (1.0, 0.6), "param_desync": (0.7, 0.7), "nonfinite": (4.0, 0.01)})
    if n.case.channel == "memory":
        return _by(n, {"rss_vs_peers": (4.0, 0.05), "rss_growth": (2.0, 0.05)})
    return _by(
        n,
        {
            "local_vs_peers": (2.0, 0.15),
            "local_vs_usual": (0.1, 5.0),
            "lateness": (2.0, 0.15),
            "stopped": (4.0, 0.05),
            "gone": (4.0, 0.05),
            "last_share": (1.0, 0.3),
            "silence_vs_peers": (0.5, 2.0),
            "waits_least": (0.5, 1.0),
        },
    )


def _named_by_facts(n: CaseNumbers) -> list[Suspect]:
    """The earliest root fact that names ranks; a cascade cannot replace an earlier root."""
    roots = [f for f in n.case.facts if f.role == "root" and f.ranks and f.hard]
    if not roots:
        return []
    # A stall warning, an exit code or a death come late but speak of the beginning: all roots within the case compete by
    # time, and a message about somebody else counts like one's own.
    first = roots[0]
    rest = [r for f in roots[1:] for r in f.ranks if f.name == first.name and f.ts - first.ts < 1.0]
    ranks = list(dict.fromkeys([*first.ranks, *rest]))
    return [Suspect(r, 10.0 / (1 + i), first.text) for i, r in enumerate(ranks)]


def _by(n: CaseNumbers, weights: dict[str, tuple[float, float]]) -> list[Suspect]:
    """Weighted sum of what each feature shows beyond its threshold, capped so that no single one decides alone."""
    totals = np.zeros(len(n.ranks))
    reasons = [("", 0.0)] * len(n.ranks)
    for name, (weight, threshold) in weights.items():
        values = waits_least(n) if name == "waits_least" else n.of(name)
        points = np.where(np.isfinite(values) & (values > threshold), weight * np.minimum(values, 3.0), 0.0)
        totals += points
        reasons = [(name, float(p)) if p > was[1] else was for was, p in zip(reasons, points, strict=True)]
    order = sorted(range(len(n.ranks)), key=lambda i: (-totals[i], n.ranks[i]))
    found = [Suspect(n.ranks[i], float(totals[i]), reasons[i][0]) for i in order if totals[i] > 0]
    return [s for s in found if s.weight >= 0.5 * found[0].weight]


def waits_least(n: CaseNumbers) -> Vector:
    """How much less each rank waits than its peers (log2): waiting ranks poll or spin, the one they wait for does not."""
    sleeps, preempted = n.of("sleeps_vs_peers"), n.of("preempted_vs_peers")
    with np.errstate(invalid="ignore"):
        return np.fmax(-sleeps, -preempted)


def network_suspects(n: CaseNumbers) -> list[Suspect]:
    """The host behind a bad link, from counters of the hosts and from who finishes a ring late; most suspect first."""
    rules = (_by_drops(n), _by_surplus(n), _by_finish(n), _by_retransmits(n))
    return next((found for found in rules if found), [])


def _by_drops(n: CaseNumbers) -> list[Suspect]:
    drops = n.of("drops", extreme=True)
    return _outlier(n, drops, 0.5, "packets dropped at its interface")


def _by_surplus(n: CaseNumbers) -> list[Suspect]:
    resent = n.top("retransmits_vs_past")
    if math.isnan(resent) or resent < 1.0:
        return []
    return _outlier(n, n.of("received_surplus"), SURPLUS, "receives more than its peers: packets are lost there and repeated")


def _by_finish(n: CaseNumbers) -> list[Suspect]:
    """In a ring each rank receives from one neighbour: who finishes last sits right behind the slow link."""
    late = n.of("finish_vs_past")
    if not np.isfinite(late).any() or float(np.nanmax(late)) < LATE_STEPS:
        return []
    last = int(np.nanargmax(late))
    return [Suspect(upstream(n, last), 2.0, f"rank {n.ranks[last]}, which receives from it, leaves collectives last")]


def _by_retransmits(n: CaseNumbers) -> list[Suspect]:
    resent = n.of("retransmits_vs_peers")
    if not np.isfinite(resent).any() or float(np.nanmax(resent)) < 1.0:
        return []
    sender = int(np.nanargmax(resent))
    reason = f"rank {n.ranks[sender]}, which sends to it, sends segments again"
    return [Suspect(downstream(n, sender), 2.0, reason), Suspect(n.ranks[sender], 1.0, "sends segments again")]


def _outlier(n: CaseNumbers, values: Vector, threshold: float, reason: str) -> list[Suspect]:
    if np.isfinite(values).sum() < 2:
        return []
    top = int(np.nanargmax(values))
    rest = float(np.nanmax(np.delete(values, top)))
    return [Suspect(n.ranks[top], 2.0, reason)] if values[top] > threshold and values[top] > 2 * rest else []


def _toward(n: CaseNumbers) -> int:
    """+1 where a rank receives from the next one (Gloo's ring), -1 where from the one before (NCCL's and MPI's)."""
    transport = next((f.transport for f in n.case.frames if f.transport is not None), None)
    return -1 if transport in ("nccl", "mpi", "ccl") else 1


def upstream(n: CaseNumbers, position: int) -> int:
    """The rank from which the one at `position` receives. Source: gloo/allreduce.cc, ring: recvRank = rank + 1."""
    return n.ranks[(position + _toward(n)) % len(n.ranks)]


def downstream(n: CaseNumbers, position: int) -> int:
    """The rank to which the one at `position` sends."""
    return n.ranks[(position - _toward(n)) % len(n.ranks)]
