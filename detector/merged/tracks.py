"""Turns the records of a run into trace events, as many as the plan allows, and counts what was found and drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from detector.merged.counters import Counters, Sample, weight_of_sample
from detector.merged.layout import Layout
from detector.merged.sampling import Plan, Thinner, weight_of_collective, weight_of_step
from detector.merged.spans import Spans
from detector.merged.writer import Event
from detector.report import Incident
from features.records import Collective, Cycles, Gpu, Host, Log, Net, Phase, Process, Record, RunInfo, Step

SAMPLES = (Process, Host, Gpu, Net, Cycles)


class Tracks:
    """Takes records in about the order of their event time."""

    def __init__(self, layout: Layout, start: float, end: float, plan: Plan) -> None:
        """`start` and `end` are those of the run, in seconds since the epoch."""
        self._layout, self._spans, self._counters = layout, Spans(layout, start, end), Counters(layout, start)
        self._collectives, self._steps, self._samples = (Thinner(p) for p in (plan.collectives, plan.others, plan.others))
        self._whole: Counter[str] = Counter()

    def draw(self, records: Iterable[Record]) -> Iterator[Event]:
        """The events of these records."""
        for record in records:
            events = list(self._of(record))
            yield from self._layout.news()
            yield from events

    def draw_incidents(self, incidents: Iterable[Incident]) -> Iterator[Event]:
        """The events of the incidents of the run."""
        for incident in sorted(incidents, key=lambda i: (i.end is None, i.end, i.start, i.id)):
            self._whole["incidents"] += 1
            events = list(self._spans.incident(incident))
            yield from self._layout.news()
            yield from events

    def found_and_drawn(self) -> dict[str, dict[str, int]]:
        """How many of each kind there were, and how many were drawn."""
        thinned = {"collectives": self._collectives, "steps": self._steps, "samples": self._samples}
        counts = {name: {"found": t.seen, "drawn": t.passed} for name, t in thinned.items()}
        whole = {name: {"found": self._whole[name], "drawn": self._whole[name]} for name in ("messages", "phases", "incidents")}
        return counts | whole

    @property
    def crowded(self) -> int:
        """Spans that were not drawn since too many overlap."""
        return self._spans.crowded

    def _of(self, record: Record) -> Iterable[Event]:
        if isinstance(record, Collective):
            return self._collective(record)
        if isinstance(record, Step):
            drawn = list(self._spans.step(record))  # drawn or not: the next one begins after it
            return drawn if self._steps.passes((record.rank, weight_of_step(record))) else ()
        if isinstance(record, SAMPLES):
            passed = self._samples.passes((_whose(record), weight_of_sample(record)))
            return self._counters.draw(record) if passed else ()
        return self._rare(record)

    def _collective(self, record: Collective) -> Iterable[Event]:
        if record.end is None:  # it tells of a stall or a crash, and there are few
            self._collectives.seen += 1
            self._collectives.passed += 1
            return self._spans.collective(record)
        return self._spans.collective(record) if self._collectives.passes(weight_of_collective(record)) else ()

    def _rare(self, record: RunInfo | Phase | Log) -> Iterable[Event]:
        if isinstance(record, RunInfo):
            return ()  # it is in otherData
        self._whole["phases" if isinstance(record, Phase) else "messages"] += 1
        return self._spans.phase(record) if isinstance(record, Phase) else self._spans.message(record)


def _whose(record: Sample) -> tuple[str, str]:
    return type(record).__name__, "/".join(str(getattr(record, name, "")) for name in ("rank", "node", "gpu", "device"))


class Weights(NamedTuple):
    """How many events draw some records, at most."""

    fixed: int  # what is always drawn
    collectives: int
    others: int  # steps and samples


def weights(records: Iterable[Record]) -> Weights:
    """What it takes to draw these records."""
    fixed = collectives = others = 0
    for record in records:
        if isinstance(record, Step):
            others += weight_of_step(record)
        elif isinstance(record, SAMPLES):
            others += weight_of_sample(record)
        elif isinstance(record, Collective) and record.end is not None:
            collectives += weight_of_collective(record)
        elif isinstance(record, Collective):
            fixed += weight_of_collective(record)
        else:
            fixed += not isinstance(record, RunInfo)
    return Weights(fixed, collectives, others)
