"""What the counters of one network device say in one window: a bad link, congestion, losses; each with its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from features.counters import (
    DROPS,
    LINK_BREAKS,
    LINK_ERRORS,
    LINK_HINTS,
    MARKS,
    NOMINAL_S,
    PAUSED_US,
    RETRIES,
    TCP,
    XMIT_WAIT,
)
from features.records import Net

MANY_ERRORS, ERRORS_PER_S = 10.0, 1 / 60
"""Damaged symbols or packets from which a link is bad: a sound one shows a handful in an hour (bit error rate 1e-12)."""
HINTED_ERRORS = 10.0
TICK_BYTES = 8.0
"""What a port could have sent in a tick of port_xmit_wait. NVIDIA's switches since Quantum count so, and older devices in
longer ticks; so this is the least. Source: ibdiagnet user manual 2.13, congestion assessment on InfiniBand links."""
HELD_BACK, HELD_BACK_SOME = 0.5, 0.1
"""Share of what a port wanted to send that it could not send in time: half is a standing queue, a tenth a busy hour."""
HELD_BYTES_PER_S = 1e6
"""Below this a port waits now and then, whatever the share."""
PAUSED, PAUSED_SOME = 0.2, 0.02
"""Share of the time in which a priority was paused."""
MARKED, MARKED_SOME = 0.2, 0.01
"""Share of packets that met a full queue. Bursts cost some; congestion control keeps it low."""
RDMA_PACKET, ETHERNET_PACKET, TCP_SEGMENT = 1024.0, 1500.0, 1448.0
"""Bytes of the usual packet, to turn bytes into packets. Larger ones are fewer: shares are then understated."""
LOST, LOST_SOME, LOST_PER_S = 0.01, 0.001, 10.0
"""Share of packets, and packets a second: hosts drop a few in health (protocols that nobody listens to)."""
AGAIN, AGAIN_SOME, AGAIN_PER_S = 0.05, 0.005, 50.0
"""The same of TCP segments sent again: full queues cost some, that is how TCP finds its rate."""
RDMA_AGAIN, RDMA_AGAIN_PER_S = 0.01, 10.0
"""The same for RDMA, whose networks are meant to lose nothing."""


class Finding(NamedTuple):
    """One thing that is wrong with a device: the word for it, whether it is proof, and the sentence after its name."""

    word: str
    hard: bool
    text: str


class Totals:
    """All records of one device in one window, added up."""

    def __init__(self, records: Iterable[Net]) -> None:
        self.records = sorted(records, key=lambda r: (r.ts, r.source))
        self.timed = all(r.interval_s is not None for r in self.records)
        self.seconds = math.fsum(_length(r) for r in self.records)
        self.grown: dict[str, float] = {}
        for r in self.records:
            for name, rate in r.errors.items():
                self.grown[name] = self.grown.get(name, 0.0) + rate * _length(r)
        self.sent, self.received = (_bytes(self.records, side) for side in ("tx_bytes_per_s", "rx_bytes_per_s"))
        drops = [r.drops_per_s * _length(r) for r in self.records if r.drops_per_s is not None]
        self.dropped = math.fsum(drops) if drops else None

    def of(self, names: Iterable[str]) -> dict[str, float]:
        """Those of the counters that grew."""
        return {name: self.grown[name] for name in sorted(names) if self.grown.get(name, 0.0) >= 0.5}

    def a_second(self, amount: float) -> float:
        """An amount of the window as a rate."""
        return amount / self.seconds if self.seconds > 0 else 0.0

    def when(self) -> str:
        """Over which time it was, as words."""
        return f"in {self.seconds:g} s" if self.timed else "between two snapshots"


def _length(record: Net) -> float:
    return NOMINAL_S if record.interval_s is None else record.interval_s


def _bytes(records: list[Net], side: str) -> float | None:
    parts = [rate * _length(r) for r in records if (rate := getattr(r, side)) is not None]
    return math.fsum(parts) if parts else None


def findings(device: str, totals: Totals, recent_errors: float, sent_by_node: float | None) -> list[Finding]:
    """Everything that is wrong. `recent_errors`: of the last minute; `sent_by_node`: bytes of all its interfaces."""
    if device == TCP:
        return _sent_again(totals, ("retrans_segs",), sent_by_node, TCP_SEGMENT, (AGAIN, AGAIN_SOME, AGAIN_PER_S))
    link = _link(totals, recent_errors)
    is_clean = not any(f.hard for f in link)
    rdma = sorted(RETRIES - {"retrans_segs"})
    return [
        *link,
        *_held_back(totals, is_clean=is_clean),
        *_paused(totals),
        *_marked(totals),
        *_dropped(totals),
        *_sent_again(totals, rdma, totals.sent, RDMA_PACKET, (RDMA_AGAIN, 0.0, RDMA_AGAIN_PER_S)),
    ]


def _listed(grown: dict[str, float]) -> str:
    return ", ".join(f"{name} +{amount:.0f}" for name, amount in sorted(grown.items(), key=lambda item: (-item[1], item[0])))


def _link(t: Totals, recent_errors: float) -> list[Finding]:
    breaks, errors, hints = t.of(LINK_BREAKS), t.of(LINK_ERRORS), t.of(LINK_HINTS)
    many = recent_errors >= MANY_ERRORS and (not t.timed or t.a_second(sum(errors.values())) >= ERRORS_PER_S)
    if not breaks and not errors and sum(hints.values()) < HINTED_ERRORS:
        return []
    return [Finding("net_link_errors", bool(breaks) or many, f"{_listed(errors | breaks | hints)} {t.when()}")]


def _held_back(t: Totals, *, is_clean: bool) -> list[Finding]:
    ticks = t.grown.get(XMIT_WAIT, 0.0)
    held = ticks * TICK_BYTES
    if t.a_second(held) < HELD_BYTES_PER_S:
        return []
    share = None if t.sent is None else held / (held + t.sent)
    if share is not None and share < HELD_BACK_SOME:
        return []
    known = "how much it sent is not known" if share is None else f"it could send at most {1 - share:.1%} of what it had to"
    state = "the link itself is clean" if is_clean else "the link also has errors"
    hard = is_clean and share is not None and share >= HELD_BACK
    return [
        Finding(
            "net_congestion", hard, f"held back by the network: {XMIT_WAIT} +{ticks:.0f} ticks {t.when()}, {known}; {state}"
        )
    ]


def _paused(t: Totals) -> list[Finding]:
    found = []
    for side, who in (("rx", "the network forbade it to send"), ("tx", "it forbade the network to send to it")):
        durations = [amount for name, amount in t.grown.items() if PAUSED_US.match(name) and name.startswith(side)]
        share = t.a_second(max(durations, default=0.0)) / 1e6
        if t.timed and share >= PAUSED_SOME:
            found.append(Finding("net_congestion", share >= PAUSED, f"{who} {min(share, 1.0):.0%} of the time (pause frames)"))
    return found


def _marked(t: Totals) -> list[Finding]:
    marks = t.of(MARKS)
    if not marks:
        return []
    share = _share(t.grown.get("np_ecn_marked_roce_packets", 0.0), t.received, RDMA_PACKET)
    slowed = _share(t.grown.get("rp_cnp_handled", 0.0), t.sent, RDMA_PACKET)
    worst = max(share or 0.0, slowed or 0.0)
    if worst < MARKED_SOME:
        return []
    return [
        Finding(
            "net_congestion",
            worst >= MARKED,
            f"packets met full queues: {_listed(marks)} {t.when()}, {worst:.1%} of its packets",
        )
    ]


def _dropped(t: Totals) -> list[Finding]:
    dropped = t.dropped
    if dropped is None or t.a_second(dropped) < 1.0:
        return []
    traffic = None if t.sent is None and t.received is None else (t.sent or 0.0) + (t.received or 0.0)
    share = _share(dropped, traffic, ETHERNET_PACKET)
    many = t.a_second(dropped) >= LOST_PER_S
    if not many and (share is None or share < LOST_SOME):
        return []
    named = t.of(DROPS)
    told = _listed(named) if named else f"{dropped:.0f} packets dropped"
    part = "" if share is None else f", {min(share, 1.0):.1%} of its packets"
    return [Finding("net_drops", many and share is not None and share >= LOST, f"{told} {t.when()}{part}")]


def _sent_again(
    t: Totals, names: Iterable[str], sent: float | None, packet: float, limits: tuple[float, float, float]
) -> list[Finding]:
    proof, some, per_s = limits
    grown = t.of(names)
    amount = sum(grown.values())
    share = _share(amount, sent, packet)
    if t.a_second(amount) < 1.0 or (share is None and t.a_second(amount) < per_s) or (share is not None and share < some):
        return []
    hard = share is not None and share >= proof and t.a_second(amount) >= per_s
    part = "" if share is None else f", {min(share, 1.0):.1%} of what it sent"
    return [Finding("net_retransmits", hard, f"sent again: {_listed(grown)} {t.when()}{part}")]


def _share(packets: float, of_bytes: float | None, packet: float) -> float | None:
    """Share of the packets that so many bytes make; None where nothing flowed or nobody knows."""
    return None if of_bytes is None or of_bytes <= 0 else packets * packet / of_bytes
