"""Units and times of a table of steps: seconds from columns that do not say so, and a clock where there is none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from features.measures.table import Vector
from features.notices import Notices
from features.parsers.steptable_map import TIMES, UNITS_S, UNSURE_TIME, StepMap
from features.parsers.steptable_rows import Rows

EPOCH_FROM_S: Final = 1e8
"""Times from here on (March 1973) are since the Unix epoch; smaller ones count from the start of something."""
LONGEST_STEP_S: Final = 120.0
"""Where nothing tells the unit: the longest usual step that is believed to be in seconds."""
NEAR: Final = 3.0
"""Factor within which the distance of time stamps must agree with durations to tell their unit."""
OWN_PACE: Final = 0.05
"""Median spread of one step's durations over ranks, as a share of the step, above which each rank goes its own pace: a
collective at the end of the step makes all ranks' durations agree to a percent or two."""


class Times:
    """What is found out about the rows of one table, as vectors of shape (n_rows,); NaN = not known."""

    def __init__(self, rows: Rows, step_map: StepMap, file: str, notices: Notices) -> None:
        self._rows, self._map, self._file, self._notices = rows, step_map, file, notices
        self.rank = np.array(rows.ranks, dtype=np.int64)
        self._settle_unsure_time()
        self.step = self._steps()
        self.scale = 1.0  # seconds in one unit of the table's durations that tell no unit of their own
        stamps: dict[str, Vector] = {name: self._stamps(name) for name in TIMES if name in rows.values}
        self.duration = self._durations(stamps)
        self.absolute = bool(stamps)
        self.ts = self._ends(stamps)
        self.own_pace = self._is_own_pace()

    def _note(self, text: str) -> None:
        self._notices.add("info", text, file=self._file)

    def _settle_unsure_time(self) -> None:
        """A column called "time": step numbers where it counts in whole numbers, else a clock."""
        values = self._rows.values.pop(UNSURE_TIME, None)
        if values is None:
            return
        numbers = vector(values)
        known = numbers[np.isfinite(numbers)]
        counts = known.size > 0 and bool(np.all(known == np.floor(known))) and float(known.max()) < EPOCH_FROM_S
        field = "step" if counts and "step" not in self._rows.values else "ts"
        if field not in self._rows.values:
            self._rows.values[field] = values

    def _steps(self) -> Vector:
        """Step numbers; without a column the rows of each rank are counted in the order of the file."""
        if "step" in self._rows.values:
            return vector(self._rows.values["step"])
        self._note("no column for the step: rows are counted per rank in the order of the file")
        return count_within(self.rank)

    def _stamps(self, name: str) -> Vector:
        """Time stamps in seconds, from whatever unit their size shows."""
        stamps = vector(self._rows.values[name])
        unit = self._map.columns[name].unit_s if name in self._map.columns else None
        if unit is not None and unit > 0:
            return stamps * unit
        middle = abs(float(np.nanmedian(stamps))) if np.isfinite(stamps).any() else 0.0
        return stamps * next((u for limit, u in ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)) if middle > limit), 1.0)

    def _durations(self, stamps: Mapping[str, Vector]) -> Vector:
        """Durations in seconds: as the column says, as the time stamps show, or in usual steps."""
        gaps = self._gaps(next(iter(stamps.values()))) if stamps else np.full(self.rank.shape, math.nan)
        if "duration" not in self._rows.values:
            return gaps
        raw = vector(self._rows.values["duration"])
        raw = np.where(raw >= 0, raw, math.nan)
        column = self._map.columns["duration"]
        usual = float(np.nanmedian(raw)) if np.isfinite(raw).any() else math.nan
        self.scale = self._scale(column.name, column.unit_s, usual, gaps / raw if stamps else gaps)
        return raw * self.scale

    def _scale(self, name: str, unit_s: float | None, usual: float, ratios: Vector) -> float:
        """Seconds in one unit of the column."""
        by_clock = _unit_by_clock(ratios)
        if unit_s is not None and unit_s > 0 and (by_clock is not None or not usual * unit_s > LONGEST_STEP_S):
            return unit_s
        if unit_s is None and by_clock is not None:
            if by_clock != 1.0:
                label = next(u for u, s in UNITS_S.items() if s == by_clock)
                self._note(f"{name} tells no unit: read as {label}, which agrees with the time stamps")
            return by_clock
        if unit_s is None and usual <= LONGEST_STEP_S:
            self._note(f"{name} tells no unit: read as seconds")
            return 1.0
        if not usual > 0:
            return 1.0
        self._note(f"{name} has no unit: the usual step ({usual:g} there) counts as one second, and costs are in usual steps")
        return 1.0 / usual

    def _gaps(self, stamps: Vector) -> Vector:
        """Time since the row before of the same rank, for one step where rows are several steps apart."""
        out = np.full(stamps.shape, math.nan)
        for rank in np.unique(self.rank):
            rows = np.flatnonzero((self.rank == rank) & np.isfinite(stamps) & np.isfinite(self.step))
            rows = rows[np.argsort(stamps[rows], kind="stable")]
            out[rows[1:]] = np.diff(stamps[rows]) / np.maximum(np.diff(self.step[rows]), 1.0)
        return out

    def _ends(self, stamps: Mapping[str, Vector]) -> Vector:
        """When each step ended: from the table, or from the durations of all steps before it."""
        if not stamps:
            self._note("no column of times: they count from 0 and are built from the durations")
            return built_clock(self.step, self.duration)
        ends = stamps["ts"] if "ts" in stamps else stamps["start_ts"] + np.nan_to_num(self.duration)
        known = ends[np.isfinite(ends)]
        if known.size and float(np.median(known)) < EPOCH_FROM_S:
            self.absolute = False
            self._note("times of the table do not start at the epoch: they count from an unknown start")
        return ends

    def _is_own_pace(self) -> bool:
        """Durations differ so much within one step that no collective can have made them equal."""
        spreads = within_steps(self.step, self.duration)
        own = spreads.size > 0 and float(np.median(spreads)) > OWN_PACE
        if own:
            share = float(np.median(spreads))
            self._note(f"durations of one step differ by {share:.0%} between ranks: each is taken as the rank's own time")
        return own


def vector(values: list[float | None]) -> Vector:
    """Numbers with NaN for None."""
    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)


def count_within(groups: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Vector:
    """For each row, how many rows of its group came before it."""
    out = np.zeros(groups.shape)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        out[rows] = np.arange(rows.size)
    return out


def built_clock(step: Vector, duration: Vector) -> Vector:
    """Ends of steps on one clock from 0 on: a step lasts as long as on its slowest rank, and the next follows at once."""
    known = np.isfinite(step) & np.isfinite(duration)
    out = np.full(step.shape, math.nan)
    steps, at = np.unique(step[known], return_inverse=True)
    longest = np.zeros(steps.shape)
    np.maximum.at(longest, at, duration[known])
    out[known] = np.cumsum(longest)[at]
    return out


def within_steps(step: Vector, duration: Vector) -> Vector:
    """(largest - smallest) / median of the durations of each step that two ranks or more have."""
    known = np.isfinite(step) & np.isfinite(duration)
    order = np.lexsort((duration[known], step[known]))
    steps, values = step[known][order], duration[known][order]
    edges = np.flatnonzero(np.r_[True, steps[1:] != steps[:-1], True]) if steps.size else np.array([0])
    groups = [values[a:b] for a, b in itertools.pairwise(edges.tolist()) if b - a > 1]
    return np.array([(g[-1] - g[0]) / m for g in groups if (m := float(np.median(g))) > 0])


def _unit_by_clock(ratios: Vector) -> float | None:
    """The unit that makes durations as long as the distance of their time stamps; None where none does."""
    known = ratios[np.isfinite(ratios) & (ratios > 0)]
    if not known.size:
        return None
    middle = float(np.median(known))
    return next((unit for unit in UNITS_S.values() if 1 / NEAR <= middle / unit <= NEAR), None)
