"""Follows the events of a Horovod timeline, tensor by tensor, and makes records of what completes."""

from __future__ import annotations

import math
from typing import Final

from features.notices import Level, Notices
from features.parsers.timeline_cycles import CycleMeter
from features.parsers.timeline_scan import Begin, End, Event, Mark, Meta, Tick
from features.parsers.timeline_state import (
    ERROR,
    NEGOTIATE,
    NEGOTIATION,
    NEGOTIATION_ONLY,
    OPERATION,
    TRANSFER,
    Group,
    Sizes,
    Spans,
    Tensor,
    collective,
    loose,
    op_of,
)
from features.records import Record

CYCLE: Final = "CYCLE_START"
EPOCH_KEY: Final = "start_time_since_epoch_in_micros"
MAX_EPOCH_US: Final = 2**53  # in the year 2255; beyond it a float does not hold every microsecond
MAX_RANK_DIGITS: Final = 7  # no job has ten million ranks
JOIN_NAME: Final = "join."  # Horovod's own tensor behind hvd.join(): it has one end event and no beginning
JUMP_US: Final = 1e6  # threads overtake each other by some microseconds, on a busy machine milliseconds: this is a jump

EMPTY: Final = "empty timeline: no collective was recorded"
RELATIVE: Final = "the timeline has no absolute time (Horovod before 0.21): its times count from an unknown moment"
SECOND_JOB: Final = "another job starts in the same file"
BACKWARDS: Final = "time jumps backwards"
NAMELESS: Final = "a tensor has no name: its number is used"
LONE_END: Final = "an end without a beginning was ignored"
LONE_TICK: Final = "a rank tick outside of a negotiation was ignored"
SUPERSEDED: Final = "a collective begins before the one before it on the same tensor has ended"
REPLACED: Final = "invalid UTF-8 in the name of a tensor was replaced"
FAILED: Final = "Horovod answered a negotiation with an error"
CACHED: Final = (
    "rank ticks are absent in {without} of {total} negotiations: the response cache is on, so the timeline alone "
    "cannot name the late rank (HOROVOD_CACHE_CAPACITY=0 shows it)"
)


class Job:
    """The state between events. A second job in the same file starts most of it anew."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self.absolute = False
        self._file, self._notices = file, notices
        self._epoch_us = 0.0
        self._tensors: dict[int, Tensor] = {}
        self._forming: Group | None = None  # the response whose tensors are being started
        self._cycles = CycleMeter(file)
        self._sizes, self._spans = Sizes(), Spans()
        self._out: list[Record] = []
        self._latest = -math.inf  # when a collective last began or ended
        self._told = 0  # collectives
        self._with_ticks = self._without_ticks = 0  # negotiations
        self._relative = False  # whether the lack of absolute time has been said

    def take(self) -> list[Record]:
        """The records that became complete since the last call."""
        out, self._out = self._out, []
        return out

    def finish(self) -> None:
        """Tell what is still open, and what is to be said of the file as a whole."""
        self._end_of_job()
        if self._told == 0:
            self._note(EMPTY, level="info")
        if self._without_ticks > self._with_ticks:
            total = self._with_ticks + self._without_ticks
            self._note(CACHED.format(without=self._without_ticks, total=total), level="info")

    def run(self, events: list[Event]) -> None:
        """The hot loop: inner spans, which are most events, are dealt with on the spot."""
        tensors, spans = self._tensors, self._spans
        for event in events:
            if isinstance(event, End):
                tensor = tensors.get(event.pid)
                if tensor is None or tensor.depth < 2:
                    self._close(tensor, event)
                    continue
                if tensor.depth == tensor.inner_depth:
                    tensor.moved(event.ts)
                tensor.depth -= 1
            elif isinstance(event, Begin):
                tensor = tensors.get(event.pid)
                span = spans[event.name]
                if tensor is None or tensor.depth == 0 or span >= NEGOTIATION:
                    self._open(tensor, event, span)
                    continue
                tensor.depth += 1
                if span == TRANSFER and tensor.inner_depth == 0:
                    tensor.moves(event)
                if tensor.group is not None:
                    self._active(tensor.group)
            elif isinstance(event, Mark):
                self._mark(event)
            else:
                self._rare(event)

    # Spans

    def _open(self, tensor: Tensor | None, event: Begin, span: int) -> None:
        """A negotiation or an operation begins; any other span outside of them is only balanced."""
        if tensor is None:
            self._note(NAMELESS, place=f"pid {event.pid}")
            tensor = self._tensors[event.pid] = Tensor(event.pid, f"tensor {event.pid}", named=False)
        if span == NEGOTIATION:
            self._watch(event.ts)
            self._negotiate(tensor, event)
        elif span == OPERATION or tensor.closed is not None:
            self._watch(event.ts)
            self._operate(tensor, event)
        else:
            tensor.depth += 1

    def _negotiate(self, tensor: Tensor, event: Begin) -> None:
        self._forming = None
        if tensor.busy:
            self._supersede(tensor)
        tensor.clear()
        tensor.op = op_of(event.name.removeprefix(NEGOTIATE))
        tensor.opened, tensor.depth, tensor.negotiating = event.ts, 1, True

    def _operate(self, tensor: Tensor, event: Begin) -> None:
        if tensor.start is not None or tensor.negotiating:
            self._supersede(tensor)
        if event.name == ERROR:
            self._note(FAILED, place=tensor.name)
        else:
            tensor.op = op_of(event.name)
        tensor.start, tensor.depth = event.ts, 1
        group = self._forming
        if group is None or group.op != event.name:
            group = self._forming = Group(event.name)
        group.members.append(tensor)
        tensor.group = group

    def _active(self, group: Group) -> None:
        """An activity begins in a response: no tensor joins it any more, and those that ended were another response."""
        if group is self._forming:
            self._forming = None
        if group.ended:
            ended = [member for member in group.members if member.end is not None]
            group.members = [member for member in group.members if member.end is None]
            group.ended = 0
            self._tell(ended)

    def _close(self, tensor: Tensor | None, event: End) -> None:
        """The outermost span of a tensor ends: its negotiation or its operation."""
        if tensor is None or tensor.depth == 0:
            self._lone_end(tensor, event)
            return
        tensor.depth = 0
        self._watch(event.ts)
        if tensor.negotiating:
            self._agreed(tensor, event.ts)
        elif tensor.group is not None:
            group = tensor.group
            tensor.end, tensor.size = event.ts, self._sizes.of(event.args)
            group.ended += 1
            if group is self._forming:
                self._forming = None
            if group.ended == len(group.members):
                self._tell(group.members)

    def _agreed(self, tensor: Tensor, ts: float) -> None:
        """All ranks are ready."""
        self._forming = None
        tensor.negotiating, tensor.closed = False, ts
        if tensor.ticks:
            self._with_ticks += 1
        else:
            self._without_ticks += 1
        if tensor.op in NEGOTIATION_ONLY:
            tensor.end = ts
            op = tensor.op
            self._tell([tensor])
            tensor.op = op  # its end event, which has no beginning, is still to come

    def _lone_end(self, tensor: Tensor | None, event: End) -> None:
        if tensor is not None and tensor.name.startswith(JOIN_NAME):
            self._joined()
            tensor.op, tensor.end = "join", event.ts
            self._tell([tensor])
        elif tensor is None or tensor.op not in NEGOTIATION_ONLY:
            self._note(LONE_END, place=f"pid {event.pid}")

    def _joined(self) -> None:
        """All ranks have joined, which closes what joined ranks had opened: no operation follows."""
        for tensor in self._tensors.values():
            if tensor.closed is not None and tensor.start is None:
                tensor.end = tensor.closed
                self._tell([tensor])

    def _supersede(self, tensor: Tensor) -> None:
        """An end was lost. Tell what is known; it is over, since Horovod does not take a name twice at a time."""
        self._note(SUPERSEDED, place=tensor.name)
        members = [tensor] if tensor.group is None else tensor.group.members
        if all(member.end is None for member in members):
            for member in members:
                member.start, member.transfer, member.end = None, None, member.closed
        if any(member.end is not None for member in members):
            self._tell(members)
        if tensor.negotiating:  # its operation begins: only the end of the negotiation was lost
            tensor.negotiating = False
        else:
            for member in members:
                member.clear()

    # Everything else

    def _rare(self, event: Tick | Meta) -> None:
        if isinstance(event, Tick):
            self._tick(event)
        else:
            self._meta(event)

    def _tick(self, event: Tick) -> None:
        self._forming = None
        tensor = self._tensors.get(event.pid)
        if tensor is None or not tensor.negotiating:
            self._note(LONE_TICK, place=f"pid {event.pid}")
        elif event.name.isdecimal() and len(event.name) <= MAX_RANK_DIGITS:
            tensor.ticks.append((int(event.name), event.ts))

    def _mark(self, event: Mark) -> None:
        if event.name != CYCLE:
            return
        self._forming = None
        if self._cycles.went_back(event.ts):
            self._note(BACKWARDS, place=CYCLE)
        done = self._cycles.add(event.ts)
        if done is not None:
            self._emit(done)

    def _meta(self, event: Meta) -> None:
        if event.name != "process_name":
            return
        args = loose(self._readable(bytes(event.args)))
        epoch, name = args.get(EPOCH_KEY), args.get("name")
        if isinstance(epoch, int) and 0 < epoch < MAX_EPOCH_US:
            self._start_of_job(float(epoch))
            self.absolute = True
        if not isinstance(name, str):
            return
        tensor = self._tensors.get(event.pid)
        if tensor is not None and not tensor.named:
            tensor.name, tensor.named = name, True
            return
        if tensor is not None:
            self._start_of_job(self._epoch_us)
        self._tensors[event.pid] = Tensor(event.pid, name, named=True)

    def _readable(self, raw: bytes) -> bytes:
        try:
            raw.decode()
        except UnicodeDecodeError:
            self._note(REPLACED)
            return raw.decode(errors="replace").encode()
        return raw

    def _start_of_job(self, epoch_us: float) -> None:
        """A header, or (in old files, which have none) the first tensor named once more."""
        if self._tensors or self._cycles.last is not None:
            self._note(SECOND_JOB)
            self._end_of_job()
        self._tensors.clear()
        self._forming, self._latest, self._epoch_us = None, -math.inf, epoch_us
        self._cycles = CycleMeter(self._file, epoch_us)

    def _end_of_job(self) -> None:
        done = self._cycles.close()
        if done is not None:
            self._emit(done)
        busy = sorted((t for t in self._tensors.values() if t.busy), key=lambda t: (t.begin, t.pid))
        for tensor in busy:
            if tensor.busy:  # not told with its group yet
                self._tell([tensor] if tensor.group is None else tensor.group.members)

    def _watch(self, ts: float) -> None:
        if ts < self._latest - JUMP_US:
            self._note(BACKWARDS)
            self._latest = ts
        elif ts > self._latest:
            self._latest = ts

    def _tell(self, members: list[Tensor]) -> None:
        self._told += 1
        self._emit(collective(members, epoch_us=self._epoch_us, file=self._file))
        for member in members:
            member.clear()

    def _emit(self, record: Record) -> None:
        if not self.absolute and not self._relative:
            self._relative = True
            self._note(RELATIVE, level="info")
        self._out.append(record)

    def _note(self, text: str, *, level: Level = "warning", place: str = "") -> None:
        self._notices.add(level, text, file=self._file, place=place)
