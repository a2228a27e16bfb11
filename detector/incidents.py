"""Assembles incidents: joins cases of one root, diagnoses them, counts what they cost and adds the fixes."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from detector.cases import AFTERMATH_S, Case
from detector.catalog import Catalog
from detector.diagnosis import Diagnosis, diagnose, numbers_of
from detector.pace import step_and_usual
from detector.report import SEVERITIES, FixItem, Impact, Incident, Severity, iso, rounded
from detector.wording import evidence_items
from features.measures.table import RunMemory
from features.vocabulary import INDEX
from models import Bundle

DEATHS = frozenset({"log_exit_killed", "log_exit_other", "process_gone", "log_dataloader_death", "log_oom_host"})
RECURRING = 3
"""Stalls at even distances from this many on are a rhythm of the run, such as a checkpoint, and one incident."""
EVEN = 0.25
"""Largest relative deviation of the distances that still counts as even."""


def incidents_of(cases: list[Case], memory: RunMemory, bundle: Bundle, catalog: Catalog, run_id: str) -> list[Incident]:
    """All incidents of a run, most serious first."""
    kept = [c for c in cases if not is_plain_end(c, memory)]
    joined = join_recurring(join_slowed_by_memory(join_aftermath(kept), memory))
    made = [_incident(c, diagnose(c, memory, bundle, catalog), run_id) for c in joined]
    return sorted(made, key=lambda i: (SEVERITIES.index(i.severity), i.start, i.id))


def join_aftermath(cases: list[Case]) -> list[Case]:
    """The earliest root keeps what followed from it: a death after a leak, exceptions after a stall."""
    out: list[Case] = []
    for case in sorted(cases, key=lambda c: (c.start, c.channel)):
        root = next((c for c in out if _follows(case, c)), None)
        if root is None:
            out.append(case)
            continue
        root.facts = sorted([*root.facts, *case.facts], key=lambda f: (f.ts, f.name))
        root.is_open = root.is_open or case.is_open
        if root.channel == case.channel:
            root.frames += case.frames
            root.verdicts += case.verdicts
    return out


END_S = 10.0
"""Seconds between a run's last step and the exit of its processes that are still an ordinary end: workers and
communication threads are taken down. A hang lasts longer."""


def is_plain_end(case: Case, memory: RunMemory) -> bool:
    """Silence that is only the end of a run which does not say that it is done (its logs are missing)."""
    if case.channel != "pace" or any(f.role == "root" for f in case.facts) or memory.dangling_since is not None:
        return False
    last = max([*memory.last_step_end.values(), memory.last_collective_end or 0.0])
    ended = [t for t in (memory.gone.get(r, memory.finished.get(r)) for r in memory.ranks) if t is not None]
    if not case.frames or case.frames[0].end < last or len(ended) < len(memory.ranks):
        return False
    return bool(ended) and max(ended) - last <= END_S


def join_slowed_by_memory(cases: list[Case], memory: RunMemory) -> list[Case]:
    """A rank whose memory grows is slow as well: the growth is the root, whichever was noticed first."""
    out = list(cases)
    for grown in (c for c in cases if c.channel == "memory"):
        suspect = numbers_of(grown, memory)[0].suspects[:1]
        for slow in (c for c in cases if c.channel == "pace" and not any(f.role == "root" for f in c.facts)):
            overlap = slow.start <= grown.last and grown.start <= slow.last
            if overlap and suspect and numbers_of(slow, memory)[0].suspects[:1] == suspect:
                grown.facts = sorted([*grown.facts, *slow.facts], key=lambda f: (f.ts, f.name))
                out = [c for c in out if c is not slow]
    return out


def _follows(case: Case, earlier: Case) -> bool:
    """Whether `case` is the aftermath of `earlier`."""
    if case.start > earlier.last + AFTERMATH_S:
        return False
    only_cascade = bool(case.facts) and all(f.role != "root" for f in case.facts)
    died_of_memory = earlier.channel == "memory" and any(f.name in DEATHS for f in case.facts)
    return only_cascade or died_of_memory


def join_recurring(cases: list[Case]) -> list[Case]:
    """Like cases at even distances become one that recurs."""
    pace = [c for c in cases if c.channel == "pace" and not any(f.role == "root" for f in c.facts)]
    if len(pace) < RECURRING:
        return cases
    gaps = np.diff([c.start for c in pace])
    if float(np.max(np.abs(gaps - np.median(gaps)))) > EVEN * float(np.median(gaps)):
        return cases
    first, rest = pace[0], pace[1:]
    for c in rest:
        first.frames += c.frames
        first.verdicts += c.verdicts
        first.facts += c.facts
        first.is_open = c.is_open
    first.recurs = len(pace)
    return [c for c in cases if all(c is not r for r in rest)]


def _incident(case: Case, d: Diagnosis, run_id: str) -> Incident:
    cause = d.cause
    cause_name = "unknown" if cause is None else cause.name
    steps = [s for f in case.frames for s in (f.first_step, f.last_step) if s is not None]
    start = onset(case)
    worst = max((of for v in case.verdicts if (of := v.of(case.channel)) is not None), key=lambda of: of.score, default=None)
    fixes = [] if cause is None else cause.fixes
    return Incident(
        id=incident_id(run_id, case.channel, start),
        category=d.category,
        cause=cause_name,
        title="a cause that the catalog does not know" if cause is None else cause.title,
        confidence=round(d.confidence, 3),
        severity=_severity(case, "warning" if cause is None else cause.severity),
        ranks=d.ranks,
        nodes=_nodes(d),
        start=iso(start) or "",
        end=None if case.is_open else iso(case.last),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        score=None if worst is None else rounded(worst.score),
        limit=None if worst is None else rounded(worst.limit),
        impact=impact(case),
        alternatives=d.alternatives,
        evidence=evidence_items(d),
        fixes=[FixItem(**f.model_dump(include=set(FixItem.model_fields), mode="json")) for f in fixes],
    )


def _nodes(d: Diagnosis) -> list[str]:
    """Nodes of the ranks at fault, or else those that the root facts speak of."""
    placed = d.numbers.memory.nodes
    of_ranks = [placed[r] for r in d.ranks if r in placed]
    of_facts = [f.node for f in d.numbers.case.facts if f.role == "root" and f.node is not None]
    return list(dict.fromkeys(of_ranks or of_facts))


def incident_id(run_id: str, channel: str, start: float) -> str:
    """Stable over repeated scoring: the run, what it is about, and the second it began."""
    return "i-" + hashlib.sha256(f"{run_id}|{channel}|{math.floor(start)}".encode()).hexdigest()[:12]


def onset(case: Case) -> float:
    """When it began. Where a silence shows it, that is when the last step should have been followed by the next."""
    first = case.frames[0] if case.frames else None
    if first is None:
        return case.start
    silent_s = first.measures.run.get("since_step", math.nan)
    if math.isnan(silent_s):
        silent_s = first.measures.run.get("since_collective", math.nan)
    if math.isfinite(silent_s) and math.isfinite(first.unit_s) and silent_s > 2 * first.unit_s:
        return min(case.start, max(first.until - silent_s + first.unit_s, first.start - AFTERMATH_S))
    return case.start


def _severity(case: Case, usual: Severity) -> Severity:
    """Critical where the run stopped: nothing moved any more when the records end."""
    ended = case.is_open and any(f.role == "root" and f.name in DEATHS for f in case.facts)
    return "critical" if ended else usual


def impact(case: Case) -> Impact:
    """Seconds lost against the usual step, and the slowdown, over the unusual windows; or as a fact tells."""
    told = next((f for f in case.facts if f.slowdown is not None), None)
    if told is not None:
        return Impact(lost_s=rounded(told.lost_s, 2), slowdown=rounded(told.slowdown, 2))
    lost, slowdowns = 0.0, []
    has_past = any(len(f.values) and math.isfinite(f.values[0, INDEX["step_vs_past"]]) for f in case.frames)
    if not has_past and all(f.first_step is not None for f in case.frames):
        return Impact(lost_s=None, slowdown=None)  # there from the first step: nobody knows what a step should cost
    for f in case.frames:
        if not math.isfinite(f.unit_s):
            continue
        step, usual = step_and_usual(f)
        length = f.end - f.start
        if math.isnan(step):
            lost += length if f.measures.run.get("since_step", math.nan) > 2 * f.unit_s else 0.0
            continue
        slowdown = max(step / usual, 1.0)
        slowdowns.append(slowdown)
        lost += length * (1.0 - 1.0 / slowdown)
    return Impact(
        lost_s=round(lost, 2) if case.frames else None,
        slowdown=round(float(np.median(slowdowns)), 2) if slowdowns else None,
    )
