"""Wiring: which bundle judges, what `detector.score` returns, and that a bundle does not praise itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import detector
from detector.labels import read_label
from detector.report import Incident, Report
from detector.settings import Settings
from detector.wiring import DEMO_RUN, SHIPPED_BUNDLE, choose_bundle, choose_unseen, demo_run, learned_files, score
from features.errors import BundleError, InputError, UnreadableRun
from features.rundir import load_run
from models import Bundle, write_bundle

LEARNED = "the bundle has learned from this very file: its verdict here proves nothing"


def having_learned(bundle: Bundle, *, seed: int, without: str | None = None) -> Bundle:
    """The bundle as if a run had been left out when it was trained; `seed` makes its id another one."""
    content = bundle.manifest.model_dump(mode="json", by_alias=True, exclude={"id"})
    content["runs"] = [run for run in content["runs"] if run["name"] != without]
    return Bundle(type(bundle.manifest).of({**content, "seed": seed}), bundle.files)


def test_the_face_is_lazy_but_real() -> None:
    assert detector.score is score
    assert detector.Report is Report
    assert detector.Incident is Incident
    with pytest.raises(AttributeError, match="no attribute 'scor'"):
        detector.scor  # noqa: B018 - the look-up is what is tested


def test_score_takes_a_path_or_a_text(job: type, tmp_path: Path) -> None:
    run = job(slow=(1, 150, 300)).write(tmp_path / "run-a")
    report = detector.score(str(run))

    assert report == detector.score(run)
    assert report.run.id == "run-a"
    assert [(i.category, i.cause, i.ranks) for i in report.incidents] == [("compute", "slow-rank", [1])]
    with pytest.raises(UnreadableRun, match="expected a run directory or a file, found nothing"):
        detector.score(tmp_path / "nowhere")


def test_progress_is_told_by_file(job: type, tmp_path: Path) -> None:
    told: list[str] = []
    score(job(steps=20).write(tmp_path), progress=told.append)
    assert told == ["rank0.log", "rank1.log", "rank2.log", "rank3.log"]


def test_option_wins_over_environment_wins_over_the_shipped_bundle(shipped: Bundle, tmp_path: Path) -> None:
    a, b = having_learned(shipped, seed=1), having_learned(shipped, seed=2)
    one, two = write_bundle(tmp_path / "a", a), write_bundle(tmp_path / "b", b)

    assert choose_bundle(None, Settings()).id == shipped.id
    assert choose_bundle(None, Settings(bundle=one)).id == a.id
    assert choose_bundle(two, Settings(bundle=one)).id == b.id


def test_the_environment_names_the_bundle(shipped: Bundle, tmp_path: Path, job: type, monkeypatch: pytest.MonkeyPatch) -> None:
    other = having_learned(shipped, seed=1)
    monkeypatch.setenv("RANKWATCH_BUNDLE", str(write_bundle(tmp_path / "other", other)))
    assert score(job(steps=20).write(tmp_path / "run")).model.id == other.id


def test_a_run_is_judged_by_the_bundle_that_has_not_seen_it(shipped: Bundle, recorded: Path, tmp_path: Path) -> None:
    name = "healthy_np2_conv_b128"
    write_bundle(tmp_path / "family" / "a", having_learned(shipped, seed=1))
    blind = having_learned(shipped, seed=2, without=name)
    write_bundle(tmp_path / "family" / "b", blind)
    run = load_run(recorded / name)

    assert choose_unseen(tmp_path / "family", run).id == blind.id
    assert not learned_files(blind) & {f.sha256 for f in run.files}
    report = score(recorded / name, unseen=tmp_path / "family")
    assert report.model.id == blind.id
    assert LEARNED not in [n.text for n in report.notices]


def test_a_copy_under_another_name_is_the_same_run(shipped: Bundle, recorded: Path, tmp_path: Path) -> None:
    """Content decides, not names; one known file is enough."""
    write_bundle(tmp_path / "family" / "a", having_learned(shipped, seed=1))
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(recorded / "healthy_np2_conv_b128" / "train_rank1.log", copy / "another.log")
    (copy / "more.log").write_text("nothing of interest\n")

    with pytest.raises(BundleError) as refused:
        choose_unseen(tmp_path / "family", load_run(copy))
    assert refused.value.found == "1 bundles, all of which have"
    assert "evaluate RUNS --keep" in refused.value.remedy


def test_a_family_without_bundles_is_an_error_in_words(job: type, tmp_path: Path) -> None:
    run = load_run(job(steps=20).write(tmp_path / "run"))
    with pytest.raises(BundleError, match="found no bundle at all"):
        choose_unseen(tmp_path, run)


def test_a_bundle_says_when_it_knows_the_run(recorded: Path, shipped: Bundle, job: type, tmp_path: Path) -> None:
    known = [n for n in score(recorded / "healthy_np2_conv_b128").notices if n.text == LEARNED]
    assert [(n.level, n.source, n.count) for n in known] == [("info", "launcher.log", 5)]
    assert LEARNED not in [n.text for n in score(job(steps=20).write(tmp_path)).notices]
    assert LEARNED not in [n.text for n in score(recorded / DEMO_RUN).notices], "the demo has to prove something"


def test_the_shipped_bundle_is_whole_and_was_not_trained_on_the_demo(shipped: Bundle) -> None:
    assert SHIPPED_BUNDLE.is_dir()
    assert DEMO_RUN not in {run.name for run in shipped.manifest.runs}
    assert len(shipped.manifest.runs) > 30


def test_the_demo_is_found_beside_the_source_or_where_the_settings_say(tmp_path: Path) -> None:
    found = demo_run(Settings())
    assert found.name == DEMO_RUN
    assert read_label(found) is not None

    (tmp_path / "runs" / DEMO_RUN).mkdir(parents=True)
    assert demo_run(Settings(datasets=tmp_path)) == tmp_path / "runs" / DEMO_RUN
    with pytest.raises(InputError, match="RANKWATCH_DATASETS"):
        demo_run(Settings(datasets=tmp_path / "nowhere"))
