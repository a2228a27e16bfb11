"""Reads a run without keeping its collectives: one pass finds clocks, counts and ends, later ones give all in event order."""

from __future__ import annotations

import hashlib
import heapq
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from detector.merged.sketch import Sketch
from features.clock import align, shift
from features.errors import UnreadableRun
from features.notices import Notice, Notices
from features.parsers.protocol import ParserRow
from features.records import Collective, Record

# Private there, and used here all the same: what is merged has to be what is scored, file for file.
from features.rundir import (
    Progress,
    SourceFile,
    candidates,
    chunks_of,
    merge_records,
    opened,
    printable,
    read_source,
    recognise,
    root_of,
)
from features.snapshots import join_snapshots
from features.windows import event_time

STREAMED = "timeline"
"""The kind of file that grows with every collective; logs and telemetry take a hundredth of it and are kept."""
SLACK_S = 5.0
"""How far the ends of collectives may stand out of order in a file and still be put in order: threads write them."""
MOST_HELD = 50_000
"""Collectives held back for the sake of order; more would not be bounded memory."""


class Timeline(msgspec.Struct):
    """A file that is read again instead of being kept."""

    path: Path
    row: ParserRow
    name: str
    sketch: Sketch
    offset_s: float = 0.0  # added to its times


class Survey(msgspec.Struct):
    """A run whose clocks are aligned; `records` holds all but the finished collectives of timelines, in event order."""

    id: str
    path: str
    files: list[SourceFile]
    timelines: list[Timeline]
    records: list[Record]
    notices: Notices
    clock: list[Notice]  # what alignment found
    shifts: dict[str, float]  # seconds added to the times of a file, where any were

    @property
    def is_absolute(self) -> bool:
        """Whether any source has a clock that starts at the epoch."""
        return any(f.absolute for f in self.files)


def survey(path: Path, progress: Progress = lambda _: None) -> Survey:
    """Read a run directory or a single file once. Raises UnreadableRun where nothing in it can be used."""
    notices, root = Notices(), root_of(path)
    files: list[SourceFile] = []
    timelines: list[tuple[Timeline, SourceFile]] = []
    for candidate in candidates(path):
        found = _surveyed(candidate, root, notices, progress)
        if isinstance(found, tuple):
            timelines.append(found)
            found = found[1]
        files += [found] if found is not None else []
    if not files:
        raise UnreadableRun(
            printable(path),
            expected="a Horovod timeline, training or launcher logs, or telemetry",
            found="; ".join(f"{n.source}: {n.text}" for n in notices.items()[:3]) or "nothing",
            remedy="point at the directory a run wrote, or at one of its files; see docs/inputs.md for what is read",
        )
    join_snapshots(files, notices)
    clock = Notices()
    shifts = _aligned(files, timelines, clock)
    return Survey(
        id=printable(Path(path.resolve().name)),
        path=printable(path),
        files=files,
        timelines=[t for t, _ in timelines],
        records=merge_records(files),
        notices=notices,
        clock=clock.items(),
        shifts=shifts,
    )


def stream(run: Survey, progress: Progress = lambda _: None) -> Iterator[Record]:
    """Every record of the run, about in event order; reads the timelines again."""
    return heapq.merge(run.records, *(_finished(t, progress) for t in run.timelines), key=event_time)


def _surveyed(path: Path, root: Path, notices: Notices, progress: Progress) -> SourceFile | tuple[Timeline, SourceFile] | None:
    row = _kind(path)
    if row is None or row.kind != STREAMED:
        return read_source(path, root, notices, progress)
    name = printable(path.relative_to(root))
    try:
        with opened(path) as file:
            return _sketched(Timeline(path=path, row=row, name=name, sketch=Sketch()), file, notices, progress)
    except OSError as error:
        notices.add("error", f"cannot be read: {error.strerror or type(error).__name__}", file=name)
        return None


def _sketched(timeline: Timeline, file: io.BufferedIOBase, notices: Notices, progress: Progress) -> tuple[Timeline, SourceFile]:
    parser, kept, digest = timeline.row.make(timeline.name, notices), list[Record](), hashlib.sha256()
    for chunk in chunks_of(file, timeline.name, notices):
        digest.update(chunk)
        kept += timeline.sketch.without_finished(parser.feed(chunk))
        progress(timeline.name)
    kept += timeline.sketch.without_finished(parser.finish())
    absolute = bool(getattr(parser, "absolute", True))
    sha256 = digest.hexdigest()
    return timeline, SourceFile(name=timeline.name, kind=timeline.row.kind, sha256=sha256, records=kept, absolute=absolute)


def _kind(path: Path) -> ParserRow | None:
    try:
        with opened(path) as file:
            return recognise(next(chunks_of(file, "", Notices()), b""))
    except OSError:
        return None  # reading says what is the matter


def _aligned(files: list[SourceFile], timelines: list[tuple[Timeline, SourceFile]], clock: Notices) -> dict[str, float]:
    """Align all files as for scoring, with stand-ins for collectives; returns what was added to which file."""
    for timeline, source in timelines:
        source.records = [*timeline.sketch.stand_ins(), *source.records]
    before = {f.name: _first_time(f) for f in files}
    align(files, clock)
    shifts = {}
    for f in files:
        old, new = before[f.name], _first_time(f)
        if old is not None and new is not None and new != old:
            shifts[f.name] = new - old
    for timeline, source in timelines:
        timeline.offset_s = shifts.get(timeline.name, 0.0)
        source.records = source.records[len(timeline.sketch.stand_ins()) :]
    return shifts


def _first_time(f: SourceFile) -> float | None:
    return next((r.ts for r in f.records if r.ts is not None), None)


def _finished(timeline: Timeline, progress: Progress) -> Iterator[Collective]:
    """The finished collectives of a timeline by their end; no more than were there before, should it have grown since."""
    held: list[tuple[float, int, Collective]] = []
    newest, number = float("-inf"), 0
    for record in islice(_again(timeline, progress), timeline.sketch.collectives):
        record = shift(record, timeline.offset_s) if timeline.offset_s else record
        end = event_time(record)
        newest, number = max(newest, end), number + 1
        heapq.heappush(held, (end, number, record))
        while held[0][0] < newest - SLACK_S or len(held) > MOST_HELD:
            yield heapq.heappop(held)[2]
    yield from (item[2] for item in sorted(held))


def _again(timeline: Timeline, progress: Progress) -> Iterator[Collective]:
    told = Notices()  # the first pass has said it all
    parser = timeline.row.make(timeline.name, told)
    with opened(timeline.path) as file:
        for chunk in chunks_of(file, timeline.name, told):
            yield from (r for r in parser.feed(chunk) if isinstance(r, Collective) and r.end is not None)
            progress(timeline.name)
    yield from (r for r in parser.finish() if isinstance(r, Collective) and r.end is not None)
