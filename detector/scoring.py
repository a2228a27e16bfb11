"""Scores one run: windows, features, verdicts, cases, incidents, report. The same engine serves archives and streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import streaming
from detector.cases import CaseTracker
from detector.catalog import Catalog
from detector.fact import Fact
from detector.facts import FactFinder
from detector.facts_whatif import whatif_facts
from detector.incidents import incidents_of
from detector.judging import judge_with
from detector.pace import own_pace
from detector.report import ModelSummary, NoticeItem, Report, RunSummary, WindowSummary, iso
from detector.verdicts import Walker, WindowVerdict
from features.extract import Extractor
from features.records import Phase, Record, RunInfo, Step
from features.rhythm import window_length
from features.rundir import Progress, RunData, load_run
from features.windows import Window, WindowCutter, event_time
from models import Bundle
from streaming import ListSink, ListSource

LATENESS_S = 0.0
"""An archive is in order; a stream allows for more."""


def score_path(path: Path, bundle: Bundle, catalog: Catalog, progress: Progress = lambda _: None) -> Report:
    """Read and score a run directory or a single file. Raises UnreadableRun where nothing can be read."""
    return score_run(load_run(path, progress), bundle, catalog)


def score_run(run: RunData, bundle: Bundle, catalog: Catalog) -> Report:
    """Score a run that has been read."""
    length_s = window_length(run.records)
    known = [fact for f in run.files if f.ops is not None for fact in whatif_facts(f.ops, f.name, run.notices)]
    engine = Engine(bundle, length_s, known=known)
    streaming.run(ListSource(run.records), engine.handle, ListSink[WindowVerdict]())
    engine.finish()
    if all(isinstance(r, RunInfo | Phase) for r in run.records):
        text = "no step, collective, sample or known message was found: nothing could be judged"
        run.notices.add("warning", text, file=run.path)
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

    def __init__(self, bundle: Bundle, length_s: float, lateness_s: float = LATENESS_S, known: Sequence[Fact] = ()) -> None:
        """`known`: facts that need the whole run, which only an archive has."""
        self.extractor = Extractor()
        self.tracker = CaseTracker()
        self.count = self.anomalous = 0
        self._facts = FactFinder(known)
        self._cutter = WindowCutter(length_s, lateness_s)
        self._walker = Walker(self.extractor, own_pace(judge_with(bundle)))

    def handle(self, records: Sequence[Record]) -> list[WindowVerdict]:
        """Take records in about the order of their event time; returns the verdicts of the windows that they closed."""
        return [v for record in records for window in self._cutter.add(record) for v in [self._judge(window)]]

    def finish(self) -> list[WindowVerdict]:
        """The run is over: judge the windows that are still open."""
        return [self._judge(window) for window in self._cutter.finish()]

    def _judge(self, window: Window) -> WindowVerdict:
        frame, verdict = self._walker.step(window)
        self.count += 1
        self.anomalous += verdict.is_anomalous
        self.tracker.add(frame, verdict, self._facts.of(window, self.extractor.memory))
        return verdict


def _steps(records: Iterable[Record]) -> int | None:
    numbers = {r.step for r in records if isinstance(r, Step)}
    return len(numbers) or None
