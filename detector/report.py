"""The report: what `score` says of one run, in the shape that programs read (schema rankwatch.report/1)."""

from __future__ import annotations

import datetime as dt
import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
"""Most serious first: the order of a report's incidents."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EvidenceItem(_Part):
    """One thing that was seen; `baseline` is what it used to be, in the same unit as `value`."""

    kind: Literal["feature", "timeline", "log", "telemetry", "rule"]
    text: str
    source: str
    time: str | None = None
    value: float | None = None
    baseline: float | None = None


class FixItem(_Part):
    """One remedy from the catalog, with how to see that it helped and how to take it back."""

    action: str
    why: str
    commands: list[str]
    source: str
    text: str
    verify: str
    undo: str


class Impact(_Part):
    """What the incident cost: `lost_s` seconds of the run, `slowdown` = step time during it over the usual one."""

    lost_s: float | None
    slowdown: float | None


class Incident(_Part):
    """One root cause. `ranks` are those at fault, most suspect first; empty = the whole run or a host."""

    id: str
    category: str
    cause: str
    title: str
    confidence: float
    severity: Severity
    ranks: list[int]
    nodes: list[str]
    start: str
    end: str | None
    first_step: int | None
    last_step: int | None
    score: float | None
    limit: float | None
    impact: Impact
    alternatives: dict[str, float] = {}
    evidence: list[EvidenceItem]
    fixes: list[FixItem]


class RunSummary(_Part):
    """The run itself."""

    id: str
    path: str
    world_size: int | None
    nodes: list[str]
    start: str | None
    end: str | None
    steps: int | None
    sources: list[str]


class ModelSummary(_Part):
    """Which bundle judged."""

    id: str
    features: int


class WindowSummary(_Part):
    """How many windows of what length were judged, and how many were unusual."""

    count: int
    length_s: float
    anomalous: int


class NoticeItem(_Part):
    """What a reader should know about the input; `count` is how often it was met."""

    level: Literal["info", "warning", "error"]
    text: str
    source: str
    count: int = 1


class Report(_Part):
    """Everything about one run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, validate_by_alias=True)

    schema_: Literal["rankwatch.report/1"] = Field(default="rankwatch.report/1", alias="schema")
    run: RunSummary
    model: ModelSummary
    windows: WindowSummary
    incidents: list[Incident]
    notices: list[NoticeItem]

    def to_json(self, *, indent: int | None = 2) -> str:
        """The JSON text; the same report gives the same bytes."""
        return self.model_dump_json(by_alias=True, indent=indent)

    @property
    def is_anomalous(self) -> bool:
        """Some incident asks for action."""
        return any(i.severity != "info" for i in self.incidents)


def iso(seconds: float | None) -> str | None:
    """ISO 8601 in UTC with milliseconds.

    >>> iso(1.5)
    '1970-01-01T00:00:01.500Z'
    """
    if seconds is None or not math.isfinite(seconds):
        return None
    try:
        when = dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rounded(value: float | None, digits: int = 4) -> float | None:
    """Rounded for people and stable bytes; None for unknown or not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
