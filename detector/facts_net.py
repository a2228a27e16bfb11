"""Facts of the network: links that fail, go down or fall silent, congestion, losses, and tests that show low bandwidth."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from statistics import median

from detector.fact import Fact
from detector.facts_links import Finding, Totals, findings
from features.counters import LINK_ERRORS, TCP
from features.measures.table import RunMemory
from features.parsers.hostcounters import VIRTUAL_INTERFACES
from features.parsers.net_nccltests import DEVICE as BENCHMARKS
from features.parsers.net_p2p import BANDWIDTH_LOW, P2P_SLOW
from features.records import Net
from features.snapshots import NOWHERE
from features.windows import Window

Key = tuple[str, str]  # node, device

NO_LINK = (*VIRTUAL_INTERFACES, "lxc", "tap", "tun", "wg", "kube", "nodelocal", "vnet", "ovs", "gre", "sit", "cilium", "eni")
"""Interfaces of containers and tunnels: they come, go and drop as their owners like."""
WORD_OF_TEST = {P2P_SLOW: "log_p2p_disabled", BANDWIDTH_LOW: "net_throughput_low"}
"""Events of tests of bandwidth -> the word of the evidence vocabulary."""

RECENT_S = 60.0
"""Errors of a link are added up over this long: windows may be as short as a second."""
SILENT, BUSY, ACTIVE = 0.01, 1e6, 0.3
"""A device is silent at a hundredth of its usual traffic, if that was a megabyte a second, while another one keeps a third."""
REMEMBERED, FEWEST = 20, 3
"""Windows that tell what is usual, and how many of them it takes."""
ODD_TEST, FEWEST_TESTS = 0.5, 3
"""A node whose result is below half of the others' median is slow; two results do not tell which one is odd."""


class NetFacts:
    """Finds the facts of each window; remembers what is usual for each device, and what was said."""

    def __init__(self) -> None:
        self._errors: dict[Key, deque[tuple[float, float]]] = defaultdict(deque)
        self._rates: dict[Key, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self._up: dict[Key, bool] = {}
        self._silent: set[Key] = set()
        self._tests: dict[str, dict[str, Net]] = defaultdict(dict)  # test -> node -> best result
        self._odd: set[Key] = set()

    def of(self, window: Window, memory: RunMemory) -> list[Fact]:
        """Facts of this window, earliest first."""
        devices: dict[Key, list[Net]] = defaultdict(list)
        for record in window.nets:
            if not record.device.startswith(NO_LINK):
                devices[record.node, record.device].append(record)
        tests = {key: records for key, records in devices.items() if key[1].startswith(BENCHMARKS)}
        totals = {key: Totals(records) for key, records in sorted(devices.items()) if key not in tests}
        found = [
            *self._counted(totals, memory),
            *self._down(totals, memory),
            *self._fell_silent(totals, memory),
            *self._slow_nodes(tests, memory),
            *_tests_of_gpus(window),
        ]
        return sorted(found, key=lambda f: (f.ts, f.name, f.ranks, f.text))

    def _counted(self, totals: dict[Key, Totals], memory: RunMemory) -> Iterator[Fact]:
        for key, t in totals.items():
            sent = [other.sent for (node, device), other in totals.items() if node == key[0] and device != TCP]
            known = [amount for amount in sent if amount is not None]
            for finding in findings(key[1], t, self._recent(key, t), sum(known) if known else None):
                yield _fact(key, finding, t.records, memory)

    def _recent(self, key: Key, t: Totals) -> float:
        """Damage on a link in the last minute, or within one longer interval."""
        errors, now = self._errors[key], t.records[-1].ts
        errors.append((now, sum(t.of(LINK_ERRORS).values())))
        while errors and errors[0][0] < now - RECENT_S:
            errors.popleft()
        return sum(amount for _, amount in errors)

    def _down(self, totals: dict[Key, Totals], memory: RunMemory) -> Iterator[Fact]:
        """Links that were up before: unused ports are down for good."""
        for key, t in totals.items():
            for record in t.records:
                if record.is_up is None:
                    continue
                if self._up.get(key) and not record.is_up:
                    yield _fact(key, Finding("net_link_errors", True, "the link went down"), [record], memory)
                self._up[key] = record.is_up

    def _fell_silent(self, totals: dict[Key, Totals], memory: RunMemory) -> Iterator[Fact]:
        """A device that carried traffic and carries none, while others go on; if all do, the job has stopped or ended."""
        now = {key: rate for key, t in totals.items() if t.timed and (rate := _traffic(t)) is not None}
        usual = {key: median(past) for key in now if len(past := self._rates[key]) >= FEWEST}
        alive = any(usual[key] >= BUSY and now[key] >= ACTIVE * usual[key] for key in usual)
        for key, rate in now.items():
            if usual.get(key, 0.0) >= BUSY and rate < SILENT * usual[key]:
                if alive and key not in self._silent:
                    self._silent.add(key)
                    text = f"carries {rate / 1e6:.3g} MB/s, usually {usual[key] / 1e6:.4g} MB/s, while other links go on"
                    yield _fact(key, Finding("net_silence", False, text), totals[key].records, memory)
            else:
                self._silent.discard(key)
                self._rates[key].append(rate)

    def _slow_nodes(self, tests: dict[Key, list[Net]], memory: RunMemory) -> Iterator[Fact]:
        for (node, test), records in sorted(tests.items()):
            best = max(records, key=lambda r: (r.tx_bytes_per_s or 0.0, r.source))
            before = self._tests[test].get(node)
            if before is None or (best.tx_bytes_per_s or 0.0) > (before.tx_bytes_per_s or 0.0):
                self._tests[test][node] = best
        for test in sorted({test for _, test in tests}):
            rates = {node: r.tx_bytes_per_s or 0.0 for node, r in self._tests[test].items()}
            for node, rate in sorted(rates.items()):
                usual = median([other for name, other in rates.items() if name != node] or [0.0])
                if len(rates) >= FEWEST_TESTS and rate < ODD_TEST * usual and (node, test) not in self._odd:
                    self._odd.add((node, test))
                    text = f"reaches {rate / 1e9:.4g} GB/s, the other nodes {usual / 1e9:.4g} GB/s"
                    yield _fact((node, test), Finding("net_throughput_low", True, text), [self._tests[test][node]], memory)


def _traffic(t: Totals) -> float | None:
    known = [amount for amount in (t.sent, t.received) if amount is not None]
    return t.a_second(sum(known)) if known else None


def _fact(key: Key, finding: Finding, records: list[Net], memory: RunMemory) -> Fact:
    node, device = key
    record = next((r for r in records if any(rate > 0 for rate in r.errors.values())), records[0])
    place = device if node == NOWHERE else f"{device} on {node}"
    return Fact(
        ts=record.ts,
        name=finding.word,
        role="root",
        hard=finding.hard,
        channel="pace",
        text=f"{place}: {finding.text}",
        ranks=_ranks(node, memory),
        source=record.source,
        kind="telemetry",
    )


def _ranks(node: str, memory: RunMemory) -> tuple[int, ...]:
    """Ranks on the node, where the job has several: on a single one, all of them would be accused."""
    if len(set(memory.nodes.values())) < 2:
        return ()
    return tuple(rank for rank, name in sorted(memory.nodes.items()) if _short(name) == _short(node))


def _short(node: str) -> str:
    """A node's name without its domain; an address stays as it is."""
    return node if node[:1].isdecimal() else node.partition(".")[0]


def _tests_of_gpus(window: Window) -> Iterator[Fact]:
    for log in window.logs:
        if log.event in WORD_OF_TEST:
            yield Fact(
                ts=window.start if log.ts is None else log.ts,
                name=WORD_OF_TEST[log.event],
                role="root",
                channel="pace",
                text=log.text,
                source=log.source,
                kind="telemetry",
            )
