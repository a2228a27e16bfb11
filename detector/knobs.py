"""The settings that really exist, and their usual misspellings, so that no fix names one that does nothing."""

from __future__ import annotations

import difflib
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from features.errors import CatalogError

KNOBS_FILE = Path(__file__).with_name("knobs.toml")
NEAREST_CUTOFF = 0.8
"""Similarity (difflib ratio, 0..1) from which a known name is offered; below it, suggestions were mere namesakes."""
NEAREST_COUNT = 3
"""Names offered for an unknown one: more is a list to search, not an answer."""

M = TypeVar("M", bound=BaseModel)

Owner = Literal["horovod", "nccl", "pytorch", "cuda", "linux", "slurm", "docker", "mpi", "openmp"]
Kind = Literal["env", "flag", "api", "build", "sysctl", "file", "boot"]


class KindRules(BaseModel):
    """What holds for all settings of a kind unless one says otherwise; `{name}` stands for the setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    means: str
    verify: str
    undo: str


class Knob(BaseModel):
    """One setting that exists: who reads it, what it does, what it risks, how to check it and how to take it back."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1)

    name: str
    owner: Owner
    kind: Kind
    means: str
    default: str
    unit: str | None = None
    since: str | None = None
    deprecated: str | None = None  # version or circumstance since when it should no longer be used
    replaced_by: str | None = None
    internal: bool = False  # set by the launcher for its workers; people do not set it
    diagnostic: bool = False  # helps to find a cause, is not meant to stay set
    risk: str
    verify: str
    undo: str
    source: str


class Misspelling(BaseModel):
    """A name that people use and nothing reads; `right` is the setting that does what they meant."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1)

    wrong: str
    right: str
    why: str
    source: str


@dataclass(frozen=True)
class KnownKnob:
    """The answer for a name that exists; `warning` says why it may still not do what its user hopes."""

    knob: Knob

    @property
    def warning(self) -> str | None:
        """Why the setting has no or little effect in a run: build time only, or an old name. None if all is well."""
        name, new = self.knob.name, self.knob.replaced_by
        if self.knob.kind == "build":
            return f"{name} is read when the library is built; setting it for a run does nothing"
        if self.knob.deprecated is not None:
            return f"{name} is deprecated ({self.knob.deprecated})" + (f"; use {new}" if new is not None else "")
        return None


@dataclass(frozen=True)
class Unknown:
    """The answer for a name that is neither known nor a usual misspelling; `nearest` may be empty."""

    name: str
    nearest: tuple[str, ...]


@dataclass(frozen=True)
class Knobs:
    """The table of settings, each kept under its name."""

    kinds: dict[str, KindRules]
    knobs: dict[str, Knob]
    misspellings: dict[str, Misspelling]

    def check(self, name: str) -> KnownKnob | Misspelling | Unknown:
        """Say what `name` is. Names are compared exactly: environment variables know upper and lower case."""
        wanted = name.strip()
        if wanted in self.knobs:
            return KnownKnob(self.knobs[wanted])
        if wanted in self.misspellings:
            return self.misspellings[wanted]
        by_lower = {known.lower(): known for known in self.knobs}
        close = difflib.get_close_matches(wanted.lower(), by_lower, n=NEAREST_COUNT, cutoff=NEAREST_CUTOFF)
        return Unknown(wanted, tuple(by_lower[match] for match in close))


def read_toml(text: str, place: str) -> dict[str, Any]:
    """Parse TOML, or say in which file and line it breaks."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(place, expected="valid TOML", found=str(error), remedy="correct the file there") from None


def built(model: type[M], entry: dict[str, Any], place: str) -> M:
    """Make one model from one TOML table, or name the field that is wrong."""
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise CatalogError(
            f"{place}, field {field!r}",
            expected=first["msg"],
            found=repr(first["input"])[:120] if first["type"] != "missing" else "nothing",
            remedy=f"the fields are: {', '.join(model.model_fields)}",
        ) from None


def refuse_duplicates(names: list[str], place: str) -> None:
    """Two entries of one name would hide each other."""
    for name, count in Counter(names).items():
        if count > 1:
            found = f"{name!r} {count} times"
            raise CatalogError(place, expected="each name once", found=found, remedy="keep one entry")


def parse_knobs(text: str, place: str = KNOBS_FILE.name) -> Knobs:
    """Build and check the table from TOML text; raises CatalogError at the first contradiction."""
    raw = read_toml(text, place)
    kinds = {name: built(KindRules, rules, f"{place}: kind {name!r}") for name, rules in raw.get("kinds", {}).items()}
    knobs = [_knob(entry, kinds, place) for entry in raw.get("knob", [])]
    wrongs = [built(Misspelling, e, f"{place}: misspelling {e.get('wrong')!r}") for e in raw.get("misspelling", [])]
    refuse_duplicates([knob.name for knob in knobs] + [wrong.wrong for wrong in wrongs], place)
    table = Knobs(kinds, {knob.name: knob for knob in knobs}, {wrong.wrong: wrong for wrong in wrongs})
    _check_pointers(table, place)
    return table


def _knob(entry: dict[str, Any], kinds: dict[str, KindRules], place: str) -> Knob:
    filled = dict(entry)
    if (rules := kinds.get(str(entry.get("kind")))) is not None:
        for field, text in (("verify", rules.verify), ("undo", rules.undo)):
            filled.setdefault(field, text.replace("{name}", str(entry.get("name"))))
    return built(Knob, filled, f"{place}: knob {entry.get('name')!r}")


def _check_pointers(table: Knobs, place: str) -> None:
    pointers = [(wrong.wrong, wrong.right) for wrong in table.misspellings.values()]
    pointers += [(knob.name, knob.replaced_by) for knob in table.knobs.values() if knob.replaced_by is not None]
    for name, target in pointers:
        if target not in table.knobs:
            raise CatalogError(
                f"{place}: {name!r}",
                expected="to point at a knob of this file",
                found=repr(target),
                remedy="add that knob or point elsewhere",
            )


@cache
def load_knobs() -> Knobs:
    """The table shipped with the package, read once."""
    return parse_knobs(KNOBS_FILE.read_text(encoding="utf-8"))


def check_setting(name: str) -> KnownKnob | Misspelling | Unknown:
    """Say whether a setting exists; a misspelling comes with the right name, an unknown one with its neighbours."""
    return load_knobs().check(name)


def render_markdown() -> str:
    """The page docs/knobs.md, made from the table alone."""
    table = load_knobs()
    lines = [
        "# Settings that exist",
        "",
        "Generated from `detector/knobs.toml` by `python -m detector.knobs`; edit that file, not this one.",
        "",
        f"{len(table.knobs)} settings, {len(table.misspellings)} names that people use and nothing reads.",
        "",
        "## Kinds",
        "",
        "| kind | meaning | how to check | how to undo |",
        "|---|---|---|---|",
    ]
    lines += [f"| {kind} | {cell(r.means)} | {cell(r.verify)} | {cell(r.undo)} |" for kind, r in table.kinds.items()]
    lines += ["", "## Names that do nothing", "", "| name | use instead | why | source |", "|---|---|---|---|"]
    for wrong in table.misspellings.values():
        lines.append(f"| `{cell(wrong.wrong)}` | `{cell(wrong.right)}` | {cell(wrong.why)} | {cell(wrong.source)} |")
    for owner in dict.fromkeys(knob.owner for knob in table.knobs.values()):
        lines += ["", f"## {owner}", ""]
        lines += ["| setting | kind | default | meaning | risk | source |", "|---|---|---|---|---|---|"]
        lines += [_row(knob) for knob in table.knobs.values() if knob.owner == owner]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Text that is safe inside a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _row(knob: Knob) -> str:
    notes = [f"since {knob.since}"] if knob.since is not None else []
    if knob.deprecated is not None:
        notes.append(f"deprecated: {knob.deprecated}" + (f", use `{knob.replaced_by}`" if knob.replaced_by else ""))
    notes += ["set by the launcher"] if knob.internal else []
    notes += ["for diagnosis only"] if knob.diagnostic else []
    means = cell(knob.means + (f" ({'; '.join(notes)})" if notes else ""))
    default = cell(knob.default + (f" {knob.unit}" if knob.unit is not None else ""))
    return f"| `{cell(knob.name)}` | {knob.kind} | {default} | {means} | {cell(knob.risk)} | {cell(knob.source)} |"


if __name__ == "__main__":
    sys.stdout.write(render_markdown())
