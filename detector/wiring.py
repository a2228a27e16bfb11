"""The composition root: turns settings and options into bundles, catalogs and scored reports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from detector.catalog import load_catalog
from detector.report import NoticeItem, Report
from detector.scoring import score_run
from detector.settings import Settings, read_settings
from features.errors import BundleError, InputError
from features.parsers.steptable_map import StepMap
from features.rundir import Progress, RunData, load_run
from models import Bundle, read_bundle

SHIPPED_BUNDLE = Path(__file__).with_name("bundle")
MANIFEST = "manifest.json"


@cache
def _read(path: Path) -> Bundle:
    return read_bundle(path)


def choose_bundle(option: Path | None, settings: Settings) -> Bundle:
    """The bundle named by the option, else by the environment, else the shipped one."""
    return _read(option if option is not None else settings.bundle or SHIPPED_BUNDLE)


def choose_unseen(family: Path, run: RunData) -> Bundle:
    """The bundle of a directory of bundles that has not learned from any file of this run."""
    digests = {f.sha256 for f in run.files}
    bundles = sorted(p.parent for p in family.glob(f"*/{MANIFEST}"))
    for path in bundles:
        if not digests & learned_files(bundle := _read(path)):
            return bundle
    raise BundleError(
        str(family),
        expected="a bundle that has not learned from this run",
        found=f"{len(bundles)} bundles, all of which have" if bundles else "no bundle at all",
        remedy="write such a family with `rankwatch evaluate RUNS --keep DIR`",
    )


def learned_files(bundle: Bundle) -> set[str]:
    """Checksums of all files that a bundle has learned from."""
    return {digest for run in bundle.manifest.runs for digest in run.files.values()}


def score(
    path: Path | str,
    *,
    bundle: Path | None = None,
    unseen: Path | None = None,
    step_map: StepMap | None = None,
    progress: Progress = lambda _: None,
) -> Report:
    """Score a run directory or a file: what went wrong, since when, on which rank, and what to do.

    `bundle` is a model bundle's directory (default: the shipped one); `unseen` a directory of bundles, of which the one is
    used that has not learned from this run; `step_map` says what the columns of tables of steps are. Raises RankwatchError for
    what cannot be read.
    """
    settings = read_settings()
    run = load_run(Path(path), progress, step_map)
    chosen = choose_unseen(unseen, run) if unseen is not None else choose_bundle(bundle, settings)
    report = score_run(run, chosen, load_catalog())
    known = sorted(f.name for f in run.files if f.sha256 in learned_files(chosen))
    if not known:
        return report
    text = "the bundle has learned from this very file: its verdict here proves nothing"
    seen = NoticeItem(level="info", text=text, source=known[0], count=len(known))
    return report.model_copy(update={"notices": [*report.notices, seen]})


def demo_run(settings: Settings) -> Path:
    """The recorded run that `demo` scores; the shipped bundle has not learned from it."""
    places = [settings.datasets] if settings.datasets is not None else list(_datasets())
    for place in places:
        if (place / "runs" / DEMO_RUN).is_dir():
            return place / "runs" / DEMO_RUN
    raise InputError(
        "demo",
        expected=f"the recorded run {DEMO_RUN} in datasets/runs",
        found="no such directory here or beside the source",
        remedy="run it in a clone of the repository, or name its datasets directory in RANKWATCH_DATASETS",
    )


DEMO_RUN = "slow_data_r1"


def _datasets() -> Iterator[Path]:
    yield Path.cwd() / "datasets"
    yield Path(__file__).resolve().parents[1] / "datasets"
