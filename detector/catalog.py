"""The catalog of causes: what can go wrong, what it looks like, and which fixes are known to exist."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from detector.knobs import (
    Knobs,
    KnownKnob,
    Misspelling,
    Unknown,
    built,
    cell,
    load_knobs,
    read_toml,
    refuse_duplicates,
)
from features.errors import CatalogError

CATALOG_FILE = Path(__file__).with_name("catalog.toml")

Category = Literal["communication", "compute", "io", "resource", "memory", "numerical", "process", "configuration"]
Severity = Literal["info", "warning", "critical"]
Scope = Literal["rank", "host", "run"]
LookIn = Literal["timeline", "steps", "process", "host", "network", "gpu", "log", "kernel", "settings"]

CATEGORIES: tuple[Category, ...] = get_args(Category)
"""The closed set of categories, in the order in which pages list them."""
LOOK_IN: tuple[LookIn, ...] = get_args(LookIn)
"""Where evidence is looked for; each line of `evidence_text` begins with one of these and a colon."""

VARIABLE = re.compile(r"\b(?:HOROVOD|NCCL|TORCH|PYTORCH|GLOO|CUDA|OMP|MKL|KMP)_[A-Z0-9_]+\b")
"""An environment variable of a library whose variables knobs.toml lists: a command may name only listed ones."""

Strength = Annotated[float, Field(ge=-1.0, le=1.0)]


class Evidence(BaseModel):
    """One word of the evidence vocabulary: a number of an incident, 0 (not seen or unknown) to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1)

    group: str
    meaning: str
    computed: bool = True  # False: named by causes, but no source is turned into it yet
    signed: bool = False  # True: the number may be negative, which says that the opposite was seen


class Fix(BaseModel):
    """One remedy: what to do, why it helps, how to see that it helped, how to take it back, and who says so."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1)

    action: str
    text: str
    why: str
    commands: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    verify: str
    undo: str
    source: str


class Cause(BaseModel):
    """One entry of the catalog.

    `evidence` is its signature: word of the vocabulary -> strength in [-1, 1]. Positive: expected with the cause.
    Negative: speaks against the cause when seen (of a signed word, the opposite is expected). Absent: no opinion.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1)

    id: str
    title: str
    meaning: str
    scope: Scope
    severity: Severity
    evidence_text: Annotated[tuple[str, ...], Field(min_length=1)]
    evidence: Annotated[dict[str, Strength], Field(min_length=1)]
    fixes: Annotated[tuple[Fix, ...], Field(min_length=1)]
    sources: Annotated[tuple[str, ...], Field(min_length=1)]

    @property
    def category(self) -> Category:
        """The part of the id before the slash; checked on loading."""
        return next(category for category in CATEGORIES if category == self.id.partition("/")[0])

    @property
    def name(self) -> str:
        """The part of the id after the slash."""
        return self.id.partition("/")[2]


@dataclass(frozen=True)
class Catalog:
    """All causes by id, with the closed sets that they draw from."""

    categories: dict[str, str]
    actions: dict[str, str]
    vocabulary: dict[str, Evidence]
    causes: dict[str, Cause]

    def signature_matrix(self) -> tuple[list[str], list[str], list[list[float]]]:
        """Cause ids, evidence names, and strengths of shape (n_causes, n_evidence); 0 = no expectation."""
        names = list(self.vocabulary)
        rows = [[cause.evidence.get(name, 0.0) for name in names] for cause in self.causes.values()]
        return list(self.causes), names, rows


def parse_catalog(text: str, knobs: Knobs, place: str = CATALOG_FILE.name) -> Catalog:
    """Build and check the catalog from TOML text; raises CatalogError at the first contradiction."""
    raw = read_toml(text, place)
    catalog = Catalog(
        categories=dict(_section(raw, "categories", place)),
        actions=dict(_section(raw, "actions", place)),
        vocabulary={
            name: built(Evidence, entry, f"{place}: evidence {name!r}")
            for name, entry in _section(raw, "evidence_vocabulary", place).items()
        },
        causes={},
    )
    if tuple(catalog.categories) != CATEGORIES:
        found = ", ".join(catalog.categories)
        raise _error(f"{place}: [categories]", ", ".join(CATEGORIES), found, "the set is closed: restore it")
    causes = [built(Cause, entry, f"{place}: cause {entry.get('id')!r}") for entry in _section(raw, "cause", place)]
    refuse_duplicates([cause.id for cause in causes], place)
    for cause in causes:
        _check_cause(cause, catalog, knobs, f"{place}: cause {cause.id!r}")
        catalog.causes[cause.id] = cause
    return catalog


def _section(raw: dict[str, Any], name: str, place: str) -> Any:
    if not raw.get(name):
        raise _error(place, f"a section {name!r}", "none", "restore it; the catalog is useless without")
    return raw[name]


def _error(place: str, expected: str, found: str, remedy: str) -> CatalogError:
    return CatalogError(place, expected=expected, found=found, remedy=remedy)


def _check_cause(cause: Cause, catalog: Catalog, knobs: Knobs, place: str) -> None:
    category, _, name = cause.id.partition("/")
    if category not in CATEGORIES or not name:
        raise _error(place, f"category/name with a category of {', '.join(CATEGORIES)}", cause.id, "choose one of them")
    for line in cause.evidence_text:
        if line.partition(":")[0] not in LOOK_IN:
            sources = f"'SOURCE: text' with a source of {', '.join(LOOK_IN)}"
            raise _error(f"{place}, evidence_text", sources, line, "say where to look")
    for word in cause.evidence:
        if word not in catalog.vocabulary:
            raise _error(f"{place}, evidence", "words of [evidence_vocabulary]", word, "correct it or add the word")
    if not any(strength > 0 for strength in cause.evidence.values()):
        raise _error(f"{place}, evidence", "at least one positive strength", "none", "say what speaks for the cause")
    for number, fix in enumerate(cause.fixes, start=1):
        _check_fix(fix, catalog, knobs, f"{place}, fix {number}")


def _check_fix(fix: Fix, catalog: Catalog, knobs: Knobs, place: str) -> None:
    if fix.action not in catalog.actions:
        known = f"one of {', '.join(catalog.actions)}"
        raise _error(f"{place}, action", known, fix.action, "the set of actions is closed: choose one of it")
    commands = [line.partition("  #")[0] for command in fix.commands for line in command.splitlines()]
    for setting in (*fix.settings, *(name for line in commands for name in VARIABLE.findall(line))):
        if setting not in knobs.knobs:
            remedy = _remedy(knobs.check(setting))
            raise _error(f"{place}, settings or commands", "settings listed in knobs.toml", setting, remedy)


def _remedy(answer: KnownKnob | Misspelling | Unknown) -> str:
    if isinstance(answer, Misspelling):
        return f"use {answer.right}: {answer.why}"
    return "drop it, or add it there with a source"


@cache
def load_catalog() -> Catalog:
    """The catalog shipped with the package, read and checked once."""
    return parse_catalog(CATALOG_FILE.read_text(encoding="utf-8"), load_knobs())


def render_markdown() -> str:
    """The page docs/catalog.md, made from the catalog alone."""
    catalog = load_catalog()
    lines = [
        "# Catalog of causes",
        "",
        "Generated from `detector/catalog.toml` by `python -m detector.catalog`; edit that file, not this one.",
        "",
        f"{len(catalog.causes)} causes. Settings are explained in [knobs.md](knobs.md).",
    ]
    for category, text in catalog.categories.items():
        lines += ["", f"## {category}", "", text]
        for cause in catalog.causes.values():
            lines += _cause_lines(cause) if cause.category == category else []
    lines += ["", "## Actions", "", "| action | what a person does |", "|---|---|"]
    lines += [f"| {action} | {cell(text)} |" for action, text in catalog.actions.items()]
    return "\n".join([*lines, *_vocabulary_lines(catalog)]) + "\n"


def _vocabulary_lines(catalog: Catalog) -> list[str]:
    lines = ["", "## Evidence vocabulary", ""]
    lines += ["Each word is a number of an incident: 0 = not seen or unknown, 1 = plain to see; signed words reach to -1."]
    lines += ["", "| word | group | meaning |", "|---|---|---|"]
    for name, word in catalog.vocabulary.items():
        note = " (signed)" if word.signed else "" if word.computed else " (not computed yet)"
        lines.append(f"| `{name}` | {word.group} | {cell(word.meaning)}{note} |")
    return lines


def cause_markdown(cause: Cause) -> str:
    """One cause as a page of its own."""
    return "\n".join(_cause_lines(cause)).strip() + "\n"


def _cause_lines(cause: Cause) -> list[str]:
    lines = ["", f"### {cause.id}", "", f"**{cause.title}.** {cause.meaning}", ""]
    lines += [f"Severity {cause.severity}; speaks about: {cause.scope}.", "", "Look for:", ""]
    lines += [f"- {line}" for line in cause.evidence_text]
    signature = ", ".join(f"`{word}` {strength:+g}" for word, strength in cause.evidence.items())
    lines += ["", f"Signature: {signature}", "", "Fixes:", ""]
    for number, fix in enumerate(cause.fixes, start=1):
        lines += _fix_lines(number, fix)
    return [*lines, "", "Sources: " + "; ".join(cause.sources)]


def _fix_lines(number: int, fix: Fix) -> list[str]:
    lines = [f"{number}. **{fix.action}**: {fix.text} Why: {fix.why}"]
    if fix.commands:
        shown = [f"   {line}" for command in fix.commands for line in command.splitlines()]
        lines += ["", "   ```", *shown, "   ```", ""]
    if fix.settings:
        lines.append("   Settings: " + ", ".join(f"`{setting}`" for setting in fix.settings) + ".")
    lines.append(f"   Verify: {fix.verify} Undo: {fix.undo} Source: {fix.source}")
    return lines


if __name__ == "__main__":
    sys.stdout.write(render_markdown())
