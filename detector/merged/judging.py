"""Scores a run while it streams by: the incidents are those of `rankwatch score`, without its list of all records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from detector.catalog import Catalog
from detector.incidents import incidents_of
from detector.report import Incident
from detector.scoring import Engine
from features.records import Record, Step
from features.rhythm import window_length
from features.windows import event_time
from models import Bundle

BEGINNING = 200_000
"""Records looked at for the rhythm of a run whose logs do not tell the length of its steps."""


class Judge:
    """Takes the records of one run in event order."""

    def __init__(self, bundle: Bundle, catalog: Catalog, run_id: str, length_s: float) -> None:
        """`length_s` is the length of its windows."""
        self.late = 0  # records that came after their window was judged
        self._bundle, self._catalog, self._run_id, self._length_s = bundle, catalog, run_id, length_s
        self._engine = Engine(bundle, length_s)
        self._window = -math.inf

    def take(self, records: Sequence[Record]) -> None:
        """Judge what they complete."""
        for record in records:
            window = math.floor(event_time(record) / self._length_s)
            self.late += window < self._window
            self._window = max(self._window, window)
        self._engine.handle(records)

    def incidents(self) -> list[Incident]:
        """The run is over: its incidents, most serious first."""
        engine = self._engine
        engine.finish()
        return incidents_of(engine.tracker.finish(), engine.extractor.memory, self._bundle, self._catalog, self._run_id)


def length_of_windows(kept: Iterable[Record], stream: Callable[[], Iterable[Record]]) -> float:
    """The window length that scoring would choose; `kept` are all records but collectives, `stream` gives all of them.

    Where steps tell their length collectives do not matter.
    """
    records = list(kept)
    if any(isinstance(r, Step) and r.duration_s is not None for r in records):
        return window_length(records)
    return window_length(islice(stream(), BEGINNING))
