"""Turns measures into features: a rank against its peers, against its own past, and the run against its rhythm.

Every function returns per-rank vectors of shape (n_ranks,); NaN where something is missing.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from features.baseline import Baseline
from features.measures.steps import PHASES
from features.measures.table import Measures, RunMemory, Vector, less_median

CPU_FLOOR, SWITCH_FLOOR, BYTES_FLOOR, RETRANSMIT_FLOOR, LOAD_FLOOR = 0.02, 20.0, 1e5, 50.0, 0.5
"""Added to both sides of a ratio (cores, switches/s, bytes/s, segments/s, processes): below them a ratio is noise. The
segments: healthy hosts here sent up to 120 again per second."""
SURPLUS_FLOOR = 5e6
"""Bytes/s; a share of less traffic than this is a share of start-up and control messages."""
AGREED = 0.3
"""Decades above the noise; below it a value was the same on all ranks."""
LEAST_SPREAD, MOST_DEVIATIONS = 0.03, 40.0
"""Usual steps: no run is steadier than to 3 % of a step, whatever its first windows look like; and the most deviations told."""
RSS_FLOOR = 32e6
"""Bytes; allocators and caches move by this much in any process."""


class Comparison:
    """One window's measures beside the baseline, and the usual step as the unit of time."""

    def __init__(self, now: Measures, past: Baseline, memory: RunMemory) -> None:
        self.now, self.past, self.memory = now, past, memory
        self.ranks = now.ranks
        usual = past.run("step")
        if not usual > 0:  # unknown, or a log that rounds its step times to zero
            usual = past.run("period")
        self.has_past = usual > 0
        # Without a past yet: the newest step seen, which a window that is silent must borrow from the one before.
        recent = memory.recent_step_s
        now_s = recent if recent is not None and recent > 0 else now.run.get("period", math.nan)
        self.unit_s = usual if self.has_past else now_s if now_s > 0 else math.nan

    def of_run(self, name: str) -> float:
        """This window's value of a measure of the run."""
        return self.now.run.get(name, math.nan)

    def of_ranks(self, name: str) -> Vector:
        """This window's value of a measure per rank."""
        return self.now.per_rank.get(name, np.full(len(self.ranks), math.nan))

    def peers(self, name: str) -> Vector:
        """Each rank's value less the median of the ranks; NaN where fewer than two ranks are known."""
        return less_median(self.of_ranks(name))

    def change(self, name: str) -> Vector:
        """Each rank's value less its own past."""
        return self.of_ranks(name) - self.past.ranks(name, self.ranks)

    def log_change(self, name: str, floor: float) -> Vector:
        """Log2 ratio of each rank's value to its own past, both raised by `floor`."""
        return np.log2((self.of_ranks(name) + floor) / (self.past.ranks(name, self.ranks) + floor))

    def log_peers(self, name: str, floor: float) -> Vector:
        """Log2 ratio of each rank's value to the median rank, both raised by `floor`."""
        return less_median(np.log2(self.of_ranks(name) + floor))

    def deviations(self, name: str) -> Vector:
        """How many of the run's own usual spreads each rank's value is from its own past; NaN where no spread is known."""
        spread = np.maximum(self.past.spreads(name, self.ranks) / self.unit_s, LEAST_SPREAD)
        return np.clip(self.change(name) / self.unit_s / spread, -MOST_DEVIATIONS, MOST_DEVIATIONS)

    def deviation_of_run(self, name: str) -> float:
        """The same for a measure of the run."""
        spread = float(np.maximum(self.past.spread(name) / self.unit_s, LEAST_SPREAD))
        change = (self.of_run(name) - self.past.run(name)) / self.unit_s / spread
        return float(np.clip(change, -MOST_DEVIATIONS, MOST_DEVIATIONS))

    def everywhere(self, value: float) -> Vector:
        """A number of the run, given to every rank."""
        return np.full(len(self.ranks), value)


def log2_ratio(a: float, b: float) -> float:
    """Log2 of a/b; NaN where either is unknown or not positive."""
    return math.log2(a / b) if a > 0 and b > 0 else math.nan


def features_of(c: Comparison) -> dict[str, Vector]:
    """All features of one window: name -> shape (n_ranks,)."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN slices are how a missing source looks
        return {**_step(c), **_progress(c), **_timeline(c), **_process(c), **_host(c), **_numbers(c), **_memory(c)}


def _step(c: Comparison) -> dict[str, Vector]:
    out = {
        "step_vs_past": c.everywhere(log2_ratio(c.of_run("step"), c.past.run("step"))),
        "step_max_vs_past": c.everywhere(log2_ratio(c.of_run("step_max"), c.past.run("step_max"))),
        "batch_vs_peers": less_median(np.log2(c.of_ranks("batch"))),
    }
    out["local_vs_usual"] = c.deviations("local_apart")
    out["step_vs_usual"] = c.everywhere(c.deviation_of_run("step"))
    out["finish_vs_past"] = c.change("finish") / c.unit_s
    for name in (*PHASES, "local"):
        out[f"{name}_vs_past"] = c.change(name) / c.unit_s
        out[f"{name}_vs_peers"] = c.peers(name) / c.unit_s
    return out


def _progress(c: Comparison) -> dict[str, Vector]:
    gap_s = float(np.fmax(c.unit_s, c.memory.line_gap_s()))  # a log that prints every tenth step is silent in between
    steps_away = c.of_run("since_step") / gap_s
    behind = c.of_ranks("behind") / gap_s
    return {
        "silence": c.everywhere(math.nan if c.memory.is_over() else _beyond(steps_away)),
        "silence_vs_peers": np.log2(np.maximum(behind, 1.0)),
        "pause_share": c.everywhere(c.of_run("pause_share")),
    }


def _beyond(steps: float) -> float:
    """0 up to two usual steps, then the log2 of how many."""
    return math.log2(max(steps, 2.0) / 2.0) if math.isfinite(steps) else math.nan


def _timeline(c: Comparison) -> dict[str, Vector]:
    negotiate = (c.of_run("negotiate") - c.past.run("negotiate")) / c.unit_s
    longest = c.of_run("negotiate_max") / c.unit_s
    quiet = c.of_run("since_collective") / c.unit_s
    step = next((s for s in (c.of_run("step"), c.of_run("period")) if s > 0), math.nan)
    return {
        "period_vs_past": c.everywhere(log2_ratio(c.of_run("period"), c.past.run("period"))),
        "negotiate_vs_past": c.everywhere(negotiate),
        "negotiate_max_vs_past": c.everywhere(_beyond(longest)),
        "transfer_vs_past": c.everywhere(c.of_run("transfer")),
        "transfer_max_vs_past": c.everywhere(c.of_run("transfer_max")),
        "cycle_gap": c.everywhere(log2_ratio(c.of_run("cycle_max"), c.past.run("cycle_max"))),
        "cycle_vs_past": c.everywhere(log2_ratio(c.of_run("cycle"), c.past.run("cycle"))),
        "cycle_share": c.everywhere(c.of_run("cycle") / step),
        "unfused_share": c.everywhere(c.of_run("unfused_share")),
        "quiet": c.everywhere(math.nan if c.memory.is_over() else _beyond(quiet)),
        "last_share": c.of_ranks("last_share"),
        "lateness": c.of_ranks("late") / c.unit_s,
    }


def _process(c: Comparison) -> dict[str, Vector]:
    received = c.of_ranks("net_rx")
    middle = np.nanmedian(received) if np.isfinite(received).sum() >= 2 else math.nan
    return {
        "cpu_vs_past": c.change("cpu"),
        "cpu_vs_peers": c.peers("cpu"),
        "sleeps_vs_peers": c.log_peers("sleeps", SWITCH_FLOOR),
        "preempted_vs_peers": c.log_peers("preempted", SWITCH_FLOOR),
        "stopped": c.of_ranks("stopped"),
        "gone": c.of_ranks("gone"),
        "workers_cpu_vs_past": c.log_change("workers_cpu", CPU_FLOOR),
        "workers_read_vs_past": c.log_change("workers_read", BYTES_FLOOR),
        "net_vs_past": c.log_change("net_tx", BYTES_FLOOR),
        "retransmits_vs_past": c.log_change("retransmits", RETRANSMIT_FLOOR),
        "retransmits_vs_peers": c.log_peers("retransmits", RETRANSMIT_FLOOR),
        "received_surplus": (received - middle) / (middle + SURPLUS_FLOOR),
        "drops": np.log2(1.0 + c.of_ranks("drops")),
    }


def _host(c: Comparison) -> dict[str, Vector]:
    return {
        "host_cpu_vs_past": c.change("host_cpu"),
        "foreign_cpu": c.of_ranks("foreign_cpu"),
        "steal": c.of_ranks("steal"),
        "iowait": c.of_ranks("iowait"),
        "load_vs_past": c.log_change("load", LOAD_FLOOR),
        "disk_busy_vs_past": c.change("disk_busy"),
    }


def _numbers(c: Comparison) -> dict[str, Vector]:
    return {
        "loss_vs_peers": c.of_ranks("loss_ratio"),
        "loss_vs_past": c.everywhere(log2_ratio(c.of_run("loss"), c.past.best("loss"))),
        "grad_vs_past": c.everywhere(log2_ratio(c.of_run("grad"), c.past.recent("grad"))),
        "nonfinite": c.of_ranks("nonfinite"),
        "param_desync": c.of_ranks("param_desync"),
        # A norm taken before the reduction differs between ranks all the time: only what used to agree can come apart.
        "grad_desync": np.where(c.past.ranks("grad_desync", c.ranks) < AGREED, c.of_ranks("grad_desync"), math.nan),
    }


def _memory(c: Comparison) -> dict[str, Vector]:
    grown = np.log2((c.of_ranks("rss") + RSS_FLOOR) / (c.past.early("rss", c.ranks) + RSS_FLOOR))
    return {
        "rss_vs_past": grown,
        "rss_vs_peers": less_median(grown),
        "rss_growth": c.of_ranks("rss_growth"),
        "memory_low": c.past.ranks("available", c.ranks) - c.of_ranks("available"),
        "swap_vs_past": c.change("swap"),
    }
