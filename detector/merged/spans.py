"""Draws what takes time or happens at a moment: steps, phases, collectives, messages and incidents."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import Any

from detector.merged.layout import MOST_LANES, Lanes, Layout, exact_enough, micros
from detector.merged.sampling import PHASES
from detector.merged.writer import Event
from detector.report import Incident
from features.records import Collective, Log, Phase, Step

STEP_NUMBERS = ("epoch", "batch", "loss", "grad_norm", "param_norm", "source")
COLLECTIVE_NUMBERS = ("tensor", "op", "bytes", "fused", "transport", "transfer_s", "source")


class Spans:
    """Draws records one by one, in event order; times count from the start of the run."""

    def __init__(self, layout: Layout, start: float, end: float) -> None:
        """`start` and `end` of the run; what is open is drawn until its end."""
        self.crowded = 0  # spans for which there was no lane
        self._layout, self._start, self._end = layout, start, micros(end - start)
        self._lanes: dict[tuple[int, str], Lanes] = {}
        self._steps: dict[int, tuple[int, int]] = {}  # rank -> end and number of its last step

    def step(self, record: Step) -> Iterator[Event]:
        """A step and inside it its parts, one after the other; it ends at its time and begins after the one before."""
        pid, end = self._layout.rank(record.rank), self._at(record.ts)
        tid = self._layout.thread(pid, "steps")
        args = _known(record, STEP_NUMBERS)
        before, number = self._steps.get(record.rank, (None, None))
        self._steps[record.rank] = (end, record.step)
        length_s = length_of(record)
        if length_s is not None:
            begin = self._at(record.ts - length_s)
            args["duration_s"] = plain(length_s)
        elif before is not None and number is not None and record.step == number + 1:
            begin, args["begins"] = before, "unknown: drawn from the end of the step before"
        else:
            yield self._instant(pid, tid, end, f"step {record.step}", "step", args)
            return
        begin = min(max(begin, before if before is not None else begin), end)
        yield _span(pid, tid, (begin, end), f"step {record.step}", "step", args)
        for name in PHASES:
            part_s = getattr(record, name)
            if part_s is not None:
                until = min(begin + max(micros(part_s), 0), end)
                yield _span(pid, tid, (begin, until), name.removesuffix("_s"), "step", {"s": plain(part_s)})
                begin = until

    def phase(self, record: Phase) -> Iterator[Event]:
        """A validation, a checkpoint, a start or an end."""
        pid, end = self._layout.writer(record.rank, None), self._at(record.ts)
        args = _known(record, ("step", "epoch", "source"))
        if record.duration_s is None or not math.isfinite(record.duration_s):
            yield self._instant(pid, self._layout.thread(pid, "phases"), end, record.kind, "phase", args)
            return
        begin = min(self._at(record.ts - record.duration_s), end)
        tid = self._lane(pid, "phases", begin, end)
        if tid is not None:
            yield _span(pid, tid, (begin, end), record.kind, "phase", args)

    def collective(self, record: Collective) -> Iterator[Event]:
        """A collective with its negotiation and its operation inside, and when each rank was ready for it."""
        pid = self._layout.coordinator() if record.rank is None else self._layout.rank(record.rank)
        begin = self._at(record.ts)
        end = max(self._end if record.end is None else self._at(record.end), begin)
        tid = self._lane(pid, "collectives", begin, end)
        name = f"{record.op} {record.tensor}" + (f" +{record.fused - 1}" if record.fused > 1 else "")
        if tid is not None:
            args = _known(record, COLLECTIVE_NUMBERS) | ({"open": True} if record.end is None else {})
            yield _span(pid, tid, (begin, end), name, "collective", args)
            for part, since, until in parts_of(record, begin, end):
                yield _span(pid, tid, (since, until), part, "collective", {})
        last = max((r.offset_s for r in record.ready), default=0.0)
        for ready in record.ready:
            owner = self._layout.rank(ready.rank)
            told = {"after_s": plain(ready.offset_s), "is_last": ready.offset_s == last}
            at, own_tid = self._at(record.ts + ready.offset_s), self._layout.thread(owner, "readiness")
            yield self._instant(owner, own_tid, at, record.tensor, "readiness", told)

    def message(self, record: Log) -> Iterator[Event]:
        """A message of a log; one without a time stands at the start of the run and says so."""
        pid = self._layout.writer(record.rank, record.node)
        args: dict[str, Any] = {"text": record.text, "source": record.source}
        args |= {"ranks": list(record.ranks)} if record.ranks else {}
        args |= {"fields": dict(record.fields)} if record.fields else {}
        args |= {"time": "unknown"} if record.ts is None else {}
        at = 0 if record.ts is None else self._at(record.ts)
        yield self._instant(pid, self._layout.thread(pid, "messages"), at, record.event, "log", args)

    def incident(self, incident: Incident) -> Iterator[Event]:
        """An incident from its start to its end."""
        pid, begin = self._layout.incidents(), max(self._at(_seconds(incident.start)), 0) if incident.start else 0
        # It ends with its last window, which may reach beyond the run.
        end = self._end if incident.end is None else min(self._at(_seconds(incident.end)), self._end)
        end = max(end, begin)
        tid = self._lane(pid, "incidents", begin, end)
        if tid is not None:
            yield _span(pid, tid, (begin, end), f"{incident.category}/{incident.cause}", "incident", _about(incident))

    def _at(self, seconds: float) -> int:
        return micros(seconds - self._start)

    def _lane(self, pid: int, kind: str, begin: int, end: int) -> int | None:
        lanes = self._lanes.get((pid, kind))
        if lanes is None:
            lanes = self._lanes[pid, kind] = Lanes(MOST_LANES[kind])
        lane = lanes.place(begin, end)
        self.crowded += lane is None
        return None if lane is None else self._layout.thread(pid, kind, lane)

    def _instant(self, pid: int, tid: int, at: int, name: str, cat: str, args: dict[str, Any]) -> Event:
        return Event(ph="i", ts=at, pid=pid, tid=tid, name=name, cat=cat, s="t", args=args)


def length_of(record: Step) -> float | None:
    """Seconds that a step took: as it says, else what its parts take together; None where neither is known."""
    if record.duration_s is not None and math.isfinite(record.duration_s):
        return max(record.duration_s, 0.0)
    parts = [v for name in PHASES if (v := getattr(record, name)) is not None and math.isfinite(v)]
    return max(sum(parts), 0.0) if parts else None


def parts_of(record: Collective, begin: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Negotiation and operation of a collective drawn from `begin` to `end`; what is not over lasts to the end."""
    agreed = end if record.negotiate_s is None else min(begin + micros(record.negotiate_s), end)
    if record.end is None:
        yield "negotiate", begin, agreed
        if record.negotiate_s is not None:
            yield "execute", agreed, end
        return
    started = end if record.execute_s is None else max(end - micros(record.execute_s), begin)
    if record.negotiate_s is not None:
        yield "negotiate", begin, min(agreed, started)
    if record.execute_s is not None:
        yield "execute", started, end


def plain(value: float) -> float | str:
    """A number that JSON can hold, without the noise of its last bits; the others (a loss may be one) as their names."""
    return exact_enough(value) if math.isfinite(value) else str(value)


def _known(record: Step | Phase | Collective, fields: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in fields}
    return {k: plain(v) if isinstance(v, float) else v for k, v in values.items() if v is not None}


def _span(pid: int, tid: int, place: tuple[int, int], name: str, cat: str, args: dict[str, Any]) -> Event:
    return Event(ph="X", ts=place[0], pid=pid, tid=tid, name=name, cat=cat, dur=place[1] - place[0], args=args)


def _about(incident: Incident) -> dict[str, Any]:
    told = incident.model_dump(
        mode="json", include={"id", "title", "cause", "category", "confidence", "severity", "ranks", "nodes", "score", "limit"}
    )
    told |= {"steps": f"{incident.first_step} to {incident.last_step}"} if incident.first_step is not None else {}
    told |= {"is_open": True} if incident.end is None else {}
    return told | {"evidence": [e.text for e in incident.evidence], "fixes": [f.text for f in incident.fixes]}


def _seconds(iso: str) -> float:
    return dt.datetime.fromisoformat(iso).timestamp()
