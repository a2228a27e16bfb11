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
    """Where a feature was most unusual: its deviation in usual ones, the frame and the rank."""

    scaled: float
    frame: FeatureFrame
    rank: int


def _quotes(d: Diagnosis) -> dict[str, _Quote]:
    """Each feature at its most unusual."""
    case = d.numbers.case
    quotes: dict[str, _Quote] = {}
    for frame, verdict in zip(case.frames, case.verdicts, strict=True):
        channel = verdict.channels.get(case.channel)
        if channel is None or not channel.ranks:
            continue
        for name, scaled in channel.features:
            if name not in quotes or abs(scaled) > abs(quotes[name].scaled):
                quotes[name] = _Quote(scaled, frame, channel.ranks[0])
    return quotes


def _features(d: Diagnosis) -> list[EvidenceItem]:
    quotes = _quotes(d)
    items: list[EvidenceItem] = []
    for name in sorted(quotes, key=lambda n: (-abs(quotes[n].scaled), n)):
        q, feature = quotes[name], _BY_NAME[name]
        if q.rank not in q.frame.ranks or len(items) == MOST_FEATURES:
            continue
        value = float(q.frame.values[q.frame.ranks.index(q.rank), INDEX[name]])
        who = "run" if feature.family in _OF_THE_RUN else f"rank {q.rank}"
        text = f"{who}: {feature.meaning}: {_amount(value, feature, q.frame.unit_s)} ({abs(q.scaled):.0f} usual deviations)"
        items.append(
            EvidenceItem(
                kind=_KIND.get(feature.family, "feature"),
                text=text,
                source=name,
                time=iso(q.frame.start),
                value=rounded(value),
                baseline=0.0,
            )
        )
    return items


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
