"""Makes records of what a trace tells of one rank: its steps with their parts, and its collectives as it saw them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import Final, NamedTuple

import msgspec
import numpy as np

from features.notices import Notices
from features.parsers.trace_model import Ask, RankTrace, StepSpan, Transfer
from features.parsers.trace_spans import covered, union
from features.records import Collective, Record, Step

MICROS: Final = 1e6
SLACK_US: Final = 1.0  # clocks of hosts and of profilers are rounded to this
NO_RANK: Final = "no rank named: steps are taken as those of rank 0"
NOT_RUN: Final = "a collective was asked for, but its kernel is not in the trace"
ONLY_ASKED: Final = "the trace has no GPU kernels: when collectives were asked for is known, not how long they took"


class Whose(NamedTuple):
    """Whose trace it is, and on which clock."""

    file: str
    rank: int | None
    epoch_us: float  # added to all times
    prefix: str = ""  # of places in the file, where it holds several ranks


def records_of(trace: RankTrace, whose: Whose, notices: Notices) -> list[Record]:
    """The records of one rank, in order of time."""
    steps = _distinct(trace.steps)
    if steps and whose.rank is None:
        notices.add("info", NO_RANK, file=whose.file)
    collectives = _collectives(trace, whose, notices)
    out: list[Record] = [*_step_records(trace, steps, whose), *_numbered(collectives, steps, whose.epoch_us)]
    return sorted(out, key=lambda r: (r.end if isinstance(r, Collective) and r.end is not None else r.ts) or 0.0)


def _distinct(steps: list[StepSpan]) -> list[StepSpan]:
    """Each step once: where a mark is written twice (by two threads, or again on the GPU), its longest."""
    longest: dict[int, StepSpan] = {}
    for s in steps:
        if s.step not in longest or s.end - s.begin > longest[s.step].end - longest[s.step].begin:
            longest[s.step] = s
    return sorted(longest.values(), key=lambda s: (s.begin, s.step))


def _step_records(trace: RankTrace, steps: list[StepSpan], whose: Whose) -> list[Step]:
    begin, end = np.array([s.begin for s in steps]), np.array([s.end for s in steps])
    parts: dict[str, list[float | None]] = {}
    for name, spans in trace.phases.items():
        marked = spans if spans or name != "backward" else trace.gradients
        parts[name] = _seconds(covered(marked.edges(), begin, end).tolist(), known=bool(marked))
    work = trace.computing if trace.on_gpu else trace.operating
    computing = work.edges()
    waiting = covered(union(trace.moving.edges(), computing), begin, end) - covered(computing, begin, end)
    parts["sync"] = _seconds(waiting.tolist(), known=bool(trace.moving) and bool(work))
    return [
        Step(
            ts=(whose.epoch_us + s.end) / MICROS,
            rank=whose.rank if whose.rank is not None else 0,
            step=s.step,
            duration_s=(s.end - s.begin) / MICROS,
            data_s=parts["data"][i],
            forward_s=parts["forward"][i],
            backward_s=parts["backward"][i],
            sync_s=parts["sync"][i],
            optimizer_s=parts["optimizer"][i],
            source=f"{whose.file}:{whose.prefix}step {s.step}",
        )
        for i, s in enumerate(steps)
    ]


def _seconds(micros: list[float], *, known: bool) -> list[float | None]:
    return [max(m, 0.0) / MICROS if known else None for m in micros]


def _collectives(trace: RankTrace, whose: Whose, notices: Notices) -> list[Collective]:
    asks = _Asks(trace)
    wanted = {t.correlation for t in trace.transfers if t.correlation is not None}
    launches = trace.launches(wanted) if trace.asks else {}
    owners = [asks.around(launches.get(t.correlation)) if t.correlation is not None else None for t in trace.transfers]
    shares = Counter(o for o in owners if o is not None)
    out = [_done(t, _owner(asks, o, shares), whose) for t, o in zip(trace.transfers, owners, strict=True)]
    idle = [ask for number, ask in enumerate(asks.all) if number not in shares]
    if idle and not trace.transfers:
        notices.add("info", ONLY_ASKED, file=whose.file)
        out += [_asked(ask, whose) for ask in idle]
    # A request of a library that runs on CPUs names no transport: it is carried out on a thread of its own.
    elif lost := sum(ask.message.transport is not None for ask in idle):
        notices.add("info", NOT_RUN, file=whose.file, count=lost)
    return out


def _owner(asks: _Asks, number: int | None, shares: Counter[int]) -> Ask | None:
    """Who asked; several kernels of one request share its bytes in a way that nobody tells."""
    if number is None:
        return None
    ask = asks.all[number]
    return ask if shares[number] == 1 else ask._replace(message=ask.message._replace(bytes=None))


class _Asks:
    """Requests, with those of one thread that lie within each other (by torch and by its backend) made one."""

    def __init__(self, trace: RankTrace) -> None:
        self.all: list[Ask] = []
        self._threads: dict[object, tuple[list[float], list[int]]] = {}
        by_thread: dict[object, list[Ask]] = defaultdict(list)
        for ask in trace.asks:
            by_thread[ask.thread].append(ask)
        for thread, asks in by_thread.items():
            asks.sort(key=lambda a: (a.begin, -a.end))
            numbers = [len(self.all)]
            self.all.append(asks[0])
            for ask in asks[1:]:
                last = self.all[-1]
                if ask.end <= last.end + SLACK_US:
                    self.all[-1] = last._replace(message=last.message.over(ask.message))
                else:
                    numbers.append(len(self.all))
                    self.all.append(ask)
            self._threads[thread] = [self.all[n].begin for n in numbers], numbers

    def around(self, launch: tuple[object, float] | None) -> int | None:
        """Which request a launch belongs to."""
        if launch is None or launch[0] not in self._threads:
            return None
        begins, numbers = self._threads[launch[0]]
        at = bisect_right(begins, launch[1] + SLACK_US) - 1
        return numbers[at] if at >= 0 and launch[1] <= self.all[numbers[at]].end + SLACK_US else None


def _done(transfer: Transfer, ask: Ask | None, whose: Whose) -> Collective:
    """A collective that was carried out; it began when this rank asked for it, where that is known."""
    # The request names the operation better than the kernel does: one kernel serves several operations.
    message = transfer.message if ask is None else ask.message.over(transfer.message)
    begin = transfer.begin if ask is None else min(ask.begin, transfer.begin)
    return Collective(
        ts=(whose.epoch_us + begin) / MICROS,
        tensor=message.label,
        op=message.op or "collective",
        execute_s=(transfer.end - begin) / MICROS,
        transfer_s=(transfer.end - transfer.begin) / MICROS,
        end=(whose.epoch_us + transfer.end) / MICROS,
        bytes=message.bytes,
        transport=message.transport,
        rank=whose.rank,
        source=f"{whose.file}:{whose.prefix}{transfer.lane}",
    )


def _asked(ask: Ask, whose: Whose) -> Collective:
    """A collective of which only the request is known: it ends with the request, and nobody says how long it took."""
    return Collective(
        ts=(whose.epoch_us + ask.begin) / MICROS,
        tensor=ask.message.label,
        op=ask.message.op or "collective",
        end=(whose.epoch_us + ask.end) / MICROS,
        bytes=ask.message.bytes,
        transport=ask.message.transport,
        rank=whose.rank,
        source=f"{whose.file}:{whose.prefix}tid {ask.thread}",
    )


def _numbered(collectives: list[Collective], steps: list[StepSpan], epoch_us: float) -> list[Collective]:
    """Equal messages of one step get numbers, so that a name comes once a step, and means the same on all ranks."""
    begins = [s.begin for s in steps]
    seen: Counter[tuple[int, str]] = Counter()
    out = []
    for c in sorted(collectives, key=lambda c: (c.ts, c.tensor)):
        at = c.ts * MICROS - epoch_us
        step = bisect_right(begins, at + SLACK_US) - 1
        if step >= 0 and at <= steps[step].end:
            seen[step, c.tensor] += 1
            if seen[step, c.tensor] > 1:
                c = msgspec.structs.replace(c, tensor=f"{c.tensor} #{seen[step, c.tensor]}")
        out.append(c)
    return out
