"""From a case to its cause: evidence, suspects, the classifier's answer, and the ranks that the cause allows to name."""

from __future__ import annotations

import msgspec

from detector.cases import Case
from detector.catalog import Catalog, Cause
from detector.culprits import Suspect, network_suspects, suspects
from detector.evidence import CaseNumbers, evidence_of
from features.measures.table import RunMemory
from models import Bundle

CONFIDENT = 0.4
"""Below this the cause is called unknown: among fifty causes the right one stands well above it when evidence is there."""


class Diagnosis(msgspec.Struct, frozen=True):
    """What a case is taken to be. `cause` is None when nothing fits well enough; `category` is then the likeliest one."""

    category: str
    cause: Cause | None
    confidence: float
    ranks: list[int]
    alternatives: dict[str, float]
    suspects: list[Suspect]
    evidence: dict[str, float]
    numbers: CaseNumbers


def numbers_of(case: Case, memory: RunMemory) -> tuple[CaseNumbers, list[Suspect]]:
    """The case's numbers with its suspects set."""
    numbers = CaseNumbers(case, memory)
    found = suspects(numbers)
    numbers.suspects = [s.rank for s in found]
    return numbers, found


def diagnose(case: Case, memory: RunMemory, bundle: Bundle, catalog: Catalog) -> Diagnosis:
    """The likeliest cause of a case and who is at fault."""
    numbers, found = numbers_of(case, memory)
    evidence = evidence_of(numbers)
    names = bundle.evidence_names  # words that came into the catalog after the training say nothing to this bundle
    row = [[evidence.get(name, 0.0) for name in names]]
    probabilities = dict(zip(bundle.classes, bundle.classify(row, names)[0].tolist(), strict=True))
    ranked = sorted(probabilities.items(), key=lambda item: (-item[1], item[0]))
    best, confidence = ranked[0]
    categories: dict[str, float] = {}
    for cause_id, p in ranked:
        category = cause_id.partition("/")[0]
        categories[category] = categories.get(category, 0.0) + p
    cause = catalog.causes.get(best) if confidence >= CONFIDENT else None
    category = best.partition("/")[0] if cause is not None else max(categories, key=lambda c: categories[c])
    named = any(f.role == "root" and f.ranks for f in case.facts)
    if category == "communication" and not named and evidence.get("negotiate_open", 0.0) < 0.5:
        found = network_suspects(numbers) or found
    ranks = [s.rank for s in found] if _names_ranks(cause, memory) else []
    return Diagnosis(
        category=category,
        cause=cause,
        confidence=confidence if cause is not None else categories[category],
        ranks=ranks,
        alternatives={k: round(p, 4) for k, p in ranked[1:4] if p >= 0.02},
        suspects=found,
        evidence=evidence,
        numbers=numbers,
    )


def _names_ranks(cause: Cause | None, memory: RunMemory) -> bool:
    """Whether the cause is somebody's: a rank's, or that of one host among several."""
    if cause is None or cause.scope == "rank" or cause.category == "communication":
        return True  # a link has two ends: the rank behind it is named even where all ranks share one host
    return cause.scope == "host" and len(set(memory.nodes.values())) > 1
