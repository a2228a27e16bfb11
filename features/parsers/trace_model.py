"""What a trace tells of one rank, gathered in any order and in bounded memory, whatever tool wrote it."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from features.notices import Notices
from features.parsers.trace_names import Message
from features.parsers.trace_spans import Spans

PHASES: Final = ("data", "forward", "backward", "optimizer")
MAX_KEPT: Final = 1 << 20  # collectives, and steps: some 300 MB of records, as long a trace as anyone can look at
MAX_LAUNCHES: Final = 1 << 22  # launches of kernels that are remembered to find out who asked for them: 96 MB
TOO_MANY: Final = "more events than are kept; the later ones were left out"


class StepSpan(NamedTuple):
    """One step; all times here and below are microseconds on the clock of the trace."""

    step: int
    begin: float
    end: float


class Ask(NamedTuple):
    """The host asks for a collective: it is put into a queue, not carried out."""

    thread: object
    begin: float
    end: float
    message: Message


class Transfer(NamedTuple):
    """A collective that is carried out: by a GPU kernel, or by a thread of the library."""

    begin: float
    end: float
    message: Message
    correlation: int | None  # with the launch of the kernel
    lane: str  # where it ran, to be shown


class RankTrace:
    """One rank's part of a trace."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices."""
        self._file, self._notices = file, notices
        self.steps: list[StepSpan] = []
        self.asks: list[Ask] = []
        self.transfers: list[Transfer] = []
        self.phases = {phase: Spans() for phase in PHASES}
        self.gradients = Spans()  # what the autograd engine does: the backward pass, where nobody marked it
        self.moving = Spans()  # all transfers
        self.computing = Spans()  # GPU kernels that are no transfers
        self.operating = Spans()  # operators on CPUs
        self.on_gpu = False  # whether transfers are kernels
        self.first: float | None = None  # the earliest time of all
        self._threads: dict[object, int] = {}
        self._launch_threads, self._launch_times, self._launch_ids = array("q"), array("d"), array("q")

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.steps or self.asks or self.transfers)

    def add_step(self, step: int, begin: float, end: float) -> None:
        """One step of training."""
        if self._has_room(self.steps):
            self.steps.append(StepSpan(step, begin, end))

    def add_ask(self, thread: object, begin: float, end: float, message: Message) -> None:
        """A collective was asked for."""
        if self._has_room(self.asks):
            self.asks.append(Ask(thread, begin, end, message))

    def add_transfer(self, transfer: Transfer) -> None:
        """A collective was carried out."""
        self.moving.add(transfer.begin, transfer.end)
        self.on_gpu = self.on_gpu or transfer.correlation is not None
        if self._has_room(self.transfers):
            self.transfers.append(transfer)

    def add_launch(self, thread: object, at: float, correlation: int) -> None:
        """A kernel was put into the queue of a GPU."""
        if len(self._launch_ids) >= MAX_LAUNCHES:
            self._notices.add("warning", TOO_MANY, file=self._file)
            return
        self._launch_threads.append(self._threads.setdefault(thread, len(self._threads)))
        self._launch_times.append(at)
        self._launch_ids.append(correlation)

    def launches(self, wanted: set[int]) -> dict[int, tuple[object, float]]:
        """Thread and time of the launches with these correlations."""
        names = {number: thread for thread, number in self._threads.items()}
        rows = zip(self._launch_ids, self._launch_threads, self._launch_times, strict=True)
        return {key: (names[thread], at) for key, thread, at in rows if key in wanted}

    def _has_room(self, kept: list[StepSpan] | list[Ask] | list[Transfer]) -> bool:
        if len(kept) < MAX_KEPT:
            return True
        self._notices.add("warning", TOO_MANY, file=self._file)
        return False
