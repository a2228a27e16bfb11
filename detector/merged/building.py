"""Makes one trace of a run: surveys it, plans how much is drawn, then draws and scores it in one pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from detector.catalog import load_catalog
from detector.merged.counters import Counters
from detector.merged.judging import Judge, length_of_windows
from detector.merged.layout import Layout
from detector.merged.reading import Survey, stream, survey
from detector.merged.sampling import MAX_EVENTS, Plan, plan
from detector.merged.spans import length_of
from detector.merged.tracks import SAMPLES, Tracks, weights
from detector.merged.writer import SCHEMA, TraceWriter
from detector.report import iso
from features.errors import SettingsError
from features.notices import Notice
from features.records import Phase, Record, RunInfo, Step
from features.rundir import Progress
from features.windows import event_time
from models import Bundle

BATCH = 4096
"""Records that are drawn and judged at a time."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace holds."""

    events: int  # lines of the file, names of tracks included
    counts: dict[str, dict[str, int]]  # kind -> how many were found and drawn
    is_whole: bool  # nothing was left out for want of room
    max_events: int
    notices: list[Notice]


def write_trace(
    path: Path,
    out: Path,
    *,
    bundle: Bundle | None,
    max_events: int = MAX_EVENTS,
    progress: Progress = lambda _: None,
) -> Summary:
    """Write a run directory or a single file of it as one trace to `out`, compressed where that ends in .gz.

    `bundle` judges the run; without one the trace has no incidents. Raises UnreadableRun where nothing can be read, and
    SettingsError where `out` would be taken for a part of the run.
    """
    check_place(out, path)
    run = survey(path, progress)
    start, end = extent(run)
    layout, chosen = _layout(run), _plan(run, start, max_events)
    tracks = Tracks(layout, start, end, chosen)
    judge = None
    if bundle is not None:
        length_s = length_of_windows(run.records, lambda: stream(run))
        judge = Judge(bundle, load_catalog(), run.id, length_s)
    with TraceWriter(out) as writer:
        for batch in _batches(stream(run, progress)):
            writer.write(tracks.draw(batch))
            if judge is not None:
                judge.take(batch)
        if judge is not None:
            writer.write(tracks.draw_incidents(judge.incidents()))
        notices = [*run.notices.items(), *_drawing_notices(tracks, judge)]
        counts = tracks.found_and_drawn()
        about = _about(run, start, end) | {"counts": counts, "notices": [_told(n) for n in notices]}
        about["sampling"] = {
            "max_events": max_events,
            "is_whole": chosen.is_whole,
            "evenly": ["collectives", "steps", "samples"],
        }
        about["model"] = None if bundle is None else bundle.id
        writer.close(about)
    return Summary(events=writer.written, counts=counts, is_whole=chosen.is_whole, max_events=max_events, notices=notices)


def check_place(out: Path, path: Path) -> None:
    """Refuse, before any work, what cannot be written, and a place where the trace would be read as a part of the run."""
    if not out.parent.is_dir():
        remedy = "make it, or write somewhere else"
        raise SettingsError("--out", expected="a file in a directory that exists", found=str(out), remedy=remedy)
    if out.resolve().is_relative_to(path.resolve()):
        raise SettingsError(
            "--out",
            expected="a place outside of the run",
            found=str(out),
            remedy="write it beside the run directory: what is inside is read as a part of the run",
        )


def extent(run: Survey) -> tuple[float, float]:
    """When the run began and ended, in seconds since the epoch."""
    begins = [begin_of(r) for r in run.records if not isinstance(r, RunInfo) and r.ts is not None]
    ends = [event_time(r) for r in run.records if not isinstance(r, RunInfo) and r.ts is not None]
    for t in run.timelines:
        if t.sketch.first is not None and t.sketch.last is not None:
            begins.append(t.sketch.first + t.offset_s)
            ends.append(t.sketch.last + t.offset_s)
    return min(begins, default=0.0), max(ends, default=0.0)


def begin_of(record: Record) -> float:
    """When what a record tells of began."""
    at = 0.0 if record.ts is None else record.ts
    took: float | None = None
    if isinstance(record, Step):
        took = length_of(record)
    elif isinstance(record, Phase):
        took = record.duration_s
    elif isinstance(record, SAMPLES):
        took = getattr(record, "interval_s", None)
    return at - took if took is not None and math.isfinite(took) and took > 0 else at


def _layout(run: Survey) -> Layout:
    ranks = {rank for t in run.timelines for rank in t.sketch.ranks}
    nodes: set[str] = set()
    node_of: dict[int, str] = {}
    for record in run.records:
        if isinstance(record, RunInfo):
            node_of |= record.nodes
            continue
        rank, node = getattr(record, "rank", None), getattr(record, "node", None)
        ranks |= {rank} if rank is not None else set()
        nodes |= {node} if node is not None else set()
        ranks.update(ready.rank for ready in getattr(record, "ready", ()))
        if rank is not None and node is not None:
            node_of.setdefault(rank, node)
    return Layout(ranks, nodes, node_of)


def _plan(run: Survey, start: float, max_events: int) -> Plan:
    fixed, collectives, others = weights(run.records)
    collectives += sum(t.sketch.weight for t in run.timelines)
    scratch = Counters(_layout(run), start)
    most = sum(1 for r in run.records if isinstance(r, SAMPLES) for _ in scratch.draw(r))
    steps = weights(r for r in run.records if isinstance(r, Step)).others
    if fixed + collectives + steps + most <= max_events:
        return Plan()
    return plan(max_events, fixed=fixed, collectives=collectives, others=others)


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    rest = iter(records)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _about(run: Survey, start: float, end: float) -> dict[str, Any]:
    settings: dict[str, str] = {}
    world_size: int | None = None
    for record in run.records:
        if isinstance(record, RunInfo):
            settings |= record.settings
            world_size = record.world_size if record.world_size is not None else world_size
    return {
        "schema": SCHEMA,
        "run": {"id": run.id, "world_size": world_size, "settings": dict(sorted(settings.items()))},
        "sources": {f.name: f.kind for f in run.files},
        "start": iso(start) if run.is_absolute else None,
        "start_epoch_us": round(start * 1e6) if run.is_absolute else None,
        "length_s": round(end - start, 6),
        "clock": {"added_s": {k: round(v, 6) for k, v in run.shifts.items()}, "notices": [_told(n) for n in run.clock]},
    }


def _drawing_notices(tracks: Tracks, judge: Judge | None) -> Iterator[Notice]:
    if tracks.crowded:
        yield Notice("warning", "more spans at once than a viewer has lanes for: not drawn", "trace", tracks.crowded)
    if judge is not None and judge.late:
        yield Notice("warning", "records too far out of order to be judged", "trace", judge.late)


def _told(notice: Notice) -> str:
    times = f" ({notice.count} times)" if notice.count > 1 else ""
    return f"{notice.level}: {notice.source}: {notice.text}{times}"
