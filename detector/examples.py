"""Examples to learn from: healthy rows and labelled incidents of one run, also as they look when a source is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from detector.cases import Case
from detector.diagnosis import numbers_of
from detector.evidence import evidence_of
from detector.facts import FactFinder
from detector.labels import Label
from detector.verdicts import HEALTHY, ChannelVerdict, Judge, WindowVerdict, walk
from features.errors import InputError
from features.extract import Extractor, FeatureFrame
from features.records import Collective, Step
from features.rhythm import window_length
from features.rundir import RunData, merge_records
from features.vocabulary import FEATURES, Channel
from features.windows import Window, event_time, windows

SOURCES = ("timeline", "log", "telemetry")
"""Kinds of source that a run may lack."""
BEFORE_S, AFTER_S = 2.0, 5.0
"""A fault may begin before it is noted, and after it the run catches up: rows this near are neither healthy nor faulty."""
CASE_WINDOWS = 120
"""Windows of a labelled fault that describe it; a scorer also judges by the beginning of an incident."""


class RunExamples(msgspec.Struct, frozen=True):
    """What one run teaches, with one set of sources. `rows`: healthy, shape (n_rows, n_features); `blocks`: their windows."""

    name: str
    without: str | None
    files: dict[str, str]
    label: Label
    rows: npt.NDArray[np.float64]
    blocks: npt.NDArray[np.int64]
    evidence: dict[str, float] | None


def without_source(run: RunData, kind: str | None) -> RunData | None:
    """The run as if one kind of source had not been recorded; None where nothing would be left."""
    if kind is None:
        return run
    files = [f for f in run.files if f.kind != kind]
    if not files or len(files) == len(run.files):
        return None
    return RunData(id=run.id, path=run.path, files=files, records=merge_records(files), notices=run.notices)


def examples_of(name: str, run: RunData, label: Label) -> Iterator[RunExamples]:
    """Examples of one run, whole and with each source left out in turn."""
    for kind in (None, *SOURCES):
        part = without_source(run, kind)
        visible = not label.seen_in or kind is None or set(label.seen_in) - {kind}
        if part is not None and visible:
            yield _examples(name, part, label, kind)


def _examples(name: str, run: RunData, label: Label, without: str | None) -> RunExamples:
    extractor, finder = Extractor(), FactFinder()
    case = Case(channel=_channel(label))
    rows: list[npt.NDArray[np.float64]] = []
    blocks: list[int] = []
    # What follows the last step is the end of the run, whether it says so or not.
    last_activity = max((event_time(r) for r in run.records if isinstance(r, (Step, Collective))), default=math.inf)
    cut = windows(run.records, window_length(run.records))
    for window, frame, verdict in walk(cut, extractor, oracle(label)):
        facts = finder.of(window, extractor.memory)
        if verdict.is_anomalous and len(case.frames) < CASE_WINDOWS:
            case.frames.append(frame)
            case.verdicts.append(verdict)
        case.facts += [f for f in facts if not label.is_healthy and f.ts >= _start(label) - 1.0]
        busy = window.end <= last_activity
        if busy and verdict.judged and not verdict.is_anomalous and _is_healthy_row(window, label):
            rows.append(frame.values)
            blocks += [window.index] * len(frame.ranks)
    evidence = None
    if not label.is_healthy and (case.frames or case.facts):
        case.facts.sort(key=lambda f: f.ts)  # as CaseTracker keeps them
        case.is_open = not math.isfinite(label.end)
        numbers, _ = numbers_of(case, extractor.memory)
        evidence = evidence_of(numbers)
    return RunExamples(
        name=name,
        without=without,
        files={f.name: f.sha256 for f in run.files},
        label=label,
        rows=np.concatenate(rows) if rows else np.empty((0, len(FEATURES))),
        blocks=np.array(blocks, dtype=np.int64),
        evidence=evidence,
    )


def _start(label: Label) -> float:
    return -math.inf if label.from_first_step else label.start


def _channel(label: Label) -> Channel:
    category = (label.cause or "").partition("/")[0]
    return {"numerical": "numbers", "memory": "memory"}.get(category, "pace")  # type: ignore[return-value]


def oracle(label: Label) -> Judge:
    """A judge that knows: windows that overlap the labelled fault are anomalous, all others healthy."""
    channel = _channel(label)
    known = ChannelVerdict(score=math.nan, limit=math.nan, ranks=label.ranks, features=())

    def judge(frame: FeatureFrame) -> WindowVerdict:
        if label.is_healthy or frame.end <= _start(label) or frame.start >= label.end:
            return HEALTHY
        return WindowVerdict(channels={channel: known})

    return judge


def _is_healthy_row(window: Window, label: Label) -> bool:
    return label.is_healthy or window.end <= _start(label) - BEFORE_S or window.start >= label.end + AFTER_S


def rows_of(
    examples: Iterable[RunExamples],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.str_], npt.NDArray[np.int64]]:
    """All healthy rows with the run and the window of each; the same window without a source is another window."""
    parts = [e for e in examples if len(e.rows)]
    if not parts:
        raise InputError(
            "healthy training rows",
            expected="runs with healthy windows after their warm-up",
            found="none",
            remedy="train on longer or more healthy runs; to evaluate takes two runs at least",
        )
    x = np.concatenate([e.rows for e in parts])
    groups = np.concatenate([np.full(len(e.rows), e.name) for e in parts])
    blocks = np.concatenate([e.blocks * (len(SOURCES) + 1) + _variant(e) for e in parts])
    return x, groups, blocks


def _variant(e: RunExamples) -> int:
    return 0 if e.without is None else 1 + SOURCES.index(e.without)


def load_examples(path: Path, label: Label, run: RunData) -> list[RunExamples]:
    """Examples of a run that has been read; the directory's name is kept as a name only."""
    return list(examples_of(path.name, run, label))
