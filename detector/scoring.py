"""Scores one run: windows, features, verdicts, cases, incidents, report. The same engine serves archives and streams."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from detector.cases import CaseTracker
from detector.catalog import Catalog
from detector.facts import FactFinder
from detector.incidents import incidents_of
from detector.judging import judge_with
from detector.report import ModelSummary, NoticeItem, Report, RunSummary, WindowSummary, iso
from detector.verdicts import walk
from features.extract import Extractor
from features.records import Record
from features.rhythm import window_length
from features.rundir import Progress, RunData, load_run
from features.windows import Window, event_time, windows
from models import Bundle

LATENESS_S = 0.0
"""An archive is in order; a stream allows for more."""


def score_path(path: Path, bundle: Bundle, catalog: Catalog, progress: Progress = lambda _: None) -> Report:
    """Read and score a run directory or a single file. Raises UnreadableRun where nothing can be read."""
    return score_run(load_run(path, progress), bundle, catalog)


def score_run(run: RunData, bundle: Bundle, catalog: Catalog) -> Report:
    """Score a run that has been read."""
    length_s = window_length(run.records)
    engine = Engine(bundle)
    engine.run(windows(run.records, length_s, LATENESS_S))
    memory = engine.extractor.memory
    times = [t for r in run.records if (t := event_time(r)) > 0]
    return Report(
        run=RunSummary(
            id=run.id,
            path=run.path,
            world_size=memory.world_size if memory.world_size is not None else len(memory.ranks) or None,
            nodes=sorted(set(memory.nodes.values())),
            start=iso(min(times, default=None)),
            end=iso(max(times, default=None)),
            steps=_steps(run.records),
            sources=run.sources,
        ),
        model=ModelSummary(id=bundle.id, features=len(bundle.names)),
        windows=WindowSummary(count=engine.count, length_s=length_s, anomalous=engine.anomalous),
        incidents=incidents_of(engine.tracker.finish(), memory, bundle, catalog, run.id),
        notices=[NoticeItem(level=n.level, text=n.text, source=n.source, count=n.count) for n in run.notices.items()],
    )


class Engine:
    """Everything that follows one run from window to window."""

    def __init__(self, bundle: Bundle) -> None:
        self.extractor = Extractor()
        self.tracker = CaseTracker()
        self.count = self.anomalous = 0
        self._facts = FactFinder()
        self._judge = judge_with(bundle)

    def run(self, of: Iterable[Window]) -> None:
        """Judge these windows, in order."""
        for window, frame, verdict in walk(of, self.extractor, self._judge):
            self.count += 1
            self.anomalous += verdict.is_anomalous
            self.tracker.add(frame, verdict, self._facts.of(window, self.extractor.memory))


def _steps(records: Iterable[Record]) -> int | None:
    numbers = {r.step for r in records if type(r).__name__ == "Step"}  # type: ignore[union-attr]
    return len(numbers) or None
