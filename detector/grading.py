"""Grades a report against a label: was the fault found, when, on the right rank, in the right category, and at what noise."""

from __future__ import annotations

import datetime as dt
import math

import msgspec

from detector.labels import Label
from detector.report import Incident, Report

EARLY_S, LATE_S = 5.0, 10.0
"""An incident may start this much before the fault, or after its end, and still be about it."""


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """One run's grade; None where a question does not arise."""

    found: bool | None = None
    rank: bool | None = None
    category: bool | None = None
    cause: bool | None = None
    delay_s: float | None = None
    false_alarms: int = 0
    extra: int = 0
    said: str = ""
    confidence: float | None = None
    hours: float = 0.0


def grade(label: Label, report: Report) -> Grade:
    """Incidents count from severity "warning" on; the first in the report's order that starts within the fault is judged."""
    loud = [i for i in report.incidents if i.severity != "info"]
    hours = max(label.exit - label.launch, 0.0) / 3600 if math.isfinite(label.exit - label.launch) else 0.0
    if label.is_healthy:
        said = "; ".join(_said(i) for i in loud)
        return Grade(false_alarms=len(loud), hours=hours, said=said)
    begin = (label.launch if label.from_first_step else label.start) - EARLY_S
    hits = [i for i in loud if begin <= seconds(i.start) <= label.end + LATE_S]
    false_alarms = len(loud) - len(hits)
    if not hits:
        return Grade(found=False, rank=False, category=False, cause=False, false_alarms=false_alarms, hours=hours)
    first = hits[0]
    delay_s = max(0.0, seconds(first.start) - label.start)
    return Grade(
        found=True,
        rank=_is_rank_right(label, first),
        category=first.category in label.accept,
        cause=f"{first.category}/{first.cause}" == label.cause,
        delay_s=round(delay_s, 1) if math.isfinite(delay_s) else None,
        false_alarms=false_alarms,
        extra=sum(i.category not in label.accept for i in hits[1:]),
        said=_said(first),
        confidence=first.confidence,
        hours=hours,
    )


def seconds(iso_time: str) -> float:
    """Seconds since the epoch of a report's time."""
    return dt.datetime.fromisoformat(iso_time.replace("Z", "+00:00")).timestamp()


def _said(i: Incident) -> str:
    return f"{i.category}/{i.cause} {i.ranks}"


def _is_rank_right(label: Label, i: Incident) -> bool:
    if not label.ranks or len(label.ranks) == label.world_size:
        return len(i.ranks) in (0, label.world_size)
    return bool(i.ranks) and i.ranks[0] in label.ranks
