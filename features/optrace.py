"""Traces of operations of hybrid-parallel jobs: one row an operation, as columns, and the steps that they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.notices import Notices
from features.records import Record, Step

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "rank": ("rank", "global_rank"),
    "step": ("step", "iteration"),
    "kind": ("optype", "op_type", "op"),
    "start_s": ("start_ts", "start", "start_s"),
    "duration_s": ("duration", "duration_s"),
    "dp": ("dp_rank", "dp"),
    "stage": ("stage", "pp_rank", "pp_stage"),
    "seq": ("seq_id", "seq"),
}
"""The names under which traces keep their columns; times are in seconds."""
_NEEDED: Final = ("rank", "step", "kind", "start_s", "duration_s")
PHASE_OF: Final = {"forward-compute": "forward_s", "backward-compute": "backward_s"}
OPTIMIZER: Final = "optimizer"
"""Kinds that begin so are the optimizer's."""
DAMAGED: Final = "operation without a rank, a step, a start or a duration left out"


@dataclass(frozen=True)
class OpTable:
    """Operations as columns of shape (n_ops,). `kind` indexes `kinds`; `seq` counts those of one rank, kind and step."""

    rank: Ints
    dp: Ints
    stage: Ints
    step: Ints
    kind: Ints
    seq: Ints
    start_s: Floats
    duration_s: Floats
    kinds: tuple[str, ...]

    @property
    def end_s(self) -> Floats:
        """When each operation ended, on the clock of `start_s`."""
        return self.start_s + self.duration_s

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True)
class Span:
    """One traced step on the clock of the records: `shift_s` is what was added to the trace's own times."""

    step: int
    start_s: float
    end_s: float
    shift_s: float


def columns_of(names: Sequence[str]) -> dict[str, str] | None:
    """Field -> column where a table with these names is a trace of operations, else None."""
    found = {field: next((n for n in known if n in names), None) for field, known in _NAMES.items()}
    columns = {field: name for field, name in found.items() if name is not None}
    return columns if all(field in columns for field in _NEEDED) else None


def optable(columns: Mapping[str, Sequence[Any]], file: str, notices: Notices) -> OpTable:
    """A trace from columns by field name; rows that lack what is needed are counted and left out."""
    numbers = {f: _numbers(c) for f, c in columns.items() if f != "kind"}
    labels = ["" if k is None else str(k) for k in columns["kind"]]
    usable = np.array([bool(label) for label in labels], dtype=bool)
    for field in _NEEDED:
        if field != "kind":
            usable &= np.isfinite(numbers[field])
    usable &= numbers["duration_s"] >= 0
    if not usable.all():
        notices.add("warning", DAMAGED, file=file, count=int((~usable).sum()))
    kinds = tuple(sorted({label for label, u in zip(labels, usable, strict=True) if u}))
    code = {k: i for i, k in enumerate(kinds)}
    kind = np.array([code[label] for label, u in zip(labels, usable, strict=True) if u], dtype=np.int64)
    rank, step = _whole(numbers["rank"][usable]), _whole(numbers["step"][usable])
    start = numbers["start_s"][usable]
    none = np.zeros(rank.shape, dtype=np.int64)
    return OpTable(
        rank=rank,
        dp=_whole(numbers["dp"][usable]) if "dp" in numbers else rank,
        stage=_whole(numbers["stage"][usable]) if "stage" in numbers else none,
        step=step,
        kind=kind,
        seq=_whole(numbers["seq"][usable]) if "seq" in numbers else _count(start, (kind, rank, step)),
        start_s=start,
        duration_s=numbers["duration_s"][usable],
        kinds=kinds,
    )


def spans(table: OpTable) -> list[Span]:
    """The traced steps in order. Where each step's times begin anew, steps are laid one after the other from 0 on."""
    steps, at = np.unique(table.step, return_inverse=True)
    first, last = np.full(steps.shape, np.inf), np.full(steps.shape, -np.inf)
    np.minimum.at(first, at, table.start_s)
    np.maximum.at(last, at, table.end_s)
    if is_one_clock(first, last):
        return [Span(int(k), float(a), float(b), 0.0) for k, a, b in zip(steps, first, last, strict=True)]
    out, now = [], 0.0
    for k, a, b in zip(steps.tolist(), first.tolist(), last.tolist(), strict=True):
        out.append(Span(k, now, now + b - a, now - a))
        now += b - a
    return out


def is_one_clock(first: Floats, last: Floats) -> bool:
    """Steps follow each other: hardly any starts before half of the one before it has passed."""
    if len(first) < 2:
        return True
    overlap = first[1:] < (first[:-1] + last[:-1]) / 2
    return bool(overlap.mean() < 0.5)


def steps_of(table: OpTable, file: str) -> list[Record]:
    """One Step for each rank and traced step: its phases, and as `sync_s` the time in which it computed nothing."""
    out: list[Record] = []
    by_step = {span.step: span for span in spans(table)}
    keys = np.stack([table.step, table.rank], axis=1)
    pairs, at = np.unique(keys, axis=0, return_inverse=True)
    at = at.reshape(-1)
    ends = np.full(len(pairs), -np.inf)
    np.maximum.at(ends, at, table.end_s)
    sums = {phase: np.bincount(at, table.duration_s * _is_phase(table, phase), len(pairs)) for phase in PHASES}
    for i, (step, rank) in enumerate(pairs.tolist()):
        span = by_step[step]
        phases: dict[str, Any] = {phase: float(total[i]) for phase, total in sums.items()}
        lasts = span.end_s - span.start_s
        out.append(
            Step(
                ts=float(ends[i]) + span.shift_s,
                rank=rank,
                step=step,
                duration_s=lasts,
                sync_s=max(0.0, lasts - sum(phases.values())),
                source=file,
                **phases,
            )
        )
    return out


PHASES: Final = (*PHASE_OF.values(), "optimizer_s")


def _is_phase(table: OpTable, phase: str) -> npt.NDArray[np.bool_]:
    """For each operation whether it is part of this phase of a step."""
    names = [k for k in table.kinds if PHASE_OF.get(k, "optimizer_s" if k == OPTIMIZER else "") == phase]
    return np.isin(table.kind, [table.kinds.index(k) for k in names])


def _numbers(column: Sequence[Any]) -> Floats:
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([_number(v) for v in column], dtype=np.float64)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _whole(values: Floats) -> Ints:
    return np.nan_to_num(values).astype(np.int64)


def _count(start: Floats, groups: tuple[Ints, ...]) -> Ints:
    """For each row, how many rows of its group start before it."""
    order = np.lexsort((start, *groups))
    keys = np.stack([g[order] for g in groups], axis=1)
    fresh = np.r_[True, np.any(keys[1:] != keys[:-1], axis=1)] if len(order) else np.array([], dtype=bool)
    begins = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order)) - begins
    return out
