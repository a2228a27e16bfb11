"""What if no worker were slow: simulates traced steps with usual lengths of operations, and says who explains the difference.

After "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025): computations get the mean length
of their kind, transfers the median; the slowdown is the simulated time over the ideal one, and a worker explains what goes
away when its operations alone are made usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from detector.whatif_graph import MEETINGS, Graph, Unfit, alike
from features.optrace import Floats, OpTable, spans

SLOW: Final = 1.1
"""A job that takes a tenth longer than its ideal is held up; the study draws the line there."""
CLOSE: Final = 0.5
"""A worker is among the slow ones if it alone causes at least this part of what the slowest alone causes."""
FEW: Final = 8
"""At most one worker of so many is singled out; where more are slow, the work is uneven, not the machine."""

MOST_NUMBERS: Final = 1 << 24
"""Lengths of nodes simulated at once: 128 MiB."""
MOST_EXACT: Final = 128
"""Workers up to which each is simulated by itself."""

Mask = npt.NDArray[np.bool_]
Keeps = Callable[[Graph], Mask]
"""Which nodes keep the lengths of the trace."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The result over all traced steps, means in seconds. Slowdowns are relative to the ideal: 1.0 = none."""

    steps: int
    traced_s: float  # as the trace has it
    original_s: float  # simulated with the lengths of the trace: without the delays between operations
    ideal_s: float  # simulated with usual lengths
    by_worker: dict[int, float]  # slowdown if this worker alone keeps its lengths
    by_stage: dict[int, float]
    by_kind: dict[str, float]
    workers: tuple[int, ...]  # those that are singled out, the slowest first
    workers_share: float  # what goes away when only theirs are made usual, as a share of what the ideal saves
    stage: int | None  # the slowest stage
    stage_share: float
    ratios: dict[int, dict[str, float]] = {}  # worker -> kind -> its mean over that of the median worker

    @property
    def slowdown(self) -> float:
        """How many times longer than ideal a step takes."""
        return self.original_s / self.ideal_s if self.ideal_s > 0 else 1.0


class _Scenes:
    """All simulations of one trace: original and usual lengths of every node, and any mixture of them."""

    def __init__(self, table: OpTable) -> None:
        self.table = table
        self.parts: list[tuple[Graph, Floats]] = []  # graph, lengths (n_nodes, n_steps)
        for _, rows in alike(table):
            graph = Graph(table, rows[0])
            self.parts.append((graph, graph.lengths(table.start_s[rows].T, table.end_s[rows].T)))
        usual = self._usual()
        self.ideals = [np.broadcast_to(np.array([[usual[k]] for k in graph.kinds]), lasts.shape) for graph, lasts in self.parts]

    def _usual(self) -> dict[str, float]:
        """Mean length of computations of a kind, median of transfers, over all workers and steps."""
        pooled: dict[str, list[Floats]] = {}
        for graph, lasts in self.parts:
            for kind, row in zip(graph.kinds, lasts, strict=True):
                pooled.setdefault(kind, []).append(row)
        return {
            kind: float((np.median if kind in MEETINGS else np.mean)(np.concatenate(rows))) for kind, rows in pooled.items()
        }

    def times(self, keeping: Sequence[Keeps]) -> list[float]:
        """Mean time of a step for each of `keeping`, if its nodes keep their lengths, and all others get the usual ones."""
        totals, steps = np.zeros(len(keeping)), 0
        for (graph, lasts), ideal in zip(self.parts, self.ideals, strict=True):
            at_once = max(1, MOST_NUMBERS // lasts.size)
            for k in range(0, len(keeping), at_once):
                some = keeping[k : k + at_once]
                mixed = [np.where(keeps(graph)[:, None], lasts, ideal) for keeps in some]
                ends = graph.simulate(np.concatenate(mixed, axis=1))
                totals[k : k + len(some)] += ends.reshape(len(some), -1).sum(axis=1)
            steps += lasts.shape[1]
        return [float(total) / steps for total in totals]


def what_if(table: OpTable) -> WhatIf:
    """Analyse a trace. Raises Unfit where it does not hold what a simulation needs."""
    if not len(table):
        raise Unfit("no operations")
    scenes = _Scenes(table)
    kinds = sorted({k for graph, _ in scenes.parts for k in graph.kinds})
    stages = np.unique(table.stage).tolist()
    keeping: list[Keeps] = [_all, _none, *(_of_kind(k) for k in kinds), *(_of_stage({s}) for s in stages)]
    original, ideal, *rest = scenes.times(keeping)
    if not ideal > 0:
        raise Unfit("all operations last no time")
    by_kind = {k: t / ideal for k, t in zip(kinds, rest, strict=False)}
    by_stage = {s: t / ideal for s, t in zip(stages, rest[len(kinds) :], strict=True)}
    by_worker = _by_worker(scenes, by_stage, ideal)
    workers = _singled_out(by_worker)
    stage = max(by_stage, key=lambda s: (by_stage[s], -s)) if len(stages) > 1 else None
    without = scenes.times([_but(_of_worker(set(workers))), _but(_of_stage(set() if stage is None else {stage}))])
    traced = spans(table)
    return WhatIf(
        steps=len(traced),
        traced_s=float(np.mean([s.end_s - s.start_s for s in traced])),
        original_s=original,
        ideal_s=ideal,
        by_worker=by_worker,
        by_stage=by_stage,
        by_kind=by_kind,
        workers=workers,
        workers_share=_share(original, without[0], ideal),
        stage=stage,
        stage_share=_share(original, without[1], ideal),
        ratios={w: _ratios(table, w) for w in workers},
    )


def _by_worker(scenes: _Scenes, by_stage: dict[int, float], ideal: float) -> dict[int, float]:
    """Slowdown if one worker alone keeps its lengths. In large jobs, as the study does: the lesser of what its replica and what
    its stage cause."""
    table = scenes.table
    ranks = np.unique(table.rank).tolist()
    if len(ranks) <= MOST_EXACT:
        return {r: t / ideal for r, t in zip(ranks, scenes.times([_of_worker({r}) for r in ranks]), strict=True)}
    members = {dp: set(np.unique(table.rank[table.dp == dp]).tolist()) for dp in np.unique(table.dp).tolist()}
    by_dp = dict(zip(members, scenes.times([_of_worker(m) for m in members.values()]), strict=True))
    first = dict(zip(*np.unique(table.rank, return_index=True), strict=True))
    return {r: min(by_dp[int(table.dp[i])] / ideal, by_stage[int(table.stage[i])]) for r, i in first.items()}


def _all(graph: Graph) -> Mask:
    return np.ones(len(graph.kinds), dtype=bool)


def _none(graph: Graph) -> Mask:
    return np.zeros(len(graph.kinds), dtype=bool)


def _of_worker(ranks: set[int]) -> Keeps:
    return lambda graph: np.array([bool(ranks & w) for w in graph.workers])


def _of_stage(stages: set[int]) -> Keeps:
    return lambda graph: np.array([bool(stages & s) for s in graph.stages])


def _of_kind(kind: str) -> Keeps:
    return lambda graph: np.array([k == kind for k in graph.kinds])


def _but(mask: Keeps) -> Keeps:
    return lambda graph: ~mask(graph)


def _share(original: float, without: float, ideal: float) -> float:
    """What goes away, as a share of what the ideal saves; 0 where there is nothing to save."""
    return (original - without) / (original - ideal) if original - ideal > 1e-9 * original else 0.0


def _singled_out(by_worker: dict[int, float]) -> tuple[int, ...]:
    """Workers that slow the job down by themselves, the slowest first; none where many do."""
    ranked = sorted(by_worker, key=lambda w: (-by_worker[w], w))
    least = max(CLOSE * (by_worker[ranked[0]] - 1.0), (SLOW - 1.0) / 2)
    found = [w for w in ranked if by_worker[w] - 1.0 >= least]
    return tuple(found) if len(found) <= max(1, len(ranked) // FEW) else ()


def _ratios(table: OpTable, worker: int) -> dict[str, float]:
    """How much longer than the median worker's the computations of a worker are, by kind."""
    out = {}
    for code, kind in enumerate(table.kinds):
        if kind in MEETINGS:
            continue
        means = {r: float(table.duration_s[rows].mean()) for r, rows in by_rank(table, code)}
        middle = float(np.median(list(means.values())))
        if worker in means and middle > 0:
            out[kind] = means[worker] / middle
    return out


def by_rank(table: OpTable, code: int) -> Iterable[tuple[int, npt.NDArray[np.int64]]]:
    """Worker and its operations of the kind with this code, for all workers that have any."""
    for rank in np.unique(table.rank).tolist():
        rows = np.flatnonzero((table.kind == code) & (table.rank == rank))
        if len(rows):
            yield rank, rows
