"""The upper tail of healthy scores: how rare is a score that no healthy row, or only a few, ever reached."""

from __future__ import annotations

import math
from typing import Self

import msgspec
import numpy as np

from models.arrays import Vector

TAIL_SHARE = 0.05
"""Share of the scores that the tail is fitted on: above it the empirical distribution grows too coarse to read."""

TAIL_ROWS = 20
"""The tail is fitted on at least this many scores (or half of them): a mean of fewer is mostly luck."""

FLATTEST = 1e-3
"""Smallest tail scale, as a share of the spread of all scores: keeps equal scores from making a wall."""


class Tail(msgspec.Struct, frozen=True):
    """Exponential tail: P(score > s) = share * exp(-(s - start) / scale) for s >= start (peaks over a threshold).

    By Pickands' theorem excesses over a high threshold follow a generalised Pareto distribution; with a few dozen
    excesses its shape cannot be told from 0, which is the exponential. `peaks` is how many excesses the scale was
    fitted on.
    """

    start: float
    scale: float
    share: float
    peaks: int

    @classmethod
    def fit(cls, scores: Vector) -> Self:
        """From healthy scores (n,), n >= 1, in any order."""
        n = len(scores)
        peaks = min(max(math.ceil(n * TAIL_SHARE), min(TAIL_ROWS, n // 2)), n - 1)
        ordered = np.sort(scores)
        start = float(ordered[n - 1 - peaks])
        excess = float(np.mean(ordered[n - peaks :] - start)) if peaks > 0 else 0.0
        flattest = FLATTEST * max(float(ordered[-1] - ordered[0]), abs(start), 1e-6)
        return cls(start=start, scale=max(excess, flattest), share=(peaks + 1) / (n + 1), peaks=peaks)

    def surprise(self, scores: Vector) -> Vector:
        """-log10 P(score > s), shape as `scores`; meant for s >= start."""
        return -math.log10(self.share) + (scores - self.start) / (self.scale * math.log(10.0))

    def quantile(self, rate: float, *, sigmas: float = 0.0) -> float:
        """The score exceeded with probability `rate` <= share; the scale is raised by `sigmas` of its standard
        errors."""
        scale = self.scale * (1.0 + sigmas / math.sqrt(max(self.peaks, 1)))
        return self.start + scale * max(math.log(self.share / rate), 0.0)
