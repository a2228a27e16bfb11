"""Follows the events of a Horovod timeline, tensor by tensor, and makes records of what completes."""

from __future__ import annotations

from typing import Final

import msgspec

from features.parsers.timeline_ledger import Ledger
from features.parsers.timeline_scan import Begin, End, Event, Mark, Meta, Tick
from features.parsers.timeline_state import (
    ERROR,
    NEGOTIATE,
    NEGOTIATION,
    NEGOTIATION_ONLY,
    OPERATION,
    TRANSFER,
    Group,
    Spans,
    Tensor,
    loose,
    op_of,
)

CYCLE: Final = "CYCLE_START"
PROCESS_NAME: Final = "process_name"
EPOCH_KEY: Final = "start_time_since_epoch_in_micros"
MAX_EPOCH_US: Final = 2**53  # in the year 2255; beyond it a float does not hold every microsecond
MAX_RANK_DIGITS: Final = 7  # no job has ten million ranks
JOIN_NAME: Final = "join."  # Horovod's own tensor behind hvd.join(): it has one end event and no beginning
JUMP_US: Final = 1e6  # threads overtake each other by some microseconds, on a busy machine milliseconds: this is a jump

BACKWARDS: Final = "time jumps backwards"
NAMELESS: Final = "a tensor has no name: its number is used"
LONE_END: Final = "an end without a beginning was ignored"
LONE_TICK: Final = "a rank tick outside of a negotiation was ignored"
SUPERSEDED: Final = "a collective begins before the one before it on the same tensor has ended"
REPLACED: Final = "invalid UTF-8 in the name of a tensor was replaced"
FAILED: Final = "Horovod answered a negotiation with an error"


class Job:
    """Takes events one by one, in any order that a file may hold."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger` takes what comes of the events."""
        self._ledger = ledger
        self._forming: Group | None = None  # the response whose tensors are being started
        self._spans = Spans()

    def run_until_idle(self, events: list[Event]) -> int:
        """Take events until no tensor is in a collective; how many were taken."""
        for number, event in enumerate(events, 1):
            self.run([event])
            if not self._ledger.busy:
                return number
        return len(events)

    def run(self, events: list[Event]) -> None:
        """The hot loop: inner spans, which are most events, are dealt with on the spot."""
        tensors, spans = self._ledger.tensors, self._spans
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
            self._ledger.note(NAMELESS, place=f"pid {event.pid}")
            tensor = self._ledger.tensors[event.pid] = Tensor(event.pid, f"tensor {event.pid}", named=False)
        if span == NEGOTIATION:
            self._watch(event.ts)
            self._negotiate(tensor, event)
        elif span == OPERATION or tensor.closed is not None:
            self._watch(event.ts)
            self._operate(tensor, event)
        else:
            tensor.depth += 1
            self._ledger.busy.add(tensor)

    def _negotiate(self, tensor: Tensor, event: Begin) -> None:
        self._forming = None
        if tensor.busy:
            self._supersede(tensor)
        tensor.clear()
        tensor.op = op_of(event.name.removeprefix(NEGOTIATE))
        tensor.opened, tensor.depth, tensor.negotiating = event.ts, 1, True
        self._ledger.busy.add(tensor)

    def _operate(self, tensor: Tensor, event: Begin) -> None:
        if tensor.start is not None or tensor.negotiating:
            self._supersede(tensor)
        if event.name == ERROR:
            self._ledger.note(FAILED, place=tensor.name)
        else:
            tensor.op = op_of(event.name)
        tensor.start, tensor.depth = event.ts, 1
        self._ledger.busy.add(tensor)
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
            self._ledger.tell(ended)

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
            tensor.end, tensor.size = event.ts, self._size(bytes(event.args))
            group.ended += 1
            if group is self._forming:
                self._forming = None
            if group.ended == len(group.members):
                self._ledger.tell(group.members)
        else:
            self._ledger.busy.discard(tensor)

    def _size(self, args: bytes) -> int | None:
        try:
            return self._ledger.sizes[args]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _agreed(self, tensor: Tensor, ts: float) -> None:
        """All ranks are ready."""
        self._forming = None
        tensor.negotiating, tensor.closed = False, ts
        if tensor.ticks:
            self._ledger.with_ticks += 1
        else:
            self._ledger.without_ticks += 1
        if tensor.op in NEGOTIATION_ONLY:
            tensor.end = ts
            op = tensor.op
            self._ledger.tell([tensor])
            tensor.op = op  # its end event, which has no beginning, is still to come

    def _lone_end(self, tensor: Tensor | None, event: End) -> None:
        if tensor is not None and tensor.name.startswith(JOIN_NAME):
            self._joined()
            tensor.op, tensor.end = "join", event.ts
            self._ledger.tell([tensor])
        elif tensor is None or tensor.op not in NEGOTIATION_ONLY:
            self._ledger.note(LONE_END, place=f"pid {event.pid}")

    def _joined(self) -> None:
        """All ranks have joined, which closes what joined ranks had opened: no operation follows."""
        for tensor in sorted(self._ledger.busy, key=lambda tensor: (tensor.begin, tensor.pid)):
            if tensor.closed is not None and tensor.start is None:
                tensor.end = tensor.closed
                self._ledger.tell([tensor])

    def _supersede(self, tensor: Tensor) -> None:
        """An end was lost. Tell what is known; it is over, since Horovod does not take a name twice at a time."""
        self._ledger.note(SUPERSEDED, place=tensor.name)
        self._forming = None
        members = [tensor] if tensor.group is None else tensor.group.members
        if all(member.end is None for member in members):
            for member in members:
                member.start, member.transfer, member.end = None, None, member.closed
        if any(member.end is not None for member in members):
            self._ledger.tell(members)
        if tensor.negotiating:  # its operation begins: only the end of the negotiation was lost
            tensor.negotiating = False
        else:
            self._ledger.rest(members)

    # Everything else

    def _rare(self, event: Tick | Meta) -> None:
        if isinstance(event, Tick):
            self._tick(event)
        else:
            self._meta(event)

    def _tick(self, event: Tick) -> None:
        self._forming = None
        tensor = self._ledger.tensors.get(event.pid)
        if tensor is None or not tensor.negotiating:
            self._ledger.note(LONE_TICK, place=f"pid {event.pid}")
        elif event.name.isdecimal() and len(event.name) <= MAX_RANK_DIGITS:
            tensor.ticks.append((int(event.name), event.ts))

    def _mark(self, event: Mark) -> None:
        if event.name != CYCLE:
            return
        self._forming = None
        if self._ledger.cycles.went_back(event.ts):
            self._ledger.note(BACKWARDS, place=CYCLE)
        self._ledger.emit(self._ledger.cycles.add(event.ts))

    def _meta(self, event: Meta) -> None:
        if event.name != PROCESS_NAME:
            return
        args = loose(self._readable(bytes(event.args)))
        epoch, name = args.get(EPOCH_KEY), args.get("name")
        if isinstance(epoch, int) and 0 < epoch < MAX_EPOCH_US:
            self._forming = None
            self._ledger.start_job(float(epoch))
            self._ledger.absolute = True
        if not isinstance(name, str):
            return
        tensor = self._ledger.tensors.get(event.pid)
        if tensor is not None and not tensor.named:
            tensor.name, tensor.named = name, True
            return
        if tensor is not None:
            self._forming = None
            self._ledger.start_job(self._ledger.epoch_us)
        self._ledger.tensors[event.pid] = Tensor(event.pid, name, named=True)

    def _readable(self, raw: bytes) -> bytes:
        try:
            raw.decode()
        except UnicodeDecodeError:
            self._ledger.note(REPLACED)
            return raw.decode(errors="replace").encode()
        return raw

    def _watch(self, ts: float) -> None:
        if ts < self._ledger.latest - JUMP_US:
            self._ledger.note(BACKWARDS)
            self._ledger.latest = ts
        elif ts > self._ledger.latest:
            self._ledger.latest = ts
