"""Measures from training steps: level and phases per rank, progress, and values that all ranks should share."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from features.measures.table import LINE_GAPS, Measures, RunMemory, Vector, known, less_median, mean, median, per_rank
from features.records import Step
from features.windows import Window

PHASES = ("data", "forward", "backward", "sync", "optimizer")
KEEP_STEPS = 64
"""Steps kept open for comparison across ranks; ranks of a synchronous job are never further apart than one."""
STEPS_FOR_LOSS = 4
"""Steps in a window from which losses of ranks are compared: each sees other samples, one step says nothing."""
CLOCKS_FROM_S = 366 * 86400.0
"""Seconds since 1970; logs without a clock or with one since boot count from 0, those without a year from 1972."""
PARAM_NOISE, GRAD_NOISE = 1e-6, 1e-4
"""Relative differences that printing and summation order alone produce."""


def measure_steps(window: Window, memory: RunMemory, into: Measures) -> None:
    """Fill in everything that step lines and phases tell about this window."""
    by_rank: dict[int, list[Step]] = defaultdict(list)
    for step in window.steps:
        by_rank[step.rank].append(step)
    at = memory.position()
    # Phases as means: a process that is stopped now and then loses time in whatever phase it happens to be in.
    for name in PHASES:
        of = f"{name}_s"
        into.per_rank[name] = per_rank(at, {r: mean(known(getattr(s, of) for s in v)) for r, v in by_rank.items()})
    into.per_rank["local"] = per_rank(at, {r: mean(known(map(_local, steps))) for r, steps in by_rank.items()})
    into.per_rank["local_apart"] = less_median(into.per_rank["local"])
    into.per_rank["batch"] = per_rank(at, {r: median(known(s.batch for s in steps)) for r, steps in by_rank.items()})
    into.per_rank["nonfinite"] = per_rank(at, {r: _nonfinite_share(steps) for r, steps in by_rank.items()})
    into.run["step"] = median(known(s.duration_s for s in window.steps))
    if math.isfinite(into.run["step"]):
        memory.recent_step_s = into.run["step"]
    into.run["step_max"] = max(known(s.duration_s for s in window.steps), default=math.nan)
    into.run["loss"] = median(known(s.loss for s in window.steps))
    into.run["grad"] = median(known(s.grad_norm for s in window.steps))
    _compare_ranks(window, memory, into)
    _progress(window, memory, into)


def _local(step: Step) -> float | None:
    """Time outside collectives; from the phases, or else the step less its wait."""
    phases = [p for p in (step.data_s, step.forward_s, step.backward_s, step.optimizer_s) if p is not None]
    if phases:
        return sum(phases)
    if step.duration_s is not None and step.sync_s is not None:
        return step.duration_s - step.sync_s
    return None


def _nonfinite_share(steps: list[Step]) -> float:
    losses = [s.loss for s in steps if s.loss is not None]
    return sum(not math.isfinite(v) for v in losses) / len(losses) if losses else math.nan


def _compare_ranks(window: Window, memory: RunMemory, into: Measures) -> None:
    """Loss, norms of weights and gradients: ranks are compared within one step, once all have reported it."""
    for s in window.steps:
        # When this rank left the collectives; times that only count from some start differ between ranks by chance.
        left_at = s.ts - s.optimizer_s if s.optimizer_s is not None and s.ts > CLOCKS_FROM_S else None
        values = tuple(math.nan if v is None else v for v in (s.loss, s.param_norm, s.grad_norm, left_at))
        memory.step_values.setdefault(s.step, {})[s.rank] = values
    reporting = set(memory.last_step) | {s.rank for s in window.steps}  # a rank whose log is missing is not waited for
    complete = [k for k, v in memory.step_values.items() if len(v) >= max(2, len(reporting))]
    names = ("loss_ratio", "param_desync", "grad_desync", "finish")
    rows: dict[str, list[Vector]] = {name: [] for name in names}
    for k in sorted(complete):
        by_rank = memory.step_values.pop(k)
        table = np.array([by_rank.get(r, (math.nan,) * 4) for r in memory.ranks])  # (n_ranks, 4)
        rows["loss_ratio"].append(_log_ratio_to_median(table[:, 0]))
        rows["param_desync"].append(_desync(table[:, 1], PARAM_NOISE))
        rows["grad_desync"].append(_desync(table[:, 2], GRAD_NOISE))
        left = table[:, 3]
        rows["finish"].append(left - np.nanmedian(left) if np.isfinite(left).any() else left)
    for k in sorted(memory.step_values)[:-KEEP_STEPS]:
        del memory.step_values[k]
    if len(complete) < STEPS_FOR_LOSS:
        rows["loss_ratio"] = []
    for name, vectors in rows.items():
        into.per_rank[name] = np.median(vectors, axis=0) if vectors else np.full(len(memory.ranks), math.nan)


def _log_ratio_to_median(values: Vector) -> Vector:
    finite = values[np.isfinite(values) & (values > 0)]
    if finite.size < 2:
        return np.full(values.shape, math.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log2(values / np.median(finite))
    return np.where(np.isfinite(ratio), ratio, math.nan)


def _desync(values: Vector, noise: float) -> Vector:
    """How far a value that should be equal on all ranks is from the median rank, in decades above the noise."""
    finite = values[np.isfinite(values)]
    if finite.size < 2:
        return np.full(values.shape, math.nan)
    middle = np.median(finite)
    distance = np.abs(values - middle) / max(abs(middle), 1e-30)
    if finite.size == 2:  # nobody can say which one is right
        apart = abs(finite[0] - finite[1]) / max(abs(finite[0]), abs(finite[1]), 1e-30)
        distance = np.where(np.isfinite(values), apart, distance)
    decades: Vector = np.log10(np.maximum(distance, noise) / noise)
    return decades


def _progress(window: Window, memory: RunMemory, into: Measures) -> None:
    for s in window.steps:
        before = memory.last_step_end.get(s.rank, -math.inf)
        if s.ts > before > -math.inf:
            memory.line_gaps_s = [*memory.line_gaps_s[-(LINE_GAPS - 1) :], s.ts - before]
        if s.ts >= before:
            memory.last_step_end[s.rank] = s.ts
            memory.last_step[s.rank] = s.step
        if memory.first_step_end is None:
            memory.first_step_end = s.ts
    into.run["pause_share"] = _pauses(window, memory)
    for rank, end in memory.last_step_end.items():
        if end > memory.finished.get(rank, math.inf):
            del memory.finished[rank]  # some scripts join, or tell of an end, once an epoch
    if memory.last_step_end:
        newest = max(memory.last_step_end.values())
        into.run["since_step"] = window.until - newest
        behind = {rank: newest - end for rank, end in memory.last_step_end.items()}
        into.per_rank["behind"] = per_rank(memory.position(), behind)


def _pauses(window: Window, memory: RunMemory) -> float:
    """Largest share of the time since the pause of the same kind before it that a validation or checkpoint took."""
    shares = []
    for p in window.phases:
        if p.kind in ("done", "join", "exhausted") and p.rank is not None:
            memory.finished.setdefault(p.rank, p.ts)
        if p.kind not in ("validation", "checkpoint") or p.duration_s is None:
            continue
        key = f"{p.kind} {p.rank}"
        since = memory.last_pause_end.get(key, memory.first_step_end)
        if since is not None and p.ts > since:
            shares.append(p.duration_s / (p.ts - since))
        memory.last_pause_end[key] = p.ts
    return max(shares, default=0.0 if window.steps else math.nan)
