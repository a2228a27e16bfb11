"""Evidence in words: the features and facts of a case as sentences with their numbers."""

from __future__ import annotations

import math

import numpy as np

from detector.diagnosis import Diagnosis
from detector.report import EvidenceItem, iso, rounded
from features.vocabulary import FEATURES, INDEX

MOST_FEATURES, MOST_FACTS = 5, 6
"""Items of each kind in a report: more than a person reads."""
_BY_NAME = {f.name: f for f in FEATURES}
_OF_THE_RUN = frozenset({"progress", "timeline", "host"})
_KIND = {"timeline": "timeline", "ticks": "timeline", "process": "telemetry", "net": "telemetry", "host": "telemetry"}


def evidence_items(d: Diagnosis) -> list[EvidenceItem]:
    """Facts in the order of time, then the features that weigh most."""
    return [*_facts(d), *_features(d), *_suspicion(d)]


def _facts(d: Diagnosis) -> list[EvidenceItem]:
    items = []
    ordered = sorted(d.numbers.case.facts, key=lambda f: (f.role != "root", f.ts))[:MOST_FACTS]
    for f in sorted(ordered, key=lambda f: f.ts):
        text = f.text if len(f.text) <= 300 else f.text[:297] + "..."
        items.append(EvidenceItem(kind=f.kind, text=text, source=f.source or "telemetry", time=iso(f.ts)))
    return items


def _weights(d: Diagnosis) -> dict[str, float]:
    """How much each feature weighed over the case: its largest scaled value in any verdict."""
    weights: dict[str, float] = {}
    for verdict in d.numbers.case.verdicts:
        channel = verdict.channels.get(d.numbers.case.channel)
        for name, value in channel.features if channel is not None else ():
            if abs(value) > abs(weights.get(name, 0.0)):
                weights[name] = value
    return weights


def _features(d: Diagnosis) -> list[EvidenceItem]:
    weights = _weights(d)
    items = []
    for name in sorted(weights, key=lambda n: (-abs(weights[n]), n))[:MOST_FEATURES]:
        feature, n = _BY_NAME[name], d.numbers
        row = _row_to_quote(d, name)
        if row is None:
            continue
        value = float(n.typical[row, INDEX[name]])
        if math.isnan(value):
            value = float(n.extreme[row, INDEX[name]])
        if math.isnan(value):
            continue
        who = "run" if feature.family in _OF_THE_RUN else f"rank {n.ranks[row]}"
        text = f"{who}: {feature.meaning}: {value:+.2f} {feature.unit} ({abs(weights[name]):.1f} usual deviations)"
        kind = _KIND.get(feature.family, "feature")
        items.append(
            EvidenceItem(kind=kind, text=text, source=name, time=iso(n.case.start), value=rounded(value), baseline=0.0)  # type: ignore[arg-type]
        )
    return items


def _row_to_quote(d: Diagnosis, name: str) -> int | None:
    """The suspect's row where it is known for this feature, else the most extreme one."""
    n = d.numbers
    column = n.extreme[:, INDEX[name]] if len(n.ranks) else np.array([])
    if not np.isfinite(column).any():
        return None
    if d.ranks and name.endswith("_vs_peers"):
        at = n.ranks.index(d.ranks[0])
        if math.isfinite(column[at]):
            return at
    return int(np.nanargmax(np.abs(column)))


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
