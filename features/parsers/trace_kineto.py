"""Traces of the PyTorch profiler (Kineto), of CUDA, ROCm or CPU runs: steps and collectives as one rank saw them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from features.notices import Notices
from features.parsers.protocol import ParserRow
from features.parsers.trace_build import MICROS, Whose, records_of
from features.parsers.trace_event import Event
from features.parsers.trace_json import Scanner
from features.parsers.trace_model import RankTrace, Transfer
from features.parsers.trace_names import (
    Known,
    Message,
    asked_of,
    counted_step,
    dims_message,
    op_of,
    phase_of,
    profiler_step,
    sized,
    transfer_of,
)
from features.parsers.trace_place import rank_of_file
from features.records import Record, RunInfo

ABSOLUTE_US: Final = 1e14
"""A time beyond this (the year 1973) counts from the epoch: no machine runs for three years before it is traced."""
ON_CPU: Final = frozenset({"gloo", "mpi"})  # libraries whose annotation is the operation itself, on a thread of their own
COMMS: Final = "record_param_comms"
GRADIENTS: Final = "autograd::engine::evaluate_function"
NOTHING: Final = "the trace tells of no step and of no collective"
NO_CLOCK: Final = "no absolute clock: times count from an unknown start"

_HORIZON: Final = (b"NEGOTIATE_", b"CYCLE_START")  # a Horovod timeline, though it may have been saved as an object
_KINETO: Final = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|gpu_user_annotation|cuda_runtime|cuda_driver|python_function|ac2g|fwdbwd|'
    rb"[Kk]ernel|gpu_mem(?:cpy|set)|Operator|Runtime)\"|\"ProfilerStep#|\"(?:nccl|gloo):|record_param_comms"
)
_OBJECT: Final = re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:')
_CORRELATION: Final = re.compile(rb'"correlation"\s*:\s*(\d{1,18})(?!\d)')
_NUMBERS: Final = {name: re.compile(rb'"' + name.encode() + rb'"\s*:\s*(\d{1,9})(?!\d)') for name in ("rank", "world_size")}
_TEXT: Final = re.compile(rb'^\s*"([^"\\]{1,64})"|^\s*(\d{1,16})')
_BACKEND: Final = re.compile(rb'"backend"\s*:\s*"([\w:,]{1,64})"')
_GPU: Final = re.compile(rb'"name"\s*:\s*"([^"\\]{1,128})"')
_BASE: Final = re.compile(rb'\s*"?(-?\d{1,19})(?!\d)')
_OWN: Final = frozenset({"wait", "init", "start_coalescing", "end_coalescing"})  # of c10d, and no collectives


def sniff(head: bytes) -> bool:
    """Whether these first bytes are a trace of the PyTorch profiler."""
    text = head.lstrip(b" \t\r\n\xef\xbb\xbf")
    if any(mark in head for mark in _HORIZON):
        return False
    if text.startswith(b"{"):
        return _OBJECT.search(text) is not None and not _is_line(text)
    return text.startswith(b"[") and b'"ph"' in text and _KINETO.search(text) is not None


def _is_line(text: bytes) -> bool:
    """Whether one object a line follows: a log that speaks of traces."""
    first, newline, rest = text.partition(b"\n")
    return newline == b"\n" and first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{")


Handle = Callable[[Event, float, float], None]


class Gathering:
    """The sink of a scanner: what events say of the rank, and what stands beside them."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices."""
        self.trace = RankTrace(file, notices)
        self.rank: int | None = None
        self.world_size: int | None = None
        self.base_us: float | None = None
        self.settings: dict[str, str] = {}
        self.latest = float("-inf")  # the latest time of what is kept
        self._counted = RankTrace(file, notices)  # steps that a person marked, used where the profiler marked none
        self._asked, self._transfers = Known(asked_of), Known(transfer_of)
        self._phases, self._steps = Known(phase_of), Known(counted_step)
        take: dict[str, Handle] = {
            "cpu_op": self._operator,
            "operator": self._operator,
            "user_annotation": self._annotation,
            "kernel": self._kernel,
            "cuda_runtime": self._launch,
            "cuda_driver": self._launch,
            "runtime": self._launch,
        }
        self._take: Known[Handle | None] = Known(lambda category: take.get(category.lower()))

    def events(self, events: list[Event]) -> None:
        """Take these events; whatever is no complete one of a kind that matters is passed over."""
        take = self._take
        for event in events:
            handle = take[event.cat]
            if handle is not None and event.ph == "X":
                ts, dur = event.ts, event.dur
                if ts is not None and dur is not None and dur >= 0:
                    handle(event, ts, ts + dur)

    def about(self, key: str, raw: bytes) -> None:
        """Take what stands beside the events."""
        if key == "distributedInfo":
            numbers = {name: pattern.search(raw) for name, pattern in _NUMBERS.items()}
            self.rank, self.world_size = (None if m is None else int(m[1]) for m in (numbers["rank"], numbers["world_size"]))
            self._set("backend", _BACKEND.search(raw))
        elif key == "baseTimeNanoseconds":
            base = _BASE.match(raw)
            self.base_us = None if base is None else int(base[1]) / 1e3
        elif key == "deviceProperties":
            self._set("gpu", _GPU.search(raw))
        else:
            self._set(key, _TEXT.search(raw))

    def settle(self) -> None:
        """All events have come."""
        if not self.trace.steps:
            self.trace.steps = self._counted.steps

    def _set(self, key: str, match: re.Match[bytes] | None) -> None:
        if match is not None:
            self.settings[key] = (match[1] or match[2]).decode("utf-8", "replace")

    def _operator(self, event: Event, begin: float, end: float) -> None:
        name = event.name
        if name.startswith("aten::"):  # most of them
            self.trace.operating.add(begin, end)
        elif name.startswith(GRADIENTS):
            self.trace.gradients.add(begin, end)
        elif name == COMMS:
            self._request(event, begin, end)
        elif name.startswith(("nccl:", "gloo:", "mpi:", "ProfilerStep")):  # older profilers knew no annotations
            self._annotation(event, begin, end)

    def _annotation(self, event: Event, begin: float, end: float) -> None:
        name = event.name
        self._saw(begin, end)
        step = profiler_step(name)
        if step is not None:
            self.trace.add_step(step, begin, end)
            return
        phase = self._phases[name]
        if phase is not None:
            self.trace.phases[phase].add(begin, end)
            return
        message = self._asked[name]
        if message is not None:
            self._library(event, begin, end, message)
            return
        is_step, number = self._steps[name]
        if is_step:
            self._counted.add_step(len(self._counted.steps) if number is None else number, begin, end)

    def _library(self, event: Event, begin: float, end: float, message: Message) -> None:
        """An annotation by a backend of c10d."""
        args = _args(event.args)
        message = message.over(dims_message(args.get("Input Dims"), args.get("Input type")))
        if message.transport in ON_CPU:
            self.trace.add_transfer(Transfer(begin, end, message, None, f"tid {event.tid}"))
        else:
            self.trace.add_ask(event.tid, begin, end, message)

    def _request(self, event: Event, begin: float, end: float) -> None:
        """c10d notes a collective with its arguments; newer profilers tell them."""
        message = _told(_args(event.args))
        if message is not None:
            self._saw(begin, end)
            self.trace.add_ask(event.tid, begin, end, message)

    def _kernel(self, event: Event, begin: float, end: float) -> None:
        message = self._transfers[event.name]
        if message is None:
            self.trace.computing.add(begin, end)
            return
        self._saw(begin, end)
        args = _args(event.args)
        told = _told(args)
        correlation = args.get("correlation")
        whole = correlation if isinstance(correlation, int) and 0 <= correlation < 2**63 else None
        message = message if told is None else told.over(message)
        self.trace.add_transfer(Transfer(begin, end, message, whole, f"stream {event.tid}"))

    def _launch(self, event: Event, begin: float, end: float) -> None:
        if "Launch" in event.name:
            match = _CORRELATION.search(event.args)
            if match is not None:
                self.trace.add_launch(event.tid, begin, int(match[1]))

    def _saw(self, begin: float, end: float) -> None:
        self.latest = max(self.latest, end)
        self.trace.first = begin if self.trace.first is None else min(self.trace.first, begin)


def _args(raw: msgspec.Raw) -> dict[str, object]:
    try:
        args = msgspec.json.decode(raw) if raw else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return args if isinstance(args, dict) else {}


def _told(args: dict[str, object]) -> Message | None:
    """The message that the args of a request or of a kernel tell."""
    name = args.get("Collective name")
    if not isinstance(name, str) or name.lower() in _OWN or (op := op_of(name)) is None:
        return None
    counts = [n for n in (args.get("In msg nelems"), args.get("Out msg nelems")) if isinstance(n, int) and 0 <= n < 2**48]
    group = args.get("Process Group Description", args.get("Process Group Name"))
    message = sized(max(counts), args.get("dtype")) if counts and isinstance(args.get("dtype"), str) else Message()
    return message._replace(op=op, group=group if isinstance(group, str) and group not in ("0", "default_pg") else "")


class KinetoTrace:
    """Feed it bytes in any chunking; records come out of `finish`, since the clock may be told at the very end.

    A collective on GPUs begins when the host asks for it (`nccl:*`), its transfer is the kernel; `execute_s` is from the
    one to the end of the other. On CPUs the annotation is the operation. `sync_s` of a step is the time in which only
    communication went on.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._gathering = Gathering(file, notices)
        self._scanner = Scanner(file, notices, self._gathering)
        self._finished = False
        self.absolute = True

    def feed(self, data: bytes) -> list[Record]:
        """Nothing yet."""
        self._scanner.feed(data)
        return []

    def finish(self) -> list[Record]:
        """All records of the trace, once."""
        if self._finished:
            return []
        self._finished = True
        self._scanner.finish()
        told = self._gathering
        told.settle()
        if told.trace.first is None or not told.trace:
            self._notices.add("warning", NOTHING, file=self._file)
            return []
        rank = told.rank if told.rank is not None else rank_of_file(self._file)
        whose = Whose(self._file, rank, self._epoch_us())
        info = RunInfo(
            ts=(whose.epoch_us + told.trace.first) / MICROS,
            world_size=told.world_size,
            settings=told.settings,
            source=self._file,
        )
        return [info, *records_of(told.trace, whose, self._notices)]

    def _epoch_us(self) -> float:
        told = self._gathering
        if told.latest > ABSOLUTE_US:
            return 0.0
        if told.base_us is not None and told.base_us > 0:
            return told.base_us
        self.absolute = False
        self._notices.add("info", NO_CLOCK, file=self._file)
        return 0.0


KINETO: Final = ParserRow("trace", sniff, KinetoTrace)
