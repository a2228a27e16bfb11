"""The run's own healthy past: what each measure used to be before anything went wrong."""

from __future__ import annotations

import math
import statistics

import msgspec
import numpy as np

from features.measures.table import Measures, Vector

DEPTH = 64
"""Healthy windows kept per measure. When full, every second one is dropped: the past is thinned, not forgotten, so a slow
drift cannot become the new normal."""
NEWEST = 4
"""Healthy windows that "recently" means, for values that drift in health, such as a gradient norm."""
ENOUGH_FOR_SPREAD = 6
"""Healthy windows needed before a spread is spoken of."""
ENOUGH = 3
"""Windows needed before a past is spoken of: the median of three bears one odd window."""


class Series(msgspec.Struct):
    """Healthy values of one measure of one rank (or of the run), thinned evenly."""

    values: list[float] = []
    stride: int = 1
    seen: int = 0
    newest: list[float] = []

    def add(self, value: float) -> None:
        """Remember one window's value; every `stride`-th is kept."""
        self.newest = [*self.newest[-(NEWEST - 1) :], value]
        if self.seen % self.stride == 0:
            self.values.append(value)
            if len(self.values) >= DEPTH:
                self.values = self.values[::2]
                self.stride *= 2
        self.seen += 1

    def median(self) -> float:
        """The usual value; NaN while there is too little past."""
        return statistics.median(self.values) if len(self.values) >= ENOUGH else math.nan

    def spread(self) -> float:
        """Usual deviation from the usual value (1.4826 MAD); NaN while there are too few to tell."""
        if len(self.values) < ENOUGH_FOR_SPREAD:
            return math.nan
        values = np.array(self.values)
        return 1.4826 * float(np.median(np.abs(values - np.median(values))))


class Baseline(msgspec.Struct):
    """Healthy past of all measures; frozen while the run is anomalous, because nobody adds to it then."""

    series: dict[str, Series] = {}

    def add(self, m: Measures) -> None:
        """Remember a window that was judged healthy."""
        for name, value in m.run.items():
            if math.isfinite(value):
                self.series.setdefault(name, Series()).add(value)
        for name, vector in m.per_rank.items():
            for rank, value in zip(m.ranks, vector.tolist(), strict=True):
                if math.isfinite(value):
                    self.series.setdefault(f"{name}/{rank}", Series()).add(value)

    def run(self, name: str) -> float:
        """Usual value of a measure of the run."""
        found = self.series.get(name)
        return math.nan if found is None else found.median()

    def ranks(self, name: str, ranks: list[int]) -> Vector:
        """Usual values of a measure per rank, shape (n_ranks,)."""
        return np.array([self.run(f"{name}/{rank}") for rank in ranks])

    def spread(self, name: str) -> float:
        """Usual deviation of a measure of the run."""
        found = self.series.get(name)
        return math.nan if found is None else found.spread()

    def spreads(self, name: str, ranks: list[int]) -> Vector:
        """Usual deviations of a measure per rank, shape (n_ranks,)."""
        return np.array([self.spread(f"{name}/{rank}") for rank in ranks])

    def early(self, name: str, ranks: list[int]) -> Vector:
        """The level of the first healthy windows per rank: what a slow growth is measured against."""
        found = [self.series.get(f"{name}/{rank}") for rank in ranks]
        return np.array([math.nan if s is None or len(s.values) < ENOUGH else float(np.median(s.values[:4])) for s in found])

    def recent(self, name: str) -> float:
        """The usual value of the last few healthy windows."""
        found = self.series.get(name)
        return math.nan if found is None or len(found.newest) < ENOUGH else float(np.median(found.newest))

    def best(self, name: str) -> float:
        """Lowest healthy value: what a loss had already reached."""
        found = self.series.get(name)
        return math.nan if found is None or len(found.values) < ENOUGH else min(found.values)
