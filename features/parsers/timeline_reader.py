"""Reads the events of a Horovod timeline by leaps where a stretch is sound, one by one where it is not."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import msgspec
import numpy as np

from features.parsers.timeline_bulk import (
    AGREED,
    OUTER,
    Groups,
    Parts,
    Stretch,
    grouped,
    parts,
    ready,
    stretch,
    unticked,
)
from features.parsers.timeline_job import EPOCH_KEY, JUMP_US, PROCESS_NAME, Job
from features.parsers.timeline_ledger import Ledger
from features.parsers.timeline_lex import MARK, META, TOLD, Columns, Ints, Vocabulary, lex
from features.parsers.timeline_scan import Event, Meta
from features.parsers.timeline_state import (
    ERROR,
    MICROS,
    NEGOTIATE,
    NEGOTIATION_ONLY,
    Spans,
    Tensor,
    library_of,
    loose,
    op_of,
)
from features.records import Collective, Ready, Record

MIN_RECORDS = 64  # a leap over fewer is not worth its cost
NOT_PLAIN: Final = 7  # a span that a leap does not understand
_META: msgspec.json.Decoder[Meta] = msgspec.json.Decoder(Meta)


class Reader:
    """The sink of a scanner: fills a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger` takes what comes of the events."""
        self._ledger, self._job = ledger, Job(ledger)
        self._vocabulary, self._classify = Vocabulary(), Spans()
        self._spans: Ints = np.empty(0, np.int64)  # what each code of the vocabulary is

    @property
    def idle(self) -> bool:
        """Whether no tensor is in a collective."""
        return not self._ledger.busy

    def run(self, events: list[Event]) -> None:
        """Take these events one by one."""
        self._job.run(events)

    def run_until_idle(self, events: list[Event]) -> int:
        """Take events until no tensor is in a collective; how many it took."""
        return self._job.run_until_idle(events)

    def leap(self, buf: bytes, base: int, limit: int) -> int:
        """Take the sound stretch that begins at `base`, up to its last quiet moment; `base` if there is none."""
        text = buf[base:limit]
        columns = lex(text, self._vocabulary)
        if columns is None:
            return base
        self._learn()
        columns, names = self._names(text, columns)
        events = stretch(columns, self._spans)
        if events is None or events.size < MIN_RECORDS:
            return base
        fresh = self._fresh(columns, events, names)
        marks = np.flatnonzero(columns.kind[: events.size] == MARK)
        if fresh is None or not self._timely(columns, events, marks):
            return base
        told = parts(columns, events, self._spans)
        sizes = self._sizes(text, columns, told)
        groups = grouped(columns, events, told)
        arrivals = None if groups is None else ready(columns, events, told, groups)
        if groups is None or arrivals is None or sizes is None:
            return base
        self._ledger.tensors.update(fresh)
        self._count(columns, events)
        done = self._records(columns, told, groups, (sizes, arrivals))
        cycles = self._ledger.cycles.extend(columns.ts[marks].tolist())
        at = marks.tolist()
        done += [(at[number], record) for number, record in cycles]
        done.sort(key=itemgetter(0))
        self._ledger.emit_all([record for _, record in done])
        return base + int(columns.stop[events.size - 1])

    def _learn(self) -> None:
        """Classify the names that the vocabulary has learned."""
        names = self._vocabulary.names
        if len(names) > len(self._spans):
            self._spans = np.array([self._span(name) for name in names], np.int64)

    def _span(self, name: str) -> int:
        if name == ERROR or op_of(name.removeprefix(NEGOTIATE)) in NEGOTIATION_ONLY:
            return NOT_PLAIN
        return self._classify[name]

    def _names(self, text: bytes, columns: Columns) -> tuple[Columns, dict[int, tuple[int, Tensor]]]:
        """New tensors by pid, with the number of the record; the columns up to a record that says anything else."""
        names: dict[int, tuple[int, Tensor]] = {}
        for number in np.flatnonzero(columns.kind == META).tolist():
            if not self._name(text[columns.start[number] : columns.stop[number]], number, names):
                return Columns(*(column[:number] for column in columns)), names
        return columns, names

    def _name(self, raw: bytes, number: int, names: dict[int, tuple[int, Tensor]]) -> bool:
        try:
            meta = _META.decode(raw)
            args = loose(raw_args := bytes(meta.args))
            raw_args.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if meta.name != PROCESS_NAME:
            return True
        name = args.get("name")
        if EPOCH_KEY in args or not isinstance(name, str) or meta.pid in names or meta.pid in self._ledger.tensors:
            return False
        names[meta.pid] = number, Tensor(meta.pid, name, named=True)
        return True

    def _fresh(self, columns: Columns, events: Stretch, names: dict[int, tuple[int, Tensor]]) -> dict[int, Tensor] | None:
        """The tensors named in the stretch; None if any begins before it has a name."""
        pids = columns.pid[events.where]
        first = np.flatnonzero(np.diff(pids, prepend=-1))
        for pid, number in zip(pids[first].tolist(), events.where[first].tolist(), strict=True):
            if pid not in self._ledger.tensors and (pid not in names or names[pid][0] > number):
                return None
        return {pid: tensor for pid, (number, tensor) in names.items() if number < events.size}

    def _timely(self, columns: Columns, events: Stretch, marks: Ints) -> bool:
        """Whether time runs forwards, so that nothing needs to be said of it."""
        ts = columns.ts[: events.size][columns.kind[: events.size] != META].astype(np.float64)
        latest = np.maximum(np.maximum.accumulate(ts), self._ledger.latest)
        last = self._ledger.cycles.last
        forwards = bool((np.diff(columns.ts[marks]) >= 0).all())
        if len(marks) and last is not None:
            forwards = forwards and last <= int(columns.ts[marks[0]])
        return forwards and bool((ts >= latest - JUMP_US).all())

    def _count(self, columns: Columns, events: Stretch) -> None:
        ledger = self._ledger
        outer = OUTER[events.step]
        if outer.any():
            ledger.latest = max(ledger.latest, float(columns.ts[events.where[outer]].max()))
        silent = unticked(events)
        ledger.without_ticks += silent
        ledger.with_ticks += int((events.step == AGREED).sum()) - silent

    def _sizes(self, text: bytes, columns: Columns, told: Parts) -> list[int | None] | None:
        """Bytes of each part; None if the args of any are no JSON."""
        at = told.done_at
        stops = np.where(columns.kind[at] == TOLD, columns.stop[at] - 1, columns.args[at])
        rows = zip(columns.args[at].tolist(), stops.tolist(), strict=True)
        sizes = self._ledger.sizes
        try:
            return [sizes[text[start:stop]] for start, stop in rows]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _records(
        self, columns: Columns, told: Parts, groups: Groups, more: tuple[list[int | None], list[tuple[Ready, ...]]]
    ) -> list[tuple[int, Record]]:
        """Each group's record with the number of the record that completes it."""
        ledger, names = self._ledger, self._vocabulary.names
        ops, libraries = [op_of(name) for name in names], [library_of(name) for name in names]
        sizes, arrivals = more
        tensors, epoch_us = ledger.tensors, ledger.epoch_us
        pids = columns.pid[told.began_at[groups.first]].tolist()
        codes = columns.code[told.began_at[groups.first]].tolist()
        carriers = told.library[groups.first].tolist()
        times = ((epoch_us + column) / MICROS for column in (groups.begin, groups.end))
        spans = (_seconds(column) for column in (groups.waited, groups.ran, groups.moved))
        places = (column.tolist() for column in (groups.first, groups.fused, groups.told_at))
        rows = zip(pids, codes, carriers, arrivals, *places, *(t.tolist() for t in times), *spans, strict=True)
        done: list[tuple[int, Record]] = []
        for pid, code, library, arrival, first, fused, told_at, begin, end, waited, ran, moved in rows:
            tensor = tensors[pid]
            mine = sizes[first : first + fused]
            record = Collective(
                ts=begin,
                tensor=tensor.name,
                op=ops[code],
                negotiate_s=waited,
                execute_s=ran,
                transfer_s=moved,
                end=end,
                bytes=None if None in mine else sum(mine),  # type: ignore[arg-type]
                transport=libraries[library] if library >= 0 else None,
                fused=fused,
                ready=arrival,
                source=tensor.source(ledger.file),
            )
            done.append((told_at, record))
        ledger.told += len(done)
        return done


def _seconds(micros: Ints) -> list[float | None]:
    """Durations; a negative one is unknown."""
    seconds: list[float | None] = (micros / MICROS).tolist()
    for at in np.flatnonzero(micros < 0).tolist():
        seconds[at] = None
    return seconds
