"""Measures detection on labelled runs: each is judged by a bundle that has learned from all the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import pandas as pd

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


QUESTIONS = ("found", "rank", "category", "cause")
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


def graded_table(graded: Sequence[GradedRun]) -> pd.DataFrame:
    """One row per run and set of sources; `without` is "" where nothing was left out, `found` is missing in healthy runs."""
    rows = [{"run": g.name, "fault": g.fault, "without": g.without or "", **msgspec.structs.asdict(g.grade)} for g in graded]
    table = pd.DataFrame(rows)
    table["is_faulty"] = table["found"].notna()
    for name in QUESTIONS:
        table[name] = table[name].eq(True)
    return table


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row per set of sources: how many faulty runs were found, located and named, and how many alarms were false."""
    order = [kind for kind in ("", *SOURCES) if kind in set(table["without"])]
    faulty, healthy = table[table["is_faulty"]].groupby("without"), table[~table["is_faulty"]].groupby("without")
    out = pd.DataFrame({"faulty": faulty.size(), "healthy": healthy.size()}).reindex(order).fillna(0).astype(int)
    for name in QUESTIONS:
        out[name] = faulty[name].sum().reindex(order, fill_value=0)
    out["median_delay_s"] = faulty["delay_s"].median().astype(float).round(2)
    out["false_alarms_faulty"] = faulty["false_alarms"].sum().reindex(order, fill_value=0)
    out["false_alarms_healthy"] = healthy["false_alarms"].sum().reindex(order, fill_value=0)
    out["healthy_hours"] = healthy["hours"].sum().reindex(order, fill_value=0.0).round(4)
    hours = out["healthy_hours"].where(out["healthy_hours"] > 0)
    out["false_alarms_per_hour"] = (out["false_alarms_healthy"] / hours).round(2)
    out["extra"] = faulty["extra"].sum().reindex(order, fill_value=0)
    out = out.rename_axis("without").reset_index()
    return out.assign(without=out["without"].where(out["without"].ne(""), None))


def by_fault(table: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of fault, with all sources there."""
    rows = table[table["is_faulty"] & table["without"].eq("")].groupby("fault")
    out = pd.DataFrame({"runs": rows.size(), **{name: rows[name].sum() for name in QUESTIONS}})
    out["median_delay_s"] = rows["delay_s"].median().astype(float).round(2)
    return out.reset_index()


def records_of(table: pd.DataFrame) -> list[dict[str, object]]:
    """Rows as plain values, None where something is missing."""
    return [{str(k): None if pd.isna(v) else v for k, v in row.items()} for row in table.astype(object).to_dict("records")]
