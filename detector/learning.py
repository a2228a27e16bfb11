"""Which runs to learn from: healthy ones by somebody's word, labelled ones by their label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from detector.examples import RunExamples, examples_of
from detector.labels import HEALTHY, LABEL_FILE, Label, labelled_runs, read_label
from features.errors import InputError
from features.rundir import load_run


class LearningRun(msgspec.Struct, frozen=True):
    """A run to learn from."""

    path: Path
    label: Label

    @property
    def name(self) -> str:
        """What it is called in the manifest."""
        return self.path.name

    def examples(self) -> list[RunExamples]:
        """Read it and make its examples."""
        return list(examples_of(self.name, load_run(self.path), self.label))


def gather(
    *,
    healthy: Iterable[Path] = (),
    labelled: Iterable[Path] = (),
    runs: Sequence[Path] = (),
    leave_out: Iterable[str] = (),
) -> list[LearningRun]:
    """All runs to learn from, once each, in order of name. Raises InputError where there is nothing or a label is missing."""
    found: dict[Path, Label] = {p.resolve(): label for p, label in labelled_runs(list(runs))}
    for path in healthy:
        label = read_label(path)
        found[path.resolve()] = Label(fault=HEALTHY, accept=(HEALTHY,), ranks=(), world_size=0)
        if label is not None and not label.is_healthy:
            raise InputError(
                str(path), expected="a healthy run", found=f"a label of {label.fault}", remedy="pass it with --labelled"
            )
    for path in labelled:
        label = read_label(path)
        if label is None:
            raise InputError(str(path), expected=f"a label in {LABEL_FILE}", found="none", remedy="see docs/labels.md")
        found[path.resolve()] = label
    out = set(leave_out)
    unknown = out - {p.name for p in found}
    if unknown:
        raise InputError(
            "--leave-out", expected="names of the given runs", found=", ".join(sorted(unknown)), remedy="check them"
        )
    kept = [LearningRun(p, label) for p, label in sorted(found.items(), key=lambda i: i[0].name) if p.name not in out]
    if not kept:
        raise InputError(
            "train",
            expected="runs to learn from",
            found="none",
            remedy="give --healthy, --labelled or --runs directories",
        )
    return kept
