"""Measures diagnosis on cases: inputs that people really had, each with a sidecar that says what it was."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from detector.report import Incident, Report
from features.errors import InputError, RankwatchError

HEALTHY = "healthy"
DEAD_IS_PROCESS = "process"
"""Where a process died or hung, the category of processes is as right as that of what killed it."""


class Sidecar(msgspec.Struct, frozen=True):
    """What a case was: the files, the category, whether its cause was confirmed, and who was at fault."""

    name: str
    files: tuple[Path, ...]
    category: str
    is_confirmed: bool
    at_fault: dict[str, list[str]]  # ranks, nodes, gpus, nics -> names


class JudgedCase(msgspec.Struct, frozen=True):
    """How one case was judged; `culprit` is None where the sidecar names nobody."""

    name: str
    expected: str
    is_confirmed: bool
    said: str
    category: bool
    culprit: bool | None
    error: str = ""


def read_sidecars(place: Path) -> list[Sidecar]:
    """All sidecars of a directory, in order of name. Raises InputError where there is none."""
    found = [s for p in sorted(place.glob("*.json")) if (s := _sidecar(p)) is not None]
    if not found:
        raise InputError(
            str(place),
            expected="sidecars NAME.json with `files` and `expected`",
            found="none",
            remedy="name a directory of cases",
        )
    return found


def _sidecar(path: Path) -> Sidecar | None:
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return None  # an input that happens to be JSON
    if not isinstance(raw, dict) or "expected" not in raw or "files" not in raw:
        return None
    named = {
        kind: [str(v) for v in values] if isinstance(values, list) else [str(values)]
        for kind, values in (raw["expected"].get("at_fault") or {}).items()
    }
    return Sidecar(
        name=path.stem,
        files=tuple(path.parent / f for f in raw["files"]),
        category=str(raw["expected"]["category"]),
        is_confirmed=bool(raw.get("cause_confirmed")),
        at_fault={kind: names for kind, names in named.items() if names},
    )


def judge_cases(cases: list[Sidecar], score: Callable[[Path], Report]) -> Iterator[JudgedCase]:
    """Score each case's files, alone in a directory of their own, and compare with the sidecar."""
    for case in cases:
        with tempfile.TemporaryDirectory() as place:
            for file in case.files:
                shutil.copy(file, place)
            try:
                yield judged(case, score(Path(place)))
            except RankwatchError as error:
                is_right = case.category == HEALTHY
                yield JudgedCase(case.name, case.category, case.is_confirmed, "unreadable", is_right, None, str(error))


def judged(case: Sidecar, report: Report) -> JudgedCase:
    """Healthy: no incident above info. Else the first such incident has the category, and names one of those at fault."""
    loud = [i for i in report.incidents if i.severity != "info"]
    if case.category == HEALTHY:
        said = "; ".join(f"{i.category}/{i.cause}" for i in loud) or "no incident"
        return JudgedCase(case.name, case.category, case.is_confirmed, said, not loud, None)
    if not loud:
        missed = None if not case.at_fault else False
        return JudgedCase(case.name, case.category, case.is_confirmed, "no incident", False, missed)
    first = loud[0]
    died = first.category == DEAD_IS_PROCESS and first.cause in ("rank-killed", "hung")
    return JudgedCase(
        name=case.name,
        expected=case.category,
        is_confirmed=case.is_confirmed,
        said=f"{first.category}/{first.cause} {first.ranks or first.nodes or ''}".strip(),
        category=first.category == case.category or died,
        culprit=_names_culprit(case, first) if case.at_fault else None,
    )


def _names_culprit(case: Sidecar, incident: Incident) -> bool:
    """A rank at fault comes first among the ranks, or a node, GPU or device at fault is named in nodes or evidence."""
    if case.at_fault.get("ranks") == ["all"]:
        return True
    ranks = [str(r) for r in incident.ranks]
    if ranks[:1] and ranks[0] in case.at_fault.get("ranks", []):
        return True
    told = " ".join([*incident.nodes, *(e.text for e in incident.evidence)])
    names = [n for kind in ("nodes", "gpus", "nics") for n in case.at_fault.get(kind, [])]
    return any(_word(name) and re.search(rf"(?<![\w.]){re.escape(_word(name))}(?!\w)", told) for name in names)


def _word(name: str) -> str:
    """The identifying part of a name such as "PCI 0000:9b:00 (GPU4)" or "node03 (10.0.0.3)"."""
    plain = re.sub(r"\(.*?\)", "", name).replace("PCI", "").strip()
    return f"GPU {plain}" if plain.isdigit() else plain
