"""Measures detection on labelled runs: each is judged by a bundle that has learned from all the others."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from detector.catalog import load_catalog
from detector.examples import SOURCES, RunExamples, without_source
from detector.grading import Grade, grade
from detector.learning import LearningRun
from detector.scoring import score_run
from detector.training import train_bundle
from features.rundir import load_run
from models import write_bundle


class GradedRun(msgspec.Struct, frozen=True):
    """How one run was judged with one set of sources."""

    name: str
    fault: str
    without: str | None
    grade: Grade


class Summary(msgspec.Struct, frozen=True):
    """Counts over all runs with one set of sources."""

    without: str | None
    faulty: int
    found: int
    rank: int
    category: int
    cause: int
    median_delay_s: float | None
    false_alarms_faulty: int
    healthy: int
    false_alarms_healthy: int
    healthy_hours: float
    extra: int


Progress = Callable[[str], None]


def evaluate(
    runs: Sequence[LearningRun], *, seed: int, jobs: int, keep: Path | None = None, progress: Progress = lambda _: None
) -> list[GradedRun]:
    """Leave one run out, train on the rest, judge the one; for all runs, in order of name.

    `keep`: directory to which each bundle is written under the name of the run that it has not seen.
    """
    with ProcessPoolExecutor(jobs) as pool:
        examples = [e for part in pool.map(LearningRun.examples, runs) for e in part]
        tasks = [_Task(run, [e for e in examples if e.name != run.name], seed, keep) for run in runs]
        out: list[GradedRun] = []
        for graded in pool.map(_judge, tasks):
            out += graded
            progress(graded[0].name)
    return out


class _Task(msgspec.Struct):
    run: LearningRun
    others: list[RunExamples]
    seed: int
    keep: Path | None


def _judge(task: _Task) -> list[GradedRun]:
    catalog = load_catalog()
    bundle = train_bundle(task.others, catalog, seed=task.seed)
    if task.keep is not None:
        write_bundle(task.keep / task.run.name, bundle, replace=True)
    run, label = load_run(task.run.path), task.run.label
    out = []
    for kind in (None, *SOURCES):
        part = without_source(run, kind)
        if part is None or (kind is not None and label.seen_in and not set(label.seen_in) - {kind}):
            continue  # nothing that is left could show it
        out.append(GradedRun(task.run.name, label.fault, kind, grade(label, score_run(part, bundle, catalog))))
    return out


class FaultSummary(msgspec.Struct, frozen=True):
    """Counts over the runs of one fault, all sources there."""

    fault: str
    runs: int
    found: int
    rank: int
    category: int
    cause: int
    median_delay_s: float | None


def by_fault(graded: Sequence[GradedRun]) -> list[FaultSummary]:
    """One row per kind of fault, in order of name."""
    out = []
    for fault in sorted({g.fault for g in graded if g.grade.found is not None}):
        rows = [g.grade for g in graded if g.fault == fault and g.without is None]
        delays = [g.delay_s for g in rows if g.delay_s is not None]
        counts = {name: sum(bool(getattr(g, name)) for g in rows) for name in ("found", "rank", "category", "cause")}
        delay = statistics.median(delays) if delays else None
        out.append(FaultSummary(fault=fault, runs=len(rows), median_delay_s=delay, **counts))
    return out


def summaries(graded: Sequence[GradedRun]) -> Iterator[Summary]:
    """One summary for each set of sources."""
    for kind in (None, *SOURCES):
        rows = [g.grade for g in graded if g.without == kind]
        faulty = [g for g in rows if g.found is not None]
        healthy = [g for g in rows if g.found is None]
        delays = [g.delay_s for g in faulty if g.delay_s is not None]
        yield Summary(
            without=kind,
            faulty=len(faulty),
            found=sum(bool(g.found) for g in faulty),
            rank=sum(bool(g.rank) for g in faulty),
            category=sum(bool(g.category) for g in faulty),
            cause=sum(bool(g.cause) for g in faulty),
            median_delay_s=statistics.median(delays) if delays else None,
            false_alarms_faulty=sum(g.false_alarms for g in faulty),
            healthy=len(healthy),
            false_alarms_healthy=sum(g.false_alarms for g in healthy),
            healthy_hours=sum(g.hours for g in healthy),
            extra=sum(g.extra for g in faulty),
        )
