"""The limit that a combined score has to pass, for a stated rate of false alarms on healthy windows held out by run."""

from __future__ import annotations

import math
from typing import Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from models.arrays import Labels, Vector
from models.tails import Tail

FORGIVE_FROM = 5
"""Runs. From this many on, the one with the highest score is allowed to be not quite as healthy as it is labelled."""

SIGMAS = 1.645
"""Standard errors added to the tail's scale: its upper 95 % bound, as the limit is extrapolated from few peaks."""

SECONDS_PER_HOUR = 3600.0


class Limit(msgspec.Struct, frozen=True):
    """A score above `value` is anomalous.

    `rate`: stated share of healthy windows above it. `observed`: share of the held-out healthy windows that are.
    `windows` and `groups`: how many it was calibrated on. `forgiven`: the run whose scores were held down to the
    highest of the others. `extrapolated`: True when fewer than one of the windows was expected above, so that the
    rate rests on the fitted tail.
    """

    value: float
    rate: float
    observed: float
    windows: int
    groups: int
    forgiven: str | None
    extrapolated: bool

    @classmethod
    def fit(cls, scores: ArrayLike, groups: ArrayLike, *, rate: float, blocks: ArrayLike | None = None) -> Self:
        """From combined scores of held-out healthy rows (n_rows,) with the run (`groups`) and window (`blocks`) of
        each.

        Rows of one window alarm together, so windows are counted, each with its highest row; without `blocks` every
        row is a window. The limit is the larger of two:

        * the quantile at `rate`: empirical where the windows are many enough, else from the exponential tail with its
          scale at the upper 95 % bound;
        * the highest score, after as many as the rate allows, of all runs but the forgiven one. So with little data no
          held-out healthy run raises a single alarm, except perhaps one of at least FORGIVE_FROM.
        """
        if not 0.0 < rate < 1.0:
            raise ValueError(f"rate is the share of healthy windows above the limit, within (0, 1), found {rate}")
        run_of, highest = _per_window(np.asarray(scores, dtype=np.float64), np.asarray(groups), blocks)
        forgiven = _oddest(run_of, highest)
        kept = highest[run_of != forgiven] if forgiven is not None else highest
        held = np.minimum(highest, kept.max())
        value = max(_quantile(held, rate), _after(kept, math.floor(rate * len(kept))))
        return cls(
            value=value,
            rate=rate,
            observed=float(np.mean(highest > value)),
            windows=len(highest),
            groups=len(np.unique(run_of)),
            forgiven=None if forgiven is None else str(forgiven),
            extrapolated=rate * len(highest) < 1.0,
        )


def rate_per_window(false_alarms_per_hour: float, *, hop_s: float) -> float:
    """The rate for `Limit.fit` that gives this many false alarms in an hour of windows that begin `hop_s` apart."""
    return false_alarms_per_hour * hop_s / SECONDS_PER_HOUR


def _per_window(scores: Vector, groups: Labels, blocks: ArrayLike | None) -> tuple[Labels, Vector]:
    """(run, highest score) of each window; a window is a distinct pair of run and block."""
    if blocks is None:
        return groups, scores
    _, run = np.unique(groups, return_inverse=True)
    _, block = np.unique(np.asarray(blocks), return_inverse=True)
    _, first, window = np.unique(run * (block.max() + 1) + block, return_index=True, return_inverse=True)
    highest = np.full(len(first), -np.inf)
    np.maximum.at(highest, window, scores)
    return groups[first], highest


def _oddest(run_of: Labels, highest: Vector) -> object | None:
    """The run with the highest score, if there are enough runs to forgive one."""
    if len(np.unique(run_of)) < FORGIVE_FROM:
        return None
    oddest: object = run_of[int(np.argmax(highest))]
    return oddest


def _quantile(scores: Vector, rate: float) -> float:
    tail = Tail.fit(scores)
    if rate < tail.share:
        return tail.quantile(rate, sigmas=SIGMAS)
    return _after(scores, math.floor(rate * len(scores)))


def _after(scores: Vector, allowed: int) -> float:
    """The lowest limit with at most `allowed` of the scores above it."""
    ordered = np.sort(scores)[::-1]
    return float(ordered[min(allowed, len(ordered) - 1)])
