"""What is known of the job in a Horovod timeline so far, and the records and notices that come of it."""

from __future__ import annotations

import math
from typing import Final

from features.notices import Level, Notices
from features.parsers.timeline_cycles import CycleMeter
from features.parsers.timeline_state import Sizes, Tensor, collective
from features.records import Record

EMPTY: Final = "empty timeline: no collective was recorded"
RELATIVE: Final = "the timeline has no absolute time (Horovod before 0.21): its times count from an unknown moment"
SECOND_JOB: Final = "another job starts in the same file"
CACHED: Final = (
    "rank ticks are absent in {without} of {total} negotiations: the response cache is on, so the timeline alone "
    "cannot name the late rank (HOROVOD_CACHE_CAPACITY=0 shows it)"
)


class Ledger:
    """One per timeline. A second job in the same file starts most of it anew."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self.file, self._notices = file, notices
        self.absolute = False
        self.epoch_us = 0.0
        self.tensors: dict[int, Tensor] = {}
        self.busy: set[Tensor] = set()  # those in a collective
        self.cycles = CycleMeter(file)
        self.sizes = Sizes()
        self.latest = -math.inf  # when a collective last began or ended
        self.told = 0  # collectives
        self.with_ticks = self.without_ticks = 0  # negotiations
        self._out: list[Record] = []
        self._relative = False  # whether the lack of absolute time has been said

    def take(self) -> list[Record]:
        """The records that became complete since the last call."""
        out, self._out = self._out, []
        return out

    def tell(self, members: list[Tensor]) -> None:
        """These tensors shared an operation, and it is over."""
        self.told += 1
        self.emit(collective(members, epoch_us=self.epoch_us, file=self.file))
        self.rest(members)

    def rest(self, members: list[Tensor]) -> None:
        """Forget the collective that these tensors were in."""
        for member in members:
            member.clear()
            self.busy.discard(member)

    def emit(self, record: Record | None) -> None:
        """Give out a record, if there is one."""
        if record is not None:
            self.emit_all([record])

    def emit_all(self, records: list[Record]) -> None:
        """Give out records in this order."""
        if records and not self.absolute and not self._relative:
            self._relative = True
            self.note(RELATIVE, level="info")
        self._out += records

    def note(self, text: str, *, level: Level = "warning", place: str = "") -> None:
        """Say something about the file."""
        self._notices.add(level, text, file=self.file, place=place)

    def start_job(self, epoch_us: float) -> None:
        """A header, or (in old files, which have none) the first tensor named once more."""
        if self.tensors or self.cycles.last is not None:
            self.note(SECOND_JOB)
            self.end_job()
        self.tensors.clear()
        self.busy.clear()
        self.latest, self.epoch_us = -math.inf, epoch_us
        self.cycles = CycleMeter(self.file, epoch_us)

    def end_job(self) -> None:
        """Nothing more comes of this job: tell what is open."""
        self.emit(self.cycles.close())
        for tensor in sorted(self.busy, key=lambda tensor: (tensor.begin, tensor.pid)):
            if tensor.busy:  # not told with its group yet
                self.tell([tensor] if tensor.group is None else tensor.group.members)

    def finish(self) -> None:
        """Tell what is still open, and what is to be said of the file as a whole."""
        self.end_job()
        if self.told == 0:
            self.note(EMPTY, level="info")
        if self.without_ticks > self.with_ticks:
            total = self.with_ticks + self.without_ticks
            self.note(CACHED.format(without=self.without_ticks, total=total), level="info")
