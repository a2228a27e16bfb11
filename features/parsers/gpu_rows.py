"""Cuts GPU tables of comma-separated values into rows: quotes over several lines, odd encodings, bounded memory."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import NamedTuple

from features.notices import Notices
from features.parsers.loglines import LineSplitter

ROW_CAP = 1 << 16  # bytes; amd-smi's widest rows (140 columns of lists) take 4 KiB
CELL_CAP = 256  # characters; nothing that is read is longer, and what was read before is kept in mind
JOINED_MAX = 16  # lines that one quoted cell may span; beyond, the quote is a stray one

OPEN_QUOTE = "quote that is never closed: taken for a stray one"
DAMAGED = "damaged row left out"
BROKEN_CELL = "line break in a cell: what follows it belongs to another device and is left out"

DELIMITERS = ",;\t"


class Row(NamedTuple):
    """The cells of a row, or the line itself where it has no cells to speak of."""

    number: int
    text: str
    cells: list[str]
    has_end: bool = True  # False: the file ends in the middle of this line, perhaps of its last cell


def clean(line: bytes) -> str:
    """A line as text; UTF-16, which some shells write, is ASCII with NULs."""
    return line.replace(b"\0", b"").removeprefix(b"\xff\xfe").decode(errors="replace").lstrip("\ufeff")


def delimiter_of(text: str) -> str:
    """What separates the cells of this line: the most frequent of the usual separators."""
    return max(DELIMITERS, key=text.count)


class RowReader:
    """Rows of a file, whatever the chunks; the separator is that of the first line that has one."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices, ROW_CAP)
        self._held: list[str] = []
        self._delimiter: str | None = None

    def feed(self, data: bytes) -> Iterator[Row]:
        """Rows that `data` completes."""
        for line in self._lines.feed(data):
            yield from self._line(clean(line))

    def finish(self) -> Iterator[Row]:
        """What was still open."""
        for line in self._lines.finish():
            yield from (row._replace(has_end=False) for row in self._line(clean(line)))
        yield from self._give_up()

    def _line(self, text: str) -> Iterator[Row]:
        if not self._held and '"' not in text:
            yield from self._row(text, self._lines.number)
            return
        self._held.append(text)
        if sum(part.count('"') for part in self._held) % 2 == 0:
            held, self._held = self._held, []
            yield from self._row("\n".join(held), self._lines.number - len(held) + 1)
        elif len(self._held) >= JOINED_MAX or sum(map(len, self._held)) > ROW_CAP:
            yield from self._give_up()

    def _give_up(self) -> Iterator[Row]:
        """The lines that were held for a closing quote, one by one and without quotes."""
        held, self._held = self._held, []
        first = self._lines.number - len(held) + 1
        for number, text in enumerate(held, start=first):
            if text.count('"') % 2:
                self._note(OPEN_QUOTE, number)
            yield from self._row(text.replace('"', ""), number)

    def _row(self, text: str, number: int) -> Iterator[Row]:
        if not text.strip():
            return
        if self._delimiter is None and any(d in text for d in DELIMITERS):
            self._delimiter = delimiter_of(text)
        try:
            cells = next(csv.reader([text], delimiter=self._delimiter or ",", skipinitialspace=True), [])
        except csv.Error:
            self._note(DAMAGED, number)
            return
        if any("\n" in cell for cell in cells):
            self._note(BROKEN_CELL, number)
        yield Row(number, text, [cell.partition("\n")[0].strip()[:CELL_CAP] for cell in cells])

    def _note(self, text: str, number: int) -> None:
        self._notices.add("warning", text, file=self._file, place=f"line {number}")
