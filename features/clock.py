"""One clock: brings timeline, logs and telemetry onto one UTC axis, and says what had to be estimated and how surely."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from features.measures.table import Vector
from features.notices import Notices
from features.parsers.flightrecorder import lay_together
from features.records import Collective, Process, Record, Step

if TYPE_CHECKING:
    from features.rundir import SourceFile

BACKWARD_S = 1.0
"""A clock that goes back by more than this has jumped; less is buffering."""
LONGEST_STEP_S = 3600.0
"""A step that claims to have lasted longer is misprinted or damaged; nothing is moved by it."""
RANK_SKEW_S = 0.5
"""Ranks of one synchronous step finish within milliseconds; a steady distance beyond this is their clocks'."""
FEWEST = 8
"""Steps needed to estimate an offset."""
EXACT_S = 1e-5
"""Matches that are nearer than this differ by the rounding of their times."""

R = TypeVar("R", bound=Record)


def align(files: list[SourceFile], notices: Notices) -> None:
    """Shift the records of `files` in place so that all share the clock of the lowest rank's log.

    Order: jumps inside a log, then logs against each other, then the timeline, then telemetry. Every shift is a notice. Logs
    that know no date take it from a source that does.
    """
    for f in files:
        if f.kind == "log":
            _mend_jumps(f, notices)
    _align_ranks([f for f in files if f.kind == "log"], notices)
    _date_logs(files, notices)
    logs = _step_ends(files)
    for f in files:
        if f.kind == "timeline" or (f.kind == "trace" and not f.absolute):
            _align_timeline(f, logs, files, notices)
    for f in files:
        if f.kind == "telemetry":
            _align_telemetry(f, files, notices)
    dumps = [f for f in files if f.kind == "flightrecorder"]
    for f, records in zip(dumps, lay_together([f.records for f in dumps]), strict=True):
        f.records = records


def shift(record: R, by_s: float) -> R:
    """The same record, `by_s` seconds later."""
    if record.ts is None:
        return record
    changes = {"ts": record.ts + by_s}
    if isinstance(record, Collective) and record.end is not None:
        changes["end"] = record.end + by_s
    return msgspec.structs.replace(record, **changes)


def _shift_all(f: SourceFile, by_s: float) -> None:
    f.records = [shift(r, by_s) for r in f.records]


def _mend_jumps(f: SourceFile, notices: Notices) -> None:
    """A log whose step numbers go on while its clock goes back: later lines are moved to follow."""
    moved: dict[int, float] = defaultdict(float)
    newest: dict[int, Step] = {}
    out: list[Record] = []
    whose = _writer(f)
    for record in f.records:
        rank = _clock_of(record, whose)
        if isinstance(record, Step):
            rank = record.rank
            before = newest.get(rank)
            now = shift(record, moved[rank]) if moved[rank] else record
            if before is not None and record.step > before.step and now.ts < before.ts - BACKWARD_S:
                lasted = record.duration_s if record.duration_s is not None else 0.0
                jump = before.ts + (lasted if 0.0 <= lasted <= LONGEST_STEP_S else 0.0) - now.ts
                moved[rank] += jump
                now = shift(now, jump)
                text = f"clock of rank {rank} goes back by about {jump:.1f} s; later times are moved to follow"
                notices.add("warning", text, file=f.name, place=record.source.rpartition(":")[2])
            newest[rank] = now
            out.append(now)
        else:
            by = moved.get(rank, 0.0) if rank is not None else 0.0
            out.append(shift(record, by) if by else record)
    f.records = out


def _writer(f: SourceFile) -> int | None:
    """The rank whose log this is; None for one of several ranks."""
    ranks = {r.rank for r in f.records if isinstance(r, Step)}
    return ranks.pop() if len(ranks) == 1 else None


def _clock_of(record: Record, writer: int | None) -> int | None:
    """The rank by whose clock a record was written: its own, or else that of the log's only rank."""
    rank: int | None = getattr(record, "rank", None)
    return writer if rank is None else rank


def _ends_by_rank(files: list[SourceFile]) -> dict[int, dict[int, float]]:
    ends: dict[int, dict[int, float]] = defaultdict(dict)
    for f in files:
        for r in f.records:
            if isinstance(r, Step):
                ends[r.rank].setdefault(r.step, r.ts)
    return ends


def _align_ranks(logs: list[SourceFile], notices: Notices) -> None:
    """Logs of ranks against the lowest rank's: all ranks leave the collectives of a step together."""
    ends = _ends_by_rank(logs)
    if len(ends) < 2:
        return
    first = ends[min(ends)]
    offsets: dict[int | None, float] = {}
    for rank, steps in ends.items():
        shared = sorted(set(steps) & set(first))
        if len(shared) >= FEWEST:
            differences = np.array([steps[k] - first[k] for k in shared])
            offset = float(np.median(differences))
            if abs(offset) > RANK_SKEW_S and float(np.median(np.abs(differences - offset))) < abs(offset) / 4:
                offsets[rank] = offset
    for f in logs if offsets else []:
        whose = _writer(f)
        f.records = [shift(r, -offsets.get(_clock_of(r, whose), 0.0)) for r in f.records]
    for rank, offset in sorted((r, o) for r, o in offsets.items() if r is not None):
        text = f"clock of rank {rank} is {offset:+.3f} s from that of rank {min(ends)}: times corrected"
        notices.add("warning", text, file="logs")


def _date_logs(files: list[SourceFile], notices: Notices) -> None:
    """Logs without a date are laid on a source that has one: a moment that means something is never given up."""
    logs = [f for f in files if f.kind == "log"]
    steps = _step_ends(logs)
    if not len(steps) or any(f.absolute for f in logs):
        return
    by, text = math.nan, ""
    for f in files:
        estimate = estimate_offset(steps[:2000], _bursts(f)[:2000]) if f.kind == "timeline" and f.absolute else None
        if estimate is not None:
            by, text = -estimate[0], f"taken from {f.name}, matched within {estimate[1] * 1000:.0f} ms"
            break
    else:
        own = [r.ts for f in files if f.kind == "telemetry" and f.absolute for r in f.records if isinstance(r, Process)]
        if own:
            by = min(own) - min(r.ts for f in logs for r in f.records if r.ts is not None)
            text = "laid at the start of the processes, uncertain by seconds"
    if text:
        for f in logs:
            _shift_all(f, by)
            f.absolute = True
        notices.add("warning", f"no date in the logs: {text}", file="logs")


def _step_ends(files: list[SourceFile]) -> Vector:
    ends = _ends_by_rank([f for f in files if f.kind == "log"])
    return np.array(sorted(ends[min(ends)].values())) if ends else np.array([])


def _bursts(f: SourceFile) -> Vector:
    """Ends of the most used tensor's collectives: once a step."""
    done = [r for r in f.records if isinstance(r, Collective) and r.end is not None]
    if not done:
        return np.array([])
    tensor, _ = Counter(r.tensor for r in done).most_common(1)[0]
    return np.array(sorted(r.end for r in done if r.tensor == tensor and r.end is not None))


def estimate_offset(steps: Vector, bursts: Vector) -> tuple[float, float] | None:
    """Seconds to add to `bursts` so that they fall on `steps`, and how far apart matched pairs then still are (s).

    The k-th step is matched with the (k+s)-th burst; the shift s whose intervals agree best wins. Even steps agree at many
    shifts: of those that chance cannot tell from the best, the one with most pairs wins. None where too few.
    """
    found: list[tuple[int, int, float, float]] = []  # pairs, -|s|, offset, spread
    n = min(len(steps), len(bursts))
    if n < FEWEST:
        return None
    for s in range(-(len(steps) - FEWEST), len(bursts) - FEWEST + 1):
        a, b = steps[max(0, -s) :], bursts[max(0, s) :]
        m = min(len(a), len(b))
        if m < max(FEWEST, n // 2):
            continue
        differences = a[:m] - b[:m]
        offset = float(np.median(differences))
        spread = float(np.mean(np.minimum(np.abs(differences - offset), 1.0)))
        found.append((m, -abs(s), offset, spread))
    enough = min(spread for *_, spread in found) * (1.0 + 2.0 / math.sqrt(n)) + EXACT_S
    *_, offset, spread = max(match for match in found if match[-1] <= enough)
    return offset, spread


def _align_timeline(f: SourceFile, steps: Vector, files: list[SourceFile], notices: Notices) -> None:
    bursts = _bursts(f)
    if f.absolute:
        apart = len(steps) and len(bursts) and (bursts[-1] < steps[0] or bursts[0] > steps[-1])
        if not apart:
            return
    estimate = estimate_offset(steps[:2000], bursts[:2000])
    if estimate is None:
        if not f.absolute:
            _place_roughly(f, files, notices)
        return
    offset, spread = estimate
    _shift_all(f, offset)
    text = f"clock estimated from the steps of the log: {offset:+.3f} s added, matched within {spread * 1000:.0f} ms"
    notices.add("info" if not f.absolute else "warning", text, file=f.name)


def _place_roughly(f: SourceFile, files: list[SourceFile], notices: Notices) -> None:
    """No steps to match with: the timeline's start goes to the start of whatever has a clock."""
    others = [r.ts for g in files if g is not f and g.absolute for r in g.records if r.ts]
    own = [r.ts for r in f.records if r.ts is not None]
    if others and own:
        _shift_all(f, min(others) - min(own))
        notices.add("warning", "no absolute clock and no steps to match: laid at the start of the other sources", file=f.name)
    else:
        notices.add("info", "no absolute clock: times count from an unknown start", file=f.name)


def _align_telemetry(f: SourceFile, files: list[SourceFile], notices: Notices) -> None:
    """Telemetry that does not overlap the logs at all has another clock; its ranks' start is laid on theirs."""
    own = [r.ts for r in f.records if isinstance(r, Process)] or [r.ts for r in f.records if r.ts is not None]
    logs = [r.ts for g in files if g.kind == "log" for r in g.records if r.ts]
    if not own or not logs or (min(own) <= max(logs) and max(own) >= min(logs)):
        return
    by = min(logs) - min(own)
    if math.isfinite(by):
        _shift_all(f, by)
        notices.add("warning", f"clock does not overlap the logs': {by:+.1f} s added, uncertain by seconds", file=f.name)
