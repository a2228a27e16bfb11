"""The table of measures of one window and the run's memory between windows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


LINE_GAPS, FEWEST_GAPS = 64, 4
"""Times between step lines that are remembered, and how many are enough to speak of a habit."""


class RunMemory(msgspec.Struct):
    """What must be remembered from window to window to measure the next one; part of a stream's state snapshot."""

    ranks: list[int] = []  # ascending; grows as ranks are seen
    world_size: int | None = None
    nodes: dict[int, str] = {}
    settings: dict[str, str] = {}
    hosts: list[str] = []  # nodes that were sampled, in the order in which they were first seen
    last_step_end: dict[int, float] = {}  # rank -> end of its newest step
    last_step: dict[int, int] = {}  # rank -> its newest step number
    last_collective_end: float | None = None
    dangling_since: float | None = None  # a collective that the records leave open
    last_use: dict[str, float] = {}  # tensor -> end of its newest collective
    uses: dict[str, int] = {}  # tensor -> collectives so far
    windows_seen: int = 0
    settles_at: int = 0  # index of the first window after an uneven one of the warm-up
    first_busy_window: int | None = None
    gone: dict[int, float] = {}  # rank -> since when its process is gone
    transfer_past: dict[int, list[float]] = {}  # log2 of bytes -> transfer times seen in healthy windows
    last_pause_end: dict[str, float] = {}  # "kind rank" -> end of its newest pause
    first_step_end: float | None = None
    line_gaps_s: list[float] = []  # newest times between two step lines of one rank: a log may print every tenth step
    recent_step_s: float | None = None  # median step of the newest window that had any
    origin_step: int | None = None  # number of the first step seen; runs resume at any number
    rss: dict[int, float] = {}  # rank -> resident bytes at the end of the window before
    step_values: dict[int, dict[int, tuple[float, ...]]] = {}  # step -> rank -> values compared across ranks
    finished: dict[int, float] = {}  # rank -> time at which it said it was done, joined or out of data

    def see_ranks(self, ranks: Iterable[int]) -> None:
        """Remember that these ranks exist."""
        known = set(self.ranks)
        new = sorted(known.union(ranks))
        if len(new) != len(known):
            self.ranks = new

    def line_gap_s(self) -> float:
        """How long a rank's log is usually silent between two steps, seconds; NaN while unknown."""
        return float(np.median(self.line_gaps_s)) if len(self.line_gaps_s) >= FEWEST_GAPS else math.nan

    def is_over(self) -> bool:
        """Every rank has said that it is done, or its process is gone."""
        return bool(self.ranks) and all(r in self.finished or r in self.gone for r in self.ranks)

    def position(self) -> dict[int, int]:
        """Rank -> its row in the vectors."""
        return {rank: i for i, rank in enumerate(self.ranks)}


class Measures(msgspec.Struct):
    """Per-rank vectors of shape (n_ranks,) in the order of `ranks`, and numbers of the whole run; NaN = not known."""

    ranks: list[int]
    per_rank: dict[str, Vector] = {}
    run: dict[str, float] = {}


def per_rank(position: dict[int, int], values: dict[int, float]) -> Vector:
    """A vector with NaN where a rank has no value."""
    out = np.full(len(position), math.nan)
    for rank, value in values.items():
        out[position[rank]] = value
    return out


def median(values: list[float]) -> float:
    """Median, NaN for nothing."""
    return float(np.median(values)) if values else math.nan


def mean(values: list[float]) -> float:
    """Mean, NaN for nothing."""
    return float(np.mean(values)) if values else math.nan


def known(values: Iterable[float | None]) -> list[float]:
    """The values that are there and finite."""
    return [v for v in values if v is not None and math.isfinite(v)]


def less_median(values: Vector) -> Vector:
    """Values less their median over the ranks that are known (shape kept)."""
    if np.isfinite(values).sum() < 2:
        return np.full(values.shape, math.nan)
    return values - np.nanmedian(values)
