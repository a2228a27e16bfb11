"""Evidence in words: the features and facts of a case as sentences with their numbers."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from detector.diagnosis import Diagnosis
from detector.report import EvidenceItem, iso, rounded
from features.extract import FeatureFrame
from features.vocabulary import FEATURES, INDEX, Feature

LONGEST = 300
"""Characters of a quoted message."""
LEAST_DEVIATIONS = 1.5
"""Usual deviations; what deviates less argues nothing, though it may have been among the few that weighed."""
MOST_FEATURES, MOST_FACTS = 5, 6
"""Items of each kind in a report: more than a person reads."""
_BY_NAME = {f.name: f for f in FEATURES}
_OF_THE_RUN = frozenset({"progress", "timeline", "host"})
_KIND: dict[str, Literal["timeline", "telemetry"]] = {
    "timeline": "timeline",
    "ticks": "timeline",
    "process": "telemetry",
    "net": "telemetry",
    "host": "telemetry",
}


_PHASES = {
    "data": "waiting for input",
    "forward": "forward pass",
    "backward": "backward pass",
    "sync": "waiting in collectives",
    "optimizer": "optimizer",
    "local": "time outside collectives",
}
MEASURED: dict[str, tuple[str, str]] = {
    **{f"{p}_vs_{other}": (p, f"{noun} per step") for p, noun in _PHASES.items() for other in ("past", "peers")},
    "step_vs_past": ("step", "median step"),
    "step_max_vs_past": ("step_max", "longest step of a window"),
    "period_vs_past": ("period", "time between two uses of a tensor"),
    "negotiate_vs_past": ("negotiate", "wait for the last rank"),
    "cycle_vs_past": ("cycle", "background cycle"),
    "cycle_gap": ("cycle_max", "longest gap between background cycles"),
}
"""Features of times, the measure behind each (seconds) and how it is called in a sentence."""
FEATURES_OF_WORD: dict[str, tuple[str, ...]] = {
    "one_rank_slow": ("local_vs_peers", "local_vs_usual", "lateness"),
    "all_ranks_slow": ("local_vs_past",),
    "local_data": ("data_vs_peers", "data_vs_past"),
    "local_forward": ("forward_vs_peers",),
    "local_backward": ("backward_vs_peers",),
    "wait_on_others": ("negotiate_vs_past",),
    "sync_all": ("sync_vs_past",),
    "batch_uneven": ("batch_vs_peers",),
    "negotiate_long": ("negotiate_vs_past",),
    "negotiate_open": ("negotiate_max_vs_past", "quiet"),
    "transfer_long": ("transfer_vs_past",),
    "small_transfers_slow": ("cycle_vs_past",),
    "cycle_gap": ("cycle_gap",),
    "cycle_bound": ("cycle_share",),
    "small_collectives": ("unfused_share",),
    "one_rank_last": ("last_share",),
    "status_stopped": ("stopped",),
    "cpu_high": ("cpu_vs_peers",),
    "cpu_low": ("cpu_vs_peers",),
    "foreign_cpu": ("foreign_cpu",),
    "iowait": ("iowait",),
    "disk_busy": ("disk_busy_vs_past",),
    "net_retransmits": ("retransmits_vs_past",),
    "net_drops": ("drops",),
    "net_throughput_low": ("net_vs_past",),
    "rss_growth": ("rss_vs_past", "rss_growth"),
    "host_memory_low": ("memory_low",),
    "swap_use": ("swap_vs_past",),
    "loss_diverges_one_rank": ("loss_vs_peers",),
    "loss_diverges_all": ("loss_vs_past",),
    "param_norm_desync": ("param_desync",),
    "no_progress": ("silence", "quiet"),
    "checkpoint_long": ("pause_share",),
    "validation_long": ("pause_share",),
}
"""The features that show a word of the evidence vocabulary."""
WHOEVER = frozenset({"retransmits_vs_past", "sync_vs_past", "net_vs_past"})
"""Features that rise on others than the one at fault: those who send to a lossy host, those who wait for a slow one."""
SEEN = 0.2
"""Strength of a signature's word times how far it was seen, from which its features are quoted first."""


def evidence_items(d: Diagnosis) -> list[EvidenceItem]:
    """Facts in the order of time, then the features that weigh most."""
    return [*_facts(d), *_features(d), *_suspicion(d)]


def _facts(d: Diagnosis) -> list[EvidenceItem]:
    """Roots first when there are too many; each text once, as launchers repeat what ranks write."""
    once = {f.text: f for f in sorted(d.numbers.case.facts, key=lambda f: (f.role != "root", f.ts, f.source))[::-1]}
    chosen = sorted(once.values(), key=lambda f: (f.role != "root", f.ts))[:MOST_FACTS]
    items = []
    for f in sorted(chosen, key=lambda f: f.ts):
        text = f.text if len(f.text) <= LONGEST else f.text[: LONGEST - 3] + "..."
        items.append(EvidenceItem(kind=f.kind, text=text, source=f.source or "telemetry", time=iso(f.ts)))
    return items


class _Quote(msgspec.Struct, frozen=True):
    """A feature where it was most unusual: its value, the frame, the rank, and its deviation in usual ones if judged."""

    name: str
    value: float
    frame: FeatureFrame
    rank: int
    scaled: float | None = None


def _judged(d: Diagnosis) -> dict[str, _Quote]:
    """Each feature that weighed in a verdict, at its most unusual."""
    case = d.numbers.case
    quotes: dict[str, _Quote] = {}
    for frame, verdict in zip(case.frames, case.verdicts, strict=True):
        channel = verdict.of(case.channel)
        if channel is None or not channel.ranks or channel.ranks[0] not in frame.ranks:
            continue
        row = frame.values[frame.ranks.index(channel.ranks[0])]
        for name, scaled in channel.features:
            if name not in quotes or abs(scaled) > abs(quotes[name].scaled or 0.0):
                quotes[name] = _Quote(name, float(row[INDEX[name]]), frame, channel.ranks[0], scaled)
    return quotes


def _telling(d: Diagnosis) -> list[_Quote]:
    """The features behind the words of the cause's signature, the most telling word first."""
    if d.cause is None:
        return []
    weight = {w: s * d.evidence.get(w, 0.0) for w, s in d.cause.evidence.items() if w in FEATURES_OF_WORD}
    words = sorted((w for w in weight if weight[w] > SEEN), key=lambda w: (-weight[w], w))
    quotes = [_most_unusual(d, name) for word in words for name in FEATURES_OF_WORD[word]]
    return [q for q in quotes if q is not None and abs(q.value) > _BY_NAME[q.name].floor]


def _most_unusual(d: Diagnosis, name: str) -> _Quote | None:
    """A feature at its largest: of the first suspect where it compares ranks and he is known for it, else of any rank."""
    best: _Quote | None = None
    for frame in d.numbers.case.frames:
        for rank, value in zip(frame.ranks, frame.values[:, INDEX[name]].tolist(), strict=True):
            mine = not d.ranks or rank == d.ranks[0] or name in WHOEVER
            if mine and math.isfinite(value) and (best is None or abs(value) > abs(best.value)):
                best = _Quote(name, value, frame, rank)
    return best


def _features(d: Diagnosis) -> list[EvidenceItem]:
    judged = _judged(d)
    unusual = [q for q in judged.values() if abs(q.scaled or 0.0) >= LEAST_DEVIATIONS]
    rest = sorted(unusual, key=lambda q: (-abs(q.scaled or 0.0), q.name))
    chosen: dict[str, _Quote] = {}
    for q in [*_telling(d), *rest]:
        if len(chosen) < MOST_FEATURES:
            chosen.setdefault(q.name, q)
    return [_item(q) for q in chosen.values()]


def _item(q: _Quote) -> EvidenceItem:
    feature, raw = _BY_NAME[q.name], _raw(q)
    who = "run" if feature.family in _OF_THE_RUN else f"rank {q.rank}"
    told = f"{feature.meaning}: {_amount(q.value, feature, q.frame.unit_s)}"
    if raw is not None:
        against = "its peers" if q.name.endswith("_vs_peers") else "before"
        told = f"{MEASURED[q.name][1]} {raw[0] * 1000:.0f} ms, {against} {raw[1] * 1000:.0f} ms"
    return EvidenceItem(
        kind=_KIND.get(feature.family, "feature"),
        text=f"{who}: {told}" + ("" if q.scaled is None else f" ({abs(q.scaled):.0f} usual deviations)"),
        source=q.name,
        time=iso(q.frame.start),
        value=rounded(q.value if raw is None else raw[0]),
        baseline=rounded(0.0 if raw is None else raw[1]),
    )


def _raw(q: _Quote) -> tuple[float, float] | None:
    """The measure behind a feature and what it is compared with, seconds; None where it is no time."""
    if q.name not in MEASURED or q.rank not in q.frame.ranks:
        return None
    measure = MEASURED[q.name][0]
    now = q.frame.measures.run.get(measure, math.nan)
    if measure in q.frame.measures.per_rank:
        now = float(q.frame.measures.per_rank[measure][q.frame.ranks.index(q.rank)])
    is_ratio = _BY_NAME[q.name].unit == "log2 ratio"
    usual = now / 2.0**q.value if is_ratio else now - q.value * q.frame.unit_s
    return (now, max(usual, 0.0)) if math.isfinite(now) and math.isfinite(usual) else None


def _amount(value: float, feature: Feature, unit_s: float) -> str:
    """A number with its unit, and in words where the unit is a logarithm or the usual step."""
    if feature.unit == "steps" and math.isfinite(unit_s):
        return f"{value:+.2f} usual steps = {value * unit_s * 1000:+.0f} ms"
    if feature.unit == "log2 ratio":
        return f"{2.0**value:.3g} times"
    if feature.unit == "log2 steps" and math.isfinite(unit_s):
        at_zero = 1.0 if feature.name == "silence_vs_peers" else 2.0  # silence of all begins with the second missing step
        return f"{at_zero * 2.0**value:.0f} usual steps"
    if feature.unit == "log2(1+rate)":
        return f"{2.0**value - 1.0:.3g} per second"
    if feature.unit == "log10 ratio":
        return f"{10.0**value:.3g} times"
    if feature.unit == "ratio":
        return f"{value:.1%}"
    return f"{value:+.2f} {feature.unit}"


def _suspicion(d: Diagnosis) -> list[EvidenceItem]:
    """Why the first rank is suspected, where no fact said it already."""
    if not d.ranks or not d.suspects or d.suspects[0].rank != d.ranks[0]:
        return []
    first = d.suspects[0]
    if any(f.text == first.reason for f in d.numbers.case.facts):
        return []
    meaning = _BY_NAME[first.reason].meaning if first.reason in _BY_NAME else first.reason
    others = ", ".join(str(s.rank) for s in d.suspects[1:4])
    text = f"rank {first.rank} is suspected first: {WAITS if meaning == 'waits_least' else meaning}"
    return [EvidenceItem(kind="rule", text=text + (f"; then {others}" if others else ""), source="culprit")]


WAITS = "it waits least while its peers poll or spin for it"
