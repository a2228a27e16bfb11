"""Makes the records of a sound stretch of a Horovod timeline all at once, from columns.

A stretch goes from one quiet moment, when no tensor is in any collective, to the last one that follows. What is in it
stands in the order in which Horovod writes; whatever does not is left to the patient way, which gives the same records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from features.parsers.timeline_lex import BEGIN, END, MARK, META, TICK, TOLD, Columns, Flags, Ints
from features.parsers.timeline_state import ACTIVITY, MICROS, NEGOTIATION, OPERATION, TRANSFER
from features.records import Ready

# Steps of a tensor through a collective: negotiation opened, a rank ready, all ready; operation and activities; done.
OPENED, READY, AGREED, STARTED, ACTIVE, PAUSED, DONE, REST, ENDED, WRONG = range(10)
MAX_TABLE: Final = 1 << 22  # cells of the table of ready ranks; beyond it (groups x ranks) the patient way is no slower

_NEXT: Final = {
    REST: (OPENED,),
    OPENED: (READY, AGREED),
    READY: (READY, AGREED),
    AGREED: (STARTED,),
    STARTED: (ACTIVE, DONE),
    ACTIVE: (PAUSED,),
    PAUSED: (ACTIVE, DONE),
    DONE: (OPENED,),
}
ALLOWED: Final = np.zeros((10, 10), bool)
for _from, _to in _NEXT.items():
    ALLOWED[_from, _to] = True
OF_KIND: Final = np.full(8, WRONG)
OF_KIND[[END, TOLD, TICK]] = (ENDED, ENDED, READY)
OF_SPAN: Final = np.full(8, WRONG)
OF_SPAN[[NEGOTIATION, OPERATION, ACTIVITY, TRANSFER]] = (OPENED, STARTED, ACTIVE, ACTIVE)
ENDS: Final = np.full(10, WRONG)  # what an end means after each step
ENDS[[OPENED, READY, STARTED, ACTIVE, ENDED]] = (AGREED, AGREED, DONE, PAUSED, DONE)
OUTER: Final = np.zeros(10, bool)  # the ends of a negotiation or an operation
OUTER[[OPENED, AGREED, STARTED, DONE]] = True


class Stretch(NamedTuple):
    """The events of tensors between two quiet moments, tensor by tensor."""

    size: int  # records in it
    where: Ints  # number of the record of each event
    step: Ints  # what the event is


class Parts(NamedTuple):
    """One entry per tensor and collective, in the order in which the operations began."""

    opened: Ints  # times
    agreed: Ints
    started: Ints
    done: Ints
    began_at: Ints  # numbers of records
    active_at: Ints
    resumed_at: Ints  # the last activity, -1 for none
    done_at: Ints
    moved: Ints  # time in transfers, -1 for none
    library: Ints  # code of the first transfer, -1 for none
    order: Ints  # which of the collectives, tensor by tensor, this one is


class Groups(NamedTuple):
    """One entry per response; `first` is the place of its first tensor among the parts."""

    first: Ints
    fused: Ints
    told_at: Ints
    begin: Ints
    waited: Ints
    ran: Ints
    moved: Ints
    end: Ints


def stretch(columns: Columns, spans: Ints) -> Stretch | None:
    """The events up to the last quiet moment; `spans` says what each code of a span is."""
    step = OF_KIND[columns.kind]
    begins = columns.kind == BEGIN
    step[begins] = OF_SPAN[spans[columns.code[begins]]]
    events = np.flatnonzero((columns.kind != MARK) & (columns.kind != META))
    pids = columns.pid[events]
    narrow = pids.astype(np.uint16) if len(pids) and pids.max() < 2**16 else pids  # sorts several times faster
    where = events[np.argsort(narrow, kind="stable")]
    raw = step[where]
    fresh = np.ones(len(where), bool)
    fresh[1:] = np.diff(columns.pid[where]) != 0
    now = np.where(raw == ENDED, ENDS[_shifted(raw, fresh)], raw)
    wrong = where[~ALLOWED[_shifted(now, fresh), now]]
    limit = int(wrong.min()) if len(wrong) else len(step)
    change = np.zeros(len(step), np.int64)
    change[where[now == OPENED]] = 1
    change[where[now == DONE]] = -1
    quiet = np.flatnonzero(np.cumsum(change[:limit]) == 0)
    if not len(quiet):
        return None
    size = int(quiet[-1]) + 1
    inside = where < size
    return Stretch(size, where[inside], now[inside])


def _shifted(steps: Ints, fresh: Flags) -> Ints:
    before = np.empty_like(steps)
    before[1:] = steps[:-1]
    before[fresh] = REST
    return before


def parts(columns: Columns, events: Stretch, spans: Ints) -> Parts:
    """The collectives of each tensor."""
    where, step, ts = events.where, events.step, columns.ts
    opened, started = np.flatnonzero(step == OPENED), np.flatnonzero(step == STARTED)
    agreed, done = where[step == AGREED], where[step == DONE]
    owner = np.cumsum(step == OPENED) - 1
    active = np.flatnonzero(step == ACTIVE)
    resumed = np.full(len(opened), -1)
    resumed[owner[active]] = where[active]
    code = columns.code[where[active]]
    transfers = spans[code] == TRANSFER
    active, code = active[transfers], code[transfers]
    library = np.full(len(opened), -1)
    library[owner[active][::-1]] = code[::-1]  # of several, the first one stays
    moved = np.bincount(owner[active], ts[where[active + 1]] - ts[where[active]], len(opened)).astype(np.int64)
    began_at = where[started]
    order = np.argsort(began_at)
    return Parts(
        ts[where[opened]][order],
        ts[agreed][order],
        ts[began_at][order],
        ts[done][order],
        began_at[order],
        where[started + 1][order],
        resumed[order],
        done[order],
        np.where(library < 0, -1, moved)[order],
        library[order],
        order,
    )


def grouped(columns: Columns, events: Stretch, told: Parts) -> Groups | None:
    """Parts that one response started; None where threads are so entwined that order decides."""
    if not len(told.order):
        return Groups(*(told.order,) * 8)
    seals = np.zeros(events.size, np.int64)
    seals[events.where[events.step <= AGREED]] = 1
    seals[columns.kind[: events.size] == MARK] = 1
    sealed = np.cumsum(seals)[told.began_at]
    code = columns.code[told.began_at]
    breaks = np.ones(len(code), bool)
    breaks[1:] = (np.diff(sealed) != 0) | (np.diff(code) != 0) | (told.active_at[:-1] < told.began_at[1:])
    first = np.flatnonzero(breaks)
    fused = np.diff(np.append(first, len(code)))
    if (np.minimum.reduceat(told.active_at, first) < told.began_at[first + fused - 1]).any():
        return None
    if (np.maximum.reduceat(told.resumed_at, first) > np.minimum.reduceat(told.done_at, first)).any():
        return None
    end = np.maximum.reduceat(told.done, first)
    return Groups(
        first,
        fused,
        np.maximum.reduceat(told.done_at, first),
        np.minimum.reduceat(told.opened, first),
        np.maximum.reduceat(told.agreed - told.opened, first),
        end - np.minimum.reduceat(told.started, first),
        np.maximum.reduceat(told.moved, first),
        end,
    )


def ready(columns: Columns, events: Stretch, told: Parts, groups: Groups) -> list[tuple[Ready, ...]] | None:
    """When each rank was ready, per group; None where there are more ranks than a table holds."""
    ticks = np.flatnonzero(events.step == READY)
    none: list[tuple[Ready, ...]] = [()] * len(groups.first)
    if not len(ticks):
        return none
    group_of = np.empty(len(told.order), np.int64)
    group_of[told.order] = np.repeat(np.arange(len(groups.first)), groups.fused)
    owner = group_of[(np.cumsum(events.step == OPENED) - 1)[ticks]]
    ranks, ts = columns.code[events.where[ticks]], columns.ts[events.where[ticks]]
    width = int(ranks.max()) + 1
    if width * len(none) > MAX_TABLE:
        return None
    latest = np.full((len(none), width), -1)
    np.maximum.at(latest, (owner, ranks), ts)
    rows, ranks = np.nonzero(latest >= 0)
    offsets = (latest[rows, ranks] - groups.begin[rows]) / MICROS
    every = [Ready(rank, offset) for rank, offset in zip(ranks.tolist(), offsets.tolist(), strict=True)]
    edges = np.searchsorted(rows, np.arange(len(none) + 1)).tolist()
    return [tuple(every[edges[i] : edges[i + 1]]) for i in range(len(none))]


def unticked(events: Stretch) -> int:
    """Negotiations in which no rank was named."""
    agreed = np.flatnonzero(events.step == AGREED)
    return int((events.step[agreed - 1] == OPENED).sum())
