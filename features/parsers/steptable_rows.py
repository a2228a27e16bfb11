"""The rows of a table of training steps, collected cell by cell while the table is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from features.notices import Notices
from features.parsers.clocks import find_iso
from features.parsers.steptable_map import DURATIONS, TIMES, UNSURE_TIME, StepMap

NUMBERS: Final = ("step", "epoch", "batch", "loss", "grad_norm", "param_norm", "rss_bytes", *DURATIONS)
CLOCKS: Final = (*TIMES, UNSURE_TIME)
NO_RANK: Final = "no column for the rank: all rows are taken as those of rank 0"
NAMES_AS_RANKS: Final = "ranks are named, not numbered: numbered in the order of their names"
_NUMBERED: Final = re.compile(r"(.*?)(\d{1,9})")
LARGEST_RANK: Final = 10_000_000
"""No job has more; a larger number is a process id or a key."""


class Rows(msgspec.Struct):
    """Columns of equal length, a row for each step of each rank; None = the cell is empty or no number."""

    ranks: list[int]
    lines: list[int]
    values: dict[str, list[float | None]]
    names: dict[int, str] = {}  # rank -> its node, or its own name where ranks are named


class RowCollector:
    """Takes one row after the other; what cannot be used is counted in the notices, and the rest of its row is used."""

    def __init__(self, step_map: StepMap, file: str, notices: Notices) -> None:
        self._columns = {field: column.name for field, column in step_map.columns.items()}
        self._file, self._notices = file, notices
        self._labels: list[str] = []
        self._nodes: dict[str, str] = {}
        self._lines: list[int] = []
        self._values: dict[str, list[float | None]] = {f: [] for f in (*NUMBERS, *CLOCKS) if f in self._columns}

    def add(self, line: int, cell: Callable[[str], object]) -> None:
        """Take the row at `line`; `cell` gives the content of a column by its name, None for nothing."""
        label = self._label(line, cell)
        if label is None:
            return
        self._labels.append(label)
        self._lines.append(line)
        for field, values in self._values.items():
            values.append(self._number(field, cell(self._columns[field]), line))
        if "node" in self._columns and (node := _text(cell(self._columns["node"]))):
            self._nodes.setdefault(label, node)

    def finish(self) -> Rows:
        """All rows; ranks as numbers."""
        if "rank" not in self._columns and self._labels:
            self._notices.add("info", NO_RANK, file=self._file)
        numbers, are_names = _numbered(set(self._labels))
        if are_names:
            self._notices.add("info", NAMES_AS_RANKS, file=self._file)
        names = {numbers[label]: label for label in sorted(numbers)} if are_names else {}
        names |= {numbers[label]: node for label, node in sorted(self._nodes.items())}
        return Rows([numbers[label] for label in self._labels], self._lines, self._values, names)

    def _label(self, line: int, cell: Callable[[str], object]) -> str | None:
        if "rank" not in self._columns:
            return "0"
        label = _text(cell(self._columns["rank"]))
        if not label:
            self._note("row without a rank left out", line)
            return None
        return label

    def _number(self, field: str, cell: object, line: int) -> float | None:
        value = _number(cell)
        if value is None and field in CLOCKS and isinstance(cell, str) and (stamp := find_iso(cell.strip(), 2)) is not None:
            if stamp.missing == "zone":
                self._notices.add("info", "time without zone read as UTC", file=self._file, place=f"line {line}")
            return stamp.ts
        if value is None and _text(cell):
            self._note(f"{self._columns[field]} is no number: taken as not known", line)
        return value

    def _note(self, text: str, line: int) -> None:
        self._notices.add("warning", text, file=self._file, place=f"line {line}")


def _text(cell: object) -> str:
    """A cell as text; whole floats as whole numbers, as columns with gaps turn into floats."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def _number(cell: object) -> float | None:
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, (int, float, str)):
        try:
            return float(cell)
        except (ValueError, OverflowError):
            return None
    if isinstance(cell, datetime):  # of typed columns
        return (cell.replace(tzinfo=UTC) if cell.tzinfo is None else cell).timestamp()
    return None


def _numbered(labels: set[str]) -> tuple[dict[str, int], bool]:
    """Label -> rank, and whether the labels are names: "3" is 3, "worker-3" is 3 among its like, others are counted."""
    matches = {label: _NUMBERED.fullmatch(label.removesuffix(".0")) for label in labels}
    stems = {None if m is None else m[1] for m in matches.values()}
    numbers = {label: int(m[2]) for label, m in matches.items() if m is not None}
    are_distinct = len(numbers) == len(labels) == len(set(numbers.values()))
    if are_distinct and len(stems) <= 1 and max(numbers.values(), default=0) <= LARGEST_RANK:
        return numbers, bool(stems - {""})
    return {label: i for i, label in enumerate(sorted(labels, key=_naturally))}, True


def _naturally(label: str) -> list[tuple[int, str]]:
    """A key under which worker2 comes before worker10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", label)]
