"""Turns the rows of one table into records: steps of a mapped table, or the steps that traced operations make up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from features.errors import SettingsError
from features.notices import Notices
from features.optrace import OpTable, columns_of, optable, spans, steps_of
from features.parsers.steptable_clock import EPOCH_FROM_S, Times
from features.parsers.steptable_map import DURATIONS, StepMap
from features.parsers.steptable_rows import RowCollector, Rows
from features.records import Record, RunInfo, Step

_WHOLE: Final = ("epoch", "batch")
_PLAIN: Final = ("loss", "grad_norm", "param_norm", "rss_bytes")


class Builder:
    """Rows of one table in, records out; decides from the names of its columns what the table is."""

    def __init__(self, step_map: StepMap | None, file: str, notices: Notices) -> None:
        self._map, self._file, self._notices = step_map, file, notices
        self._ops: dict[str, str] | None = None
        self._op_columns: dict[str, list[object]] = {}
        self._rows: RowCollector | None = None
        self.absolute = False
        self.ops: OpTable | None = None  # the operations, where the table is a trace of them

    def begin(self, names: Sequence[str], *, may_grow: bool = False) -> list[str]:
        """Take the names of the columns; returns those whose cells are wanted, none where the table cannot be used.

        `may_grow`: later rows may have columns that the first one lacks, so only what every row needs must be there.
        Raises SettingsError where a person named columns that this table does not have.
        """
        self._ops = columns_of(names) if self._map is None else None
        if self._ops is not None:
            self._op_columns = {field: [] for field in self._ops}
            return list(self._ops.values())
        chosen = StepMap.automatic(names) if self._map is None else self._map.fitted(names)
        if chosen is None:
            self._notices.add("error", "no columns that look like a rank and the duration of a step", file=self._file)
            return []
        if missing := (chosen.needed() if may_grow else chosen).missing(names):
            raise SettingsError(
                "--map",
                expected=f"a column {missing[0]} in {self._file}",
                found=f"the columns {', '.join(names)}",
                remedy="name the table's own columns, as in --map rank=worker,duration_s=batch_time",
            )
        self._notices.add("info", f"read as a table of steps with {chosen}", file=self._file)
        self._map, self._rows = chosen, RowCollector(chosen, self._file, self._notices)
        return [column.name for column in chosen.columns.values()]

    def add(self, line: int, cell: Callable[[str], object]) -> None:
        """Take one row."""
        if self._rows is not None:
            self._rows.add(line, cell)
        elif self._ops is not None:
            for field, name in self._ops.items():
                self._op_columns[field].append(cell(name))

    def finish(self) -> list[Record]:
        """All records of the table."""
        if self._ops is not None:
            return self._operations()
        if self._rows is None or self._map is None:
            return []
        rows = self._rows.finish()
        if not rows.ranks:
            self._notices.add("warning", "a table without rows", file=self._file)
            return []
        times = Times(rows, self._map, self._file, self._notices)
        self.absolute = times.absolute
        return [*_about_run(rows, times, self._file), *self._steps(rows, times)]

    def _operations(self) -> list[Record]:
        table = optable(self._op_columns, self._file, self._notices)
        if not len(table):
            self._notices.add("warning", "a trace without operations", file=self._file)
            return []
        self.ops = table
        traced = spans(table)
        self.absolute = traced[0].shift_s == 0.0 and traced[0].start_s >= EPOCH_FROM_S
        if not self.absolute:
            text = f"{len(traced)} traced steps of {len(np.unique(table.rank))} workers; their times count from 0"
            self._notices.add("info", text, file=self._file)
        return steps_of(table, self._file)

    def _steps(self, rows: Rows, times: Times) -> list[Record]:
        usable = np.isfinite(times.ts) & np.isfinite(times.step)
        if not usable.all():
            text = "row without a step or a time left out"
            self._notices.add("warning", text, file=self._file, count=int((~usable).sum()))
        return [self._step(rows, times, int(i)) for i in np.flatnonzero(usable)]

    def _step(self, rows: Rows, times: Times, i: int) -> Step:
        duration = float(times.duration[i])
        values: dict[str, Any] = {name: rows.values[name][i] for name in _PLAIN if name in rows.values}
        for name in _WHOLE:
            if name in rows.values and (value := rows.values[name][i]) is not None and math.isfinite(value):
                values[name] = int(value)
        values |= self._phases(rows, times, i)
        return Step(
            ts=float(times.ts[i]),
            rank=int(times.rank[i]),
            step=int(times.step[i]),
            duration_s=duration if math.isfinite(duration) else None,
            source=f"{self._file}:{rows.lines[i]}",
            **values,
        )

    def _phases(self, rows: Rows, times: Times, i: int) -> dict[str, float]:
        """Phases in seconds; a rank that goes its own pace waits for nobody within its step."""
        found: dict[str, float] = {}
        for name in DURATIONS[1:]:
            if name in rows.values and (value := rows.values[name][i]) is not None and value >= 0:
                unit = None if self._map is None else self._map.columns[name].unit_s
                found[f"{name}_s"] = value * (unit if unit is not None and unit > 0 else times.scale)
        if not found and times.own_pace:
            return {"sync_s": 0.0}
        return found


def _about_run(rows: Rows, times: Times, file: str) -> list[Record]:
    """How many ranks there are, if they are numbered without holes, and what they are called."""
    ranks = np.unique(times.rank)
    whole = len(ranks) == int(ranks[-1]) + 1
    known = times.ts[np.isfinite(times.ts)]
    if not known.size or not (whole or rows.names):
        return []
    return [RunInfo(ts=float(known.min()), world_size=len(ranks) if whole else None, nodes=rows.names, source=file)]
