"""Reads any training or launcher log: steps, phases, facts about the run, and known messages."""

from __future__ import annotations

import re
from typing import Literal

from features.notices import Notices
from features.parsers import steplines, textevents, textphases
from features.parsers.clocks import Stamp, find_iso
from features.parsers.loglines import LineSplitter
from features.parsers.prefixes import Piece, TagJoiner, strip_escapes
from features.parsers.protocol import ParserRow
from features.parsers.textblocks import TEXT_KEPT, Blocks, Line
from features.parsers.texthead import HeadReader
from features.parsers.textsteps import StepReader
from features.parsers.texttimes import Timekeeper
from features.records import Log, Phase, Record, RunInfo

NO_ZONE = "time without zone read as UTC"
NO_YEAR = "time without year: counted from 1972, only differences mean something"
NO_DATE = "time without date: counted from 1970, only differences mean something"
FROM_BOOT = "times are seconds since boot, only differences mean something"
NO_TIME = "no time in this file: its records count from 0"
NO_RANK = "no rank named: steps are taken as those of rank 0"
NULS = "NUL bytes left out"
BAD_UTF8 = "bytes that are not UTF-8 replaced"
_MISSING = {"zone": NO_ZONE, "year": NO_YEAR, "date": NO_DATE, "boot": FROM_BOOT}

_FILE_RANK = re.compile(r"(?:^|[/._-])rank[._-]?(\d{1,7})(?=[/._-]|$)")


def sniff(head: bytes) -> bool:
    """Whether these first bytes are text: mostly printable, whatever the encoding."""
    if not head.strip(b"\0 \r\n\t"):
        return False
    sample = head[:8192]
    odd = sum(byte < 32 and byte not in b"\t\n\r\x1b\b\f" for byte in sample)
    odd += sample.decode("utf-8", errors="replace").count("\ufffd")
    return odd * 10 <= len(sample)


class TextLog:
    """Feed it bytes in any chunking; lines that say nothing known are counted in `unknown_lines`.

    `zoned` is False once a time had no zone, `absolute` True once a time was a full one. Where the program itself
    names the rank and only one rank so far, lines without rank are that rank's; in a launcher's file, which tags
    the lines of ranks, they are the launcher's own.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        self.unknown_lines = 0
        self.zoned = True
        self.absolute = False
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices)
        self._joiner = TagJoiner()
        self._heads = HeadReader()
        self._times = Timekeeper()
        self._blocks = Blocks(file)
        self._steps = StepReader(file, notices)
        self._ending = False  # the launcher ends the other processes: that they end by SIGTERM follows from that
        self._world: int | None = None
        self._settings: dict[str, str] = {}
        self._nodes: dict[int, str] = {}
        self._own_ranks: set[int] = set()
        match = _FILE_RANK.search(file.replace("\\", "/"))
        self._file_rank = None if match is None else int(match[1])

    def feed(self, data: bytes) -> list[Record]:
        """Records that `data` completes."""
        records: list[Record] = []
        for line in self._lines.feed(data):
            self._physical(line, records)
        return records

    def finish(self) -> list[Record]:
        """Records that were still open."""
        records: list[Record] = []
        for line in self._lines.finish():
            self._physical(line, records)
        for piece in self._joiner.finish():
            self._piece(piece, records)
        records.extend(self._blocks.finish())
        held = self._times.finish()
        if held:
            self._note("info", NO_TIME, 1)
        records.extend(held)
        return records

    def _physical(self, line: bytes, records: list[Record]) -> None:
        number = self._lines.number
        if b"\0" in line:
            line = line.replace(b"\0", b"")
            self._note("warning", NULS, number)
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode(errors="replace")
            self._note("warning", BAD_UTF8, number)
        for piece in self._joiner.feed(number, strip_escapes(text)):
            self._piece(piece, records)

    def _piece(self, piece: Piece, records: list[Record]) -> None:
        if " step_time=" in piece.text and self._recorded(piece, records):
            return
        if "\r" not in piece.text:
            self._line(piece, records)
            return
        for part in piece.text.split("\r"):
            if part:
                self._line(piece._replace(text=part), records)

    def _recorded(self, piece: Piece, records: list[Record]) -> bool:
        stamp = find_iso(piece.text)
        if stamp is None or stamp.start > 0:
            return False
        found = steplines.recorded(piece.text[stamp.end :].lstrip())
        if found is None:
            return False
        rank, host, fields = found
        step = steplines.recorded_step(stamp.ts, rank, fields, f"{self._file}:{piece.number}")
        if step is None:
            return False
        self._heads.clock.note(stamp)
        self._clocked(stamp, piece.number, records)
        self._placed(rank, host, stamp.ts, piece.number, records)
        self._own_ranks.add(rank)
        self._times.step(rank, stamp.ts, None)
        self._steps.seen(rank, step.step)
        records.append(step)
        return True

    def _line(self, piece: Piece, records: list[Record]) -> None:
        key = (piece.rank, piece.stream)
        head = self._heads.read(piece, self._blocks.listing(key))
        rank = head.rank
        if head.stamp is not None:
            self._clocked(head.stamp, piece.number, records)
        if rank is not None and head.own_rank:
            self._own_ranks.add(rank)
        elif rank is None and not self._joiner.tagged and len(self._own_ranks) == 1:
            (rank,) = self._own_ranks
        own_ts = None if head.stamp is None else head.stamp.ts
        line = Line(piece.number, head.text, rank, head.node, piece.stream, own_ts)
        if rank is not None and head.node is not None and head.own_rank:
            self._placed(rank, head.node, self._times.moment(own_ts), piece.number, records)
        before = len(records)
        self._known(key, line, records)
        if len(records) == before and line.text.strip() and not self._blocks.took:
            self.unknown_lines += 1

    def _known(self, key: tuple[int | None, str], line: Line, records: list[Record]) -> None:
        self._facts(line, records)
        timed = line if line.ts is not None else line._replace(ts=self._times.now)
        records.extend(self._blocks.feed(key, timed, self._world))
        if self._blocks.took:
            return
        happening = textphases.phase_in(line.text)
        if happening is not None:
            self._phase(happening, line, records)
        else:
            self._step(line, records)
        if happening is None and textevents.promising(line.text):
            self._event(timed, records)

    def _facts(self, line: Line, records: list[Record]) -> None:
        world = textphases.world_in(line.text)
        settings = textphases.settings_in(line.text)
        if world is None and not settings:
            return
        settings = {key: value for key, value in settings.items() if self._settings.get(key) != value}
        self._settings |= settings
        new = world is not None and world != self._world
        self._world = self._world if world is None else world
        if settings or new:
            ts = self._times.moment(line.ts)
            source = f"{self._file}:{line.number}"
            records.extend(self._times.settle(RunInfo(ts=ts, world_size=world, settings=settings, source=source)))

    def _phase(self, happening: textphases.Happening, line: Line, records: list[Record]) -> None:
        phase = Phase(
            ts=self._times.moment(line.ts),
            kind=happening.kind,
            rank=line.rank if line.rank is not None else self._file_rank,
            duration_s=happening.duration_s,
            step=happening.step,
            epoch=happening.epoch,
            source=f"{self._file}:{line.number}",
        )
        records.extend(self._times.settle(phase))

    def _step(self, line: Line, records: list[Record]) -> None:
        reading = self._steps.read(line.text, line.number)
        if reading is None:
            return
        rank = next((r for r in (reading.rank, line.rank, self._file_rank) if r is not None), None)
        if rank is None:
            rank = 0
            self._note("info", NO_RANK, line.number)
        number = self._steps.number(reading, rank)
        if number is None:
            return
        own = reading.ts if line.ts is None else line.ts
        if reading.ts is not None:
            self._clocked(Stamp(reading.ts, 0, 0, ""), line.number, records)
        duration = self._steps.duration(reading, rank, number)
        ts = self._times.step(rank, own, duration)
        step = steplines.build(reading, ts, rank, number, f"{self._file}:{line.number}")
        records.extend(self._times.settle(step))

    def _event(self, line: Line, records: list[Record]) -> None:
        found = textevents.find(line.text)
        if found is None:
            return
        self._ending = self._ending or "Terminating remaining" in line.text
        if self._ending and found.event == "process_exit" and found.fields.get("signal") == "SIGTERM":
            found = found._replace(event="process_terminated")
        records.append(
            Log(
                ts=line.ts,
                event=found.event,
                text=line.text.strip()[:TEXT_KEPT],
                rank=found.rank if line.rank is None else line.rank,
                node=line.node if found.node is None else found.node,
                ranks=found.ranks,
                fields=found.fields,
                source=f"{self._file}:{line.number}",
            )
        )

    def _clocked(self, stamp: Stamp, number: int, records: list[Record]) -> None:
        if stamp.missing:
            self._note("info", _MISSING[stamp.missing], number)
            self.zoned = False
        self.absolute = self.absolute or stamp.missing in {"", "zone"}
        if self._times.now != stamp.ts:
            records.extend(self._times.clock(stamp.ts))
        records.extend(self._blocks.overdue(stamp.ts, self._world))

    def _placed(self, rank: int, node: str | None, ts: float, number: int, records: list[Record]) -> None:
        if node is not None and self._nodes.get(rank) != node:
            self._nodes[rank] = node
            info = RunInfo(ts=ts, nodes={rank: node}, source=f"{self._file}:{number}")
            records.extend(self._times.settle(info))

    def _note(self, level: Literal["info", "warning"], text: str, number: int) -> None:
        self._notices.add(level, text, file=self._file, place=f"line {number}")


TEXT_LOG = ParserRow("log", sniff, TextLog)
