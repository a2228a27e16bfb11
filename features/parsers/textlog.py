"""Reads any training or launcher log: steps, phases, facts about the run, and known messages."""

from __future__ import annotations

import re
from typing import Literal

from features.notices import Notices
from features.parsers import steplines, textevents, textphases
from features.parsers.clocks import Stamp
from features.parsers.loglines import LineSplitter
from features.parsers.prefixes import Piece, TagJoiner, strip_escapes
from features.parsers.protocol import ParserRow
from features.parsers.textblocks import Blocks
from features.parsers.textcascade import Aftermath
from features.parsers.texthead import Head, HeadReader
from features.parsers.textline import SCAN_MAX, Line
from features.parsers.textsteps import StepReader
from features.parsers.texttimes import Timed, Timekeeper
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
_GLUED = re.compile(r"(?<=[\]%])(?=(?:WARNING|ERROR|INFO|CRITICAL|Traceback)\b)")  # a message right after a progress bar


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

    `zoned` is False once a time had no zone, `absolute` True once a time was a full one. Lines without rank are the
    launcher's own in a launcher's file; else they are those of the rank that the file is named after, or of the one
    rank that the program itself names in most lines so far.
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
        self._aftermath = Aftermath()
        self._world: int | None = None
        self._settings: dict[str, str] = {}
        self._nodes: dict[int, str] = {}
        self._own_ranks: set[int] = set()
        self._balance = 0  # lines in which the program names its rank, minus those without any rank
        self._out: list[Record] = []
        match = _FILE_RANK.search(file.replace("\\", "/"))
        self._file_rank = None if match is None else int(match[1])

    def feed(self, data: bytes) -> list[Record]:
        """Records that `data` completes."""
        for line in self._lines.feed(data):
            self._physical(line)
        return self._take()

    def finish(self) -> list[Record]:
        """Records that were still open."""
        for line in self._lines.finish():
            self._physical(line)
        for piece in self._joiner.finish():
            self._piece(piece)
        self._logs(self._blocks.close(self._world))
        if held := self._times.finish():
            self._note("info", NO_TIME, 1)
            self._out.extend(held)
        return self._take()

    def _take(self) -> list[Record]:
        records, self._out = self._out, []
        return records

    def _physical(self, line: bytes) -> None:
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
            self._piece(piece)

    def _piece(self, piece: Piece) -> None:
        text = piece.text
        if " step_time=" in text and self._recorded(piece):
            return
        parts = text.split("\r") if "\r" in text else [text]
        for part in parts:
            for message in _GLUED.split(part) if "]" in part and "it" in part else (part,):
                self._line(piece if message is text else piece._replace(text=message))

    def _recorded(self, piece: Piece) -> bool:
        """The layout of recorded runs, by a short way: most lines of a run are these."""
        found = steplines.recorded(piece.text, self._file, piece.number)
        if found is None:
            return False
        step = found.step
        self._clocked(Stamp(step.ts, 0, 0, "" if found.zoned else "zone"), piece.number)
        if found.host is not None:
            self._placed(step.rank, found.host, step.ts, piece.number)
        self._own_ranks.add(step.rank)
        self._balance += 1
        self._times.step(step.rank, step.step, step.ts, None)
        self._steps.seen(step.rank, step.step)
        self._out.append(step)
        return True

    def _line(self, piece: Piece) -> None:
        if not piece.text.strip():
            return
        key = (piece.rank, piece.stream)
        head = self._heads.read(piece, self._blocks.listing(key))
        stamp = head.stamp
        if stamp is not None and stamp.missing == "boot" and self.absolute:
            stamp = None  # two clocks in one file: the one that means something is kept
        if stamp is not None:
            self._clocked(stamp, piece.number)
        rank = self._writer(head)
        own_ts = None if stamp is None else stamp.ts
        line = Line(piece.number, head.text, rank, head.node, piece.stream, own_ts)
        if rank is not None and head.node is not None and head.own_rank:
            self._placed(rank, head.node, self._times.moment(own_ts), piece.number)
        if not self._known(key, line):
            self.unknown_lines += 1

    def _writer(self, head: Head) -> int | None:
        """The rank that wrote a line."""
        if head.rank is not None:
            if head.own_rank:
                self._own_ranks.add(head.rank)
                self._balance += 1
            return head.rank
        self._balance -= 1
        if self._joiner.tagged or self._heads.labelled:
            return None
        if self._file_rank is not None:
            return self._file_rank
        return next(iter(self._own_ranks)) if len(self._own_ranks) == 1 and self._balance >= 0 else None

    def _known(self, key: tuple[int | None, str], line: Line) -> bool:
        """Read what `line` says; False if that is nothing known."""
        scanned = line if len(line.text) <= SCAN_MAX else line._replace(text=line.text[:SCAN_MAX])
        known = self._facts(scanned)
        timed = line if line.ts is not None else line._replace(ts=self._times.now)
        took, logs = self._blocks.feed(key, timed, self._world)
        self._logs(logs)
        if took:
            return True
        happening = textphases.phase_in(scanned.text)
        if happening is not None:
            self._phase(happening, line)
            return True
        known = self._step(line) or known
        if textevents.promising(scanned.text):
            known = self._event(scanned._replace(ts=timed.ts)) or known
        return known

    def _facts(self, line: Line) -> bool:
        """What the run says of itself."""
        facts = textphases.facts_in(line.text)
        if facts is None:
            return False
        world = facts.world_size
        settings = {key: value for key, value in facts.settings.items() if self._settings.get(key) != value}
        self._settings |= settings
        grown = world is not None and world != self._world
        self._world = self._world if world is None else world
        ts = self._times.moment(line.ts)
        if settings or grown:
            info = RunInfo(ts=ts, world_size=world, settings=settings, source=f"{self._file}:{line.number}")
            self._emit(info)
        for rank, node in facts.nodes.items():
            self._placed(rank, node, ts, line.number)
        return True

    def _phase(self, happening: textphases.Happening, line: Line) -> None:
        phase = Phase(
            ts=self._times.moment(line.ts),
            kind=happening.kind,
            rank=line.rank,
            duration_s=happening.duration_s,
            step=happening.step,
            epoch=happening.epoch,
            source=f"{self._file}:{line.number}",
        )
        self._emit(phase)

    def _step(self, line: Line) -> bool:
        reading = self._steps.read(line.text)
        if reading is None:
            return False
        rank = next((r for r in (reading.rank, line.rank, self._file_rank) if r is not None), None)
        if rank is None:
            rank = 0
            self._note("info", NO_RANK, line.number)
        number = self._steps.number(reading, rank, line.number)
        if number is None:
            return True
        if reading.ts is not None:
            self._clocked(Stamp(reading.ts, 0, 0, ""), line.number)
        reading = self._steps.complete(reading, rank, number, line.number)
        own = reading.ts if line.ts is None else line.ts
        ts = self._times.step(rank, number, own, reading.values.get("duration_s"))
        self._emit(steplines.build(reading, ts, rank, number, f"{self._file}:{line.number}"))
        return True

    def _event(self, line: Line) -> bool:
        found = textevents.find(line.text)
        if found is None:
            return False
        self._logs(self._blocks.close(self._world, stalls_only=True))  # what came before goes before
        self._logs([textevents.record(found, line, f"{self._file}:{line.number}")])
        return True

    def _logs(self, logs: list[Log]) -> None:
        for log in logs:
            self._emit(self._aftermath.judge(log))

    def _clocked(self, stamp: Stamp, number: int) -> None:
        if stamp.missing:
            self._note("info", _MISSING[stamp.missing], number)
            self.zoned = False
        self.absolute = self.absolute or stamp.missing in {"", "zone"}
        self._heads.clock.note(stamp)
        self._out.extend(self._times.clock(stamp.ts))
        if self._blocks.open:
            self._logs(self._blocks.overdue(stamp.ts, self._world))

    def _placed(self, rank: int, node: str, ts: float, number: int) -> None:
        if self._nodes.get(rank) != node:
            self._nodes[rank] = node
            self._emit(RunInfo(ts=ts, nodes={rank: node}, source=f"{self._file}:{number}"))

    def _emit(self, record: Timed) -> None:
        self._out.extend(self._times.settle(record))

    def _note(self, level: Literal["info", "warning"], text: str, number: int) -> None:
        self._notices.add(level, text, file=self._file, place=f"line {number}")


TEXT_LOG = ParserRow("log", sniff, TextLog)
