"""Training a bundle from a handful of runs: what it learns from, that it is the same again, and that it works."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from detector.catalog import Catalog
from detector.examples import SOURCES, RunExamples, examples_of, rows_of
from detector.labels import Label
from detector.scoring import score_run
from detector.training import labelled_rows, train_bundle, usual_deviation_floors
from features.errors import InputError
from features.rundir import RunData, SourceFile, merge_records
from features.vocabulary import FEATURES, INDEX
from models import Bundle

T0 = 1_772_000_000.0
HEALTHY = Label(fault="healthy", accept=("healthy",), ranks=(), world_size=4)


def with_files(run: RunData, name: str) -> RunData:
    """The run as if its log and its telemetry had been read from one file each."""
    logs = [r for r in run.records if type(r).__name__ == "Step"]
    rest = [r for r in run.records if type(r).__name__ != "Step"]
    run.files = [
        SourceFile(name="rank.log", kind="log", sha256=f"{name:a<64}".replace(" ", "b"), records=logs),
        SourceFile(name="host.jsonl", kind="telemetry", sha256=f"{name:c<64}", records=rest),
    ]
    run.records = merge_records(run.files)
    return run


@pytest.fixture(scope="module")
def examples(job: Callable[..., object]) -> list[RunExamples]:
    """Four healthy jobs and one with a slow rank from step 150 on."""
    out: list[RunExamples] = []
    for seed in range(4):
        out += examples_of(f"healthy-{seed}", with_files(job(seed=seed).run(), f"{seed}"), HEALTHY)  # type: ignore[attr-defined]
    sick = job(seed=9, slow=(2, 150, 300))
    began = next(s.ts for s in sick.steps_of_all() if s.step == 150)  # type: ignore[attr-defined]
    label = Label(fault="slow_rank_compute", accept=("compute",), ranks=(2,), world_size=4, start=began)
    return [*out, *examples_of("slow", with_files(sick.run(), "9"), label)]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def trained(examples: list[RunExamples], catalog: Catalog) -> Bundle:
    return train_bundle(examples, catalog, seed=3)


def of(examples: Sequence[RunExamples], name: str, without: str | None = None) -> RunExamples:
    return next(e for e in examples if (e.name, e.without) == (name, without))


def test_each_run_is_learned_whole_and_without_each_source(examples: list[RunExamples]) -> None:
    assert [e.without for e in examples if e.name == "healthy-0"] == [None, "log", "telemetry"]
    assert of(examples, "healthy-0", "log").rows.shape[1] == len(FEATURES)
    steps = of(examples, "healthy-0", "log").rows[:, INDEX["local_vs_peers"]]
    assert np.isnan(steps).all()


def test_rows_near_a_fault_are_neither_healthy_nor_faulty(examples: list[RunExamples]) -> None:
    """A fault may begin before it is noted: the windows of two seconds before it are left out."""
    healthy, sick = of(examples, "healthy-0"), of(examples, "slow")
    began = next(i for i in range(20) if T0 + i + 1 > sick.label.start - 2.0)
    assert {int(b - T0) for b in sick.blocks} == {int(b - T0) for b in healthy.blocks if b - T0 < began}
    assert set(healthy.blocks) > set(sick.blocks)
    assert len(sick.rows) == len(sick.blocks) == 4 * len(set(sick.blocks))


def test_a_labelled_fault_gives_its_evidence(examples: list[RunExamples]) -> None:
    assert of(examples, "healthy-0").evidence is None
    evidence = of(examples, "slow").evidence
    assert evidence is not None
    assert evidence["one_rank_slow"] > 0.5
    assert evidence["local_forward"] > 0.9


def test_a_source_that_alone_shows_the_fault_is_not_taken_away(job: Callable[..., object]) -> None:
    label = Label(fault="nan", accept=("numerical",), ranks=(1,), world_size=4, start=T0 + 5, seen_in=("log",))
    run = with_files(job(nan=(1, 150)).run(), "5")  # type: ignore[attr-defined]
    assert [e.without for e in examples_of("nan", run, label)] == [None, "telemetry"]


def test_windows_of_runs_and_variants_are_told_apart(examples: list[RunExamples]) -> None:
    x, groups, blocks = rows_of(examples)
    assert len(x) == len(groups) == len(blocks)
    assert set(groups) == {*(f"healthy-{i}" for i in range(4)), "slow"}
    assert len(set(blocks % (len(SOURCES) + 1))) == 3


def test_nothing_healthy_is_an_error_in_words(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="healthy windows"):
        train_bundle([], catalog)


def test_tails_widen_what_is_usual() -> None:
    x = np.zeros((1000, len(FEATURES)))
    column = INDEX["iowait"]
    x[:20, column] = 0.9
    x[:, INDEX["steal"]] = np.nan

    floors = usual_deviation_floors(x)
    assert floors[column] == pytest.approx(0.3)
    others = [f.floor for f in FEATURES if f.name != "iowait"]
    assert np.delete(floors, column).tolist() == others


def test_recorded_incidents_weigh_more_than_simulated_ones(examples: list[RunExamples], catalog: Catalog) -> None:
    rows = labelled_rows(examples, catalog, seed=3)
    real = [i for i, cause in enumerate(rows.groups) if not str(cause).startswith("simulated")]
    assert [rows.causes[i] for i in real] == ["compute/slow-rank"] * 3
    assert len({str(rows.groups[i]) for i in real}) == 1, "variants of a run are never split between folds"
    assert rows.weights is not None
    assert min(rows.weights[i] for i in real) > 4 * max(np.delete(rows.weights, real))


@pytest.mark.slow
def test_a_bundle_says_what_it_has_learned_from(trained: Bundle, examples: list[RunExamples]) -> None:
    runs = {run.name: run for run in trained.manifest.runs}
    assert {name: run.role for name, run in runs.items()} == {
        **{f"healthy-{i}": "healthy" for i in range(4)},
        "slow": "labelled",
    }
    assert runs["slow"].files == of(examples, "slow").files
    assert trained.names == tuple(f.name for f in FEATURES)
    assert (trained.manifest.seed, trained.manifest.limit.rate) == (3, 0.003)


@pytest.mark.slow
def test_a_bundle_of_four_runs_finds_a_fault_it_has_not_seen(
    trained: Bundle, job: Callable[..., object], catalog: Catalog
) -> None:
    healthy = score_run(job(seed=21).run(), trained, catalog)  # type: ignore[attr-defined]
    assert [i for i in healthy.incidents if i.severity != "info"] == []

    (incident,) = score_run(job(seed=22, slow=(1, 120, 300)).run(), trained, catalog).incidents  # type: ignore[attr-defined]
    assert (incident.category, incident.cause, incident.ranks) == ("compute", "slow-rank", [1])


@pytest.mark.slow
def test_the_same_examples_give_the_same_bytes(trained: Bundle, examples: list[RunExamples], catalog: Catalog) -> None:
    again = train_bundle(examples, catalog, seed=3)
    assert (again.id, again.files) == (trained.id, trained.files)
