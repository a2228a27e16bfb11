"""Evidence of a case: the catalog's words, each as a number in [-1, 1]; 0 = not seen, or its source is missing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np

from detector.cases import Case
from features.extract import FeatureFrame
from features.measures.table import RunMemory, Vector
from features.vocabulary import FEATURES, INDEX, NAMES

IN_STEPS = frozenset(f.name for f in FEATURES if f.unit == "steps" and f.family == "step")
LOCAL_PHASES = ("data", "forward", "backward", "optimizer")


class CaseNumbers:
    """The unusual windows of a case as arrays: typical and extreme features per rank, and the suspect's row."""

    def __init__(self, case: Case, memory: RunMemory) -> None:
        self.case, self.memory = case, memory
        self.ranks = memory.ranks
        self.values = _stack(case.frames, self.ranks)  # (n_windows, n_ranks, n_features)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN: a source that is missing
            self.typical = np.nanmedian(self.values, axis=0) if len(self.values) else _nothing(self.ranks)
            self.mean = np.nanmean(self.values, axis=0) if len(self.values) else _nothing(self.ranks)
            self.extreme = np.nanmax(self.values, axis=0) if len(self.values) else _nothing(self.ranks)
        self.suspects: list[int] = []

    def of(self, name: str, *, extreme: bool = False) -> Vector:
        """Typical (or extreme) value of a feature per rank, shape (n_ranks,)."""
        # Phases come and go within a fault (a process that is stopped now and then): their mean says what was lost.
        usual = self.mean if name in IN_STEPS else self.typical
        return (self.extreme if extreme else usual)[:, INDEX[name]]

    def top(self, name: str, *, extreme: bool = False) -> float:
        """The largest over the ranks; NaN where unknown."""
        values = self.of(name, extreme=extreme)
        return float(np.nanmax(values)) if np.isfinite(values).any() else math.nan

    def least(self, name: str) -> float:
        """The smallest over the ranks; NaN where unknown."""
        values = self.of(name)
        return float(np.nanmin(values)) if np.isfinite(values).any() else math.nan

    def middle(self, name: str) -> float:
        """The median over the ranks; NaN where unknown."""
        values = self.of(name)
        return float(np.nanmedian(values)) if np.isfinite(values).any() else math.nan

    def suspect(self, name: str, *, extreme: bool = False) -> float:
        """The value of the first suspect; NaN without one."""
        if not self.suspects or self.suspects[0] not in self.ranks:
            return math.nan
        return float(self.of(name, extreme=extreme)[self.ranks.index(self.suspects[0])])

    def others(self, name: str) -> float:
        """The median over all ranks but the suspects."""
        rest = [v for r, v in zip(self.ranks, self.of(name), strict=True) if r not in self.suspects[:1]]
        known = [v for v in rest if math.isfinite(v)]
        return float(np.median(known)) if known else math.nan


def _nothing(ranks: list[int]) -> Vector:
    return np.full((len(ranks), len(NAMES)), math.nan)


def _stack(frames: list[FeatureFrame], ranks: list[int]) -> Vector:
    out = np.full((len(frames), len(ranks), len(NAMES)), math.nan)
    at = {rank: i for i, rank in enumerate(ranks)}
    for k, frame in enumerate(frames):
        out[k, [at[r] for r in frame.ranks]] = frame.values
    return out


def squash(value: float, scale: float) -> float:
    """tanh(value / scale), 0 for unknown: 0.76 at `scale`, 0.96 at twice that."""
    return 0.0 if math.isnan(value) else math.tanh(value / scale)


def rise(value: float, scale: float) -> float:
    """`squash`, but falls count as nothing."""
    return max(0.0, squash(value, scale))


def phase_shares(n: CaseNumbers, *, everyone: bool) -> dict[str, float]:
    """Which part of the extra local time each phase holds: of the suspect against its peers, or of all ranks."""
    extra = {}
    for phase in LOCAL_PHASES:
        past = n.middle(f"{phase}_vs_past") if everyone else n.suspect(f"{phase}_vs_past")
        value = past if everyone or math.isfinite(past) else n.suspect(f"{phase}_vs_peers")
        extra[phase] = max(0.0, value) if math.isfinite(value) else 0.0
    total = sum(extra.values())
    return {phase: (value / total if total > SMALLEST_EXTRA else 0.0) for phase, value in extra.items()}


SMALLEST_EXTRA = 0.1
"""Usual steps; a share of less extra time than this is a share of noise."""


def _asymmetry(n: CaseNumbers) -> dict[str, float]:
    slow = max(_or(n.suspect("local_vs_peers"), 0.0), _or(n.suspect("lateness"), 0.0))
    everyone = max(_or(n.least("local_vs_past"), 0.0), 0.0)
    mostly_all = everyone > 0.3 * max(slow, 0.05)
    alone = slow / (slow + everyone) if slow > 0 else 0.0
    shares = phase_shares(n, everyone=mostly_all)
    compute = shares["forward"] + shares["backward"]
    return {
        # Where all ranks became slower, one of them is always the slowest; that alone accuses nobody.
        "one_rank_slow": rise(slow, 0.4) * alone,
        "all_ranks_slow": rise(everyone, 0.4),
        "local_data": shares["data"],
        "local_forward": shares["forward"],
        "local_backward": shares["backward"],
        "local_optimizer": shares["optimizer"],
        # Without its CPU a slow processor and a capped one look alike, and evenness argues for neither.
        "phases_even": min(1.0, 4.0 * min(shares["forward"], shares["backward"]))
        if compute > 0.5 and math.isfinite(n.suspect("cpu_vs_peers"))
        else 0.0,
        "batch_uneven": rise(n.suspect("batch_vs_peers"), 0.3),
        "wait_on_others": _wait(n, alone),
        "sync_all": rise(n.least("sync_vs_past"), 0.5),
    }


def _wait(n: CaseNumbers, alone: float) -> float:
    """The others wait for the suspect: their time in collectives rose and its own did not; or negotiations grew longer."""
    others = n.others("sync_vs_past")
    if math.isfinite(others):
        more = squash(others - _or(n.suspect("sync_vs_past"), 0.0), 0.5)
        return more * alone if more > 0 else more
    return rise(n.middle("negotiate_vs_past"), 0.5) * max(alone, 0.5)


def _measured(n: CaseNumbers, name: str) -> float:
    """Mean over the case and its ranks of a measure that means the same everywhere; 0 where unknown."""
    values = [f.measures.per_rank[name] for f in n.case.frames if name in f.measures.per_rank]
    known = [v for row in values for v in row.tolist() if math.isfinite(v)]
    return float(np.mean(known)) if known else 0.0


def _timeline(n: CaseNumbers) -> dict[str, float]:
    gap = n.top("cycle_gap", extreme=True)
    quiet = [f for f in n.case.frames if not math.isnan(q := _of_run(f, "quiet")) and q > QUIET]
    cycling = [f for f in quiet if math.isfinite(f.measures.run.get("cycle", math.nan))]
    cycles_go_on = len(cycling) > len(quiet) / 2 and not _or(gap, 0.0) > 3.0
    cycles_stop = len(quiet) >= 2 and not cycling and bool(n.memory.uses)
    still_open = any(c.end is None for w in n.case.frames for c in w.open_collectives)
    return {
        "negotiate_long": rise(n.middle("negotiate_vs_past"), 0.5),
        "negotiate_open": 1.0 if still_open else rise(_or(n.top("negotiate_max_vs_past", extreme=True), 0.0) - 3.0, 2.0),
        "small_transfers_slow": rise(n.middle("cycle_vs_past") - 0.3, 1.0),
        "transfer_long": rise(n.middle("transfer_vs_past"), 1.0),
        "cycle_gap": -1.0 if cycles_go_on else 1.0 if cycles_stop else rise(_or(gap, 0.0) - 1.0, 2.0),
        "cycle_bound": rise(_or(n.middle("cycle_share"), 0.0) - 0.3, 0.3),
        "small_collectives": rise(n.middle("unfused_share"), 0.6),
        "one_rank_last": rise(n.suspect("last_share"), 0.3),
        "join_seen": 1.0 if any(c.op == "join" for w in n.case.frames for c in w.open_collectives) else 0.0,
    }


QUIET = 3.0
"""Log2 of twice the usual step: beyond 16 steps without a collective nothing is being trained."""


def _of_run(frame: FeatureFrame, name: str) -> float:
    """A feature that is the same for all ranks."""
    return float(frame.values[0, INDEX[name]]) if len(frame.values) else math.nan


def _machines(n: CaseNumbers) -> dict[str, float]:
    cpu = n.suspect("cpu_vs_peers")
    full = _or(n.middle("foreign_cpu"), 0.0)
    return {
        "status_stopped": rise(n.suspect("stopped", extreme=True), 0.3),
        "cpu_high": rise(cpu, 0.3),
        "cpu_low": rise(-cpu, 0.15),
        "cpu_stolen": rise(-_or(n.middle("cpu_vs_past"), 0.0), 0.2) * rise(full, 0.2),
        "workers_idle": rise(-_or(n.suspect("workers_cpu_vs_past"), 0.0), 1.5),
        "workers_busy": rise(n.suspect("workers_cpu_vs_past"), 1.0),
        "foreign_cpu": rise(full - 0.1, 0.2),
        "host_cpu_full": rise(_measured(n, "host_cpu") - 0.95, 0.03),
        "iowait": rise(n.middle("iowait"), 0.2),
        "disk_busy": rise(n.middle("disk_busy_vs_past"), 0.4),
        "net_retransmits": rise(n.top("retransmits_vs_past"), 2.0),
        "net_drops": rise(n.top("drops", extreme=True), 1.0),
        "net_throughput_low": rise(-_or(n.middle("net_vs_past"), 0.0), 1.5),
        "net_silence": rise(-_or(n.middle("net_vs_past"), 0.0) - 4.0, 2.0),
    }


def _numbers(n: CaseNumbers) -> dict[str, float]:
    from_start = bool(n.case.frames) and bool(n.case.frames[0].first_step is not None)
    early = from_start and n.memory.origin_step is not None and _is_early(n)
    desync = rise(n.top("param_desync"), 1.5)
    return {
        "loss_diverges_one_rank": rise(n.suspect("loss_vs_peers"), 1.0),
        "loss_diverges_all": rise(n.middle("loss_vs_past") - 0.5, 1.5),
        "param_norm_desync": desync,
        "param_desync_from_start": desync if early else 0.0,
        "grad_norm_jump": rise(_at_first(n, "grad_vs_past") - 1.0, 2.0),
        "rss_growth": rise(max(_or(n.suspect("rss_vs_past"), 0.0), _grown(n)), 0.4),
        "host_memory_low": rise(_or(n.top("memory_low"), 0.0) - 0.1, 0.2),
        "swap_use": rise(n.top("swap_vs_past"), 0.05),
    }


def _at_first(n: CaseNumbers, name: str) -> float:
    """Largest value in the first windows: what jumps at the beginning, not what drifts while the past is frozen."""
    values = [v for f in n.case.frames[:3] if not math.isnan(v := _of_run(f, name))]
    return max(values, default=0.0)


def _grown(n: CaseNumbers) -> float:
    """Growth of the suspect's memory over the case beyond that of its peers, log2; 0 where unknown."""
    rss = [f.measures.per_rank["rss"] for f in n.case.frames if len(f.ranks) == len(n.ranks)]
    if len(rss) < 2 or not n.suspects or n.suspects[0] not in n.ranks:
        return 0.0
    growth = np.log2(rss[-1] / rss[0])
    mine = float(growth[n.ranks.index(n.suspects[0])])
    rest = [g for r, g in zip(n.ranks, growth, strict=True) if r != n.suspects[0] and math.isfinite(g)]
    return _or(mine - (float(np.median(rest)) if rest else 0.0), 0.0)


def _rhythm(n: CaseNumbers) -> dict[str, float]:
    silence = max(_or(n.top("silence", extreme=True), 0.0), _or(n.top("quiet", extreme=True), 0.0))
    pauses = {p.kind: p for f in n.case.frames for p in f.pauses}
    share = _or(n.top("pause_share", extreme=True), 0.0)
    return {
        "no_progress": rise(silence - 1.0, 2.0),
        "progress_continues": _progress_share(n),
        "whole_run": 1.0 if _is_early(n) else 0.0,
        "at_checkpoint": 1.0 if "checkpoint" in pauses and share > PAUSE_SHARE else 0.0,
        "checkpoint_long": rise(share, 0.15) if "checkpoint" in pauses else 0.0,
        "validation_long": rise(share, 0.3) if "validation" in pauses and "checkpoint" not in pauses else 0.0,
        "periodic": 1.0 if n.case.recurs else 0.0,
        "progress_ended": 1.0 if n.case.is_open and silence > 2.0 and not n.memory.is_over() else 0.0,
    }


def _progress_share(n: CaseNumbers) -> float:
    """Share of the unusual windows in which steps, or without a log collectives, still ended; 0 where nobody tells."""
    moving = [
        f.first_step is not None if n.memory.last_step else math.isfinite(f.measures.run.get("negotiate", math.nan))
        for f in n.case.frames
    ]
    known = bool(n.memory.last_step or n.memory.uses)
    return sum(moving) / len(moving) if moving and known else 0.0


PAUSE_SHARE = 0.05
"""Share of the time that a pause must take to be part of an incident: every long case meets some checkpoint."""


CONTEXT = 0.5
"""How strongly a fact counts that helps to explain but proves nothing."""


def _facts(n: CaseNumbers) -> dict[str, float]:
    strength: dict[str, float] = {}
    for f in n.case.facts:
        strength[f.name] = max(strength.get(f.name, 0.0), CONTEXT if f.role == "context" else 1.0)
    return strength


def _or(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value


EARLY_STEPS = 40
"""A case whose first step lies within this many of the run's first has been there from the start: warm-up hides some."""


def _is_early(n: CaseNumbers) -> bool:
    first = next((f.first_step for f in n.case.frames if f.first_step is not None), None)
    return first is not None and n.memory.origin_step is not None and first - n.memory.origin_step <= EARLY_STEPS


FAMILIES: tuple[Callable[[CaseNumbers], dict[str, float]], ...] = (
    _asymmetry, _timeline, _machines, _numbers, _rhythm, _facts,
)  # fmt: skip


def evidence_of(numbers: CaseNumbers) -> dict[str, float]:
    """All words that the case supports, strongest meaning last to come; absent words are 0."""
    out: dict[str, float] = {}
    for family in FAMILIES:
        out |= {name: value for name, value in family(numbers).items() if value != 0.0}
    return out
