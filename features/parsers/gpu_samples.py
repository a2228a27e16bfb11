"""Turns the cells of a sample, whatever tool wrote them, into records: the common end of all parsers of GPU telemetry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from features.notices import Notices
from features.parsers import gpu_events
from features.parsers.gpu_columns import WHO, WHO_AND_WHEN, Column
from features.parsers.gpu_events import Remark, Whom
from features.parsers.gpu_identity import Devices, Who, who_of
from features.parsers.gpu_rows import CELL_CAP
from features.parsers.gpu_times import SampleClock
from features.parsers.gpu_values import THERMAL_VIOLATION, pci_in, plain, reasons_of, value_of
from features.records import Gpu, Record

OLD_XID = "Xid {xid} is there from the first sample on: it happened at an unknown time before"
TOO_MANY = "more devices than a GPU table can have: those beyond are left out"
NO_DEVICE = "a tool found no GPU"

Cell = tuple[Column, str]


class _Past(msgspec.Struct):
    """What the samples of one GPU said so far."""

    is_lost: bool = False
    remap_failed: float | None = None
    thermal_counter: float | None = None
    errors: dict[str, float] | None = None  # counters of uncorrected errors that are told from the first on
    has_xid: bool = False
    samples: int = 0


class Samples:
    """The samples of one file. Give it the cells of each, in the order of the file."""

    def __init__(self, file: str, notices: Notices) -> None:
        self.clock = SampleClock(file, notices)
        self.devices = Devices(file)
        self._file, self._notices = file, notices
        self._past: dict[str, _Past] = {}
        self._newest: float | None = None

    def add(self, ts: float | None, cells: Iterable[Cell], place: str) -> list[Record]:
        """Records of one sample of one GPU; `ts` is None where no sample of the file has a time."""
        chosen = _chosen(cells)
        who = who_of(tuple((key, text) for key, (_, text) in chosen.items() if key in WHO))
        asked = {key: cell for key, cell in chosen.items() if key not in WHO_AND_WHEN}
        said = gpu_events.what_is_lost([text for _, text in asked.values()])
        if said is not None:
            gpu = self.devices.whose_turn(who, ts)
            return [] if gpu is None else self._lost(self._whom(gpu, who, ts, place), said)
        gpu = self.devices.identity(who, ts)
        if gpu is None:
            self._note("warning", TOO_MANY, place)
            return []
        whom = self._whom(gpu, who, ts, place)
        self.clock.check(gpu, whom.ts, place)
        change = self.devices.replaced(who, gpu, whom.ts)
        replaced = [] if change is None else [gpu_events.replaced(whom, change)]
        return [*replaced, *self._measured(whom, asked, place)]

    def remark(self, remark: Remark, place: str) -> list[Record]:
        """Records of a sentence that a tool wrote between its samples."""
        if remark.about == "tool" or (remark.about == "all" and not self.devices.order):
            self._note("warning", NO_DEVICE if remark.about == "all" else f"instead of a sample: {remark.text}", place)
            return []
        if remark.about == "all":
            gone = list(self.devices.order)
        else:
            one = self.devices.whose_turn(Who(pci=pci_in(remark.text)), None)
            gone = [] if one is None else [one]
        return [r for gpu in gone for r in self._lost(self._whom(gpu, Who(), self._newest, place), remark.text)]

    def _whom(self, gpu: str, who: Who, ts: float | None, place: str) -> Whom:
        at = self.clock.count(gpu, place) if ts is None else ts
        self._newest = at
        return Whom(gpu, at, f"{self._file}:{place.removeprefix('line ')}", who.node or self.devices.home, who.rank)

    def _lost(self, whom: Whom, said: str) -> list[Record]:
        past = self._past.setdefault(whom.gpu, _Past())
        was_lost, past.is_lost = past.is_lost, True
        return [] if was_lost else [gpu_events.lost(whom, said)]

    def _measured(self, whom: Whom, asked: dict[str, Cell], place: str) -> list[Record]:
        values = {key: v for key, (c, text) in asked.items() if (v := self._value(key, c, text, place)) is not None}
        past = self._past.setdefault(whom.gpu, _Past())
        past.samples += 1
        past.is_lost = False
        self._note_old_xid(past, values.get("xid"), place)
        total = values.get("memory_total")
        if total is None and "memory_used" in values and "memory_free" in values:
            total = values["memory_used"] + values["memory_free"]
        record = Gpu(
            ts=whom.ts,
            gpu=whom.gpu,
            node=whom.node,
            rank=whom.rank,
            utilization_ratio=values.get("utilization"),
            memory_used_bytes=values.get("memory_used"),
            memory_total_bytes=total,
            power_w=values.get("power"),
            power_limit_w=values.get("power_limit"),
            sm_clock_hz=values.get("sm_clock"),
            temperature_c=values.get("temperature"),
            throttle=_reasons(asked, _heat(past, values)),
            ecc_uncorrected=_errors(past, values),
            xid=None if "xid" not in values else int(values["xid"]),
            source=whom.source,
        )
        return [record, *_failed_remap(past, values.get("remap_failed"), whom)]

    def _value(self, key: str, column: Column, text: str, place: str) -> float | None:
        if key.startswith("reason"):
            return None
        value = value_of(key, text, column.unit)
        if value.problem:
            self._note("warning", value.problem, place)
        return value.known

    def _note_old_xid(self, past: _Past, xid: float | None, place: str) -> None:
        if xid is not None and xid > 0 and not past.has_xid and past.samples == 1:
            self._note("info", OLD_XID.format(xid=int(xid)), place)
        past.has_xid = past.has_xid or xid is not None

    def _note(self, level: Literal["info", "warning"], text: str, place: str) -> None:
        self._notices.add(level, text, file=self._file, place=place)


def _chosen(cells: Iterable[Cell]) -> dict[str, Cell]:
    """One cell for each key: the preferred column that has a value, else the first one."""
    given = [cell if len(cell[1]) <= CELL_CAP else (cell[0], cell[1][:CELL_CAP]) for cell in cells]
    chosen = {cell[0].key: cell for cell in given}
    if len(chosen) == len(given):
        return chosen
    chosen.clear()
    for column, text in sorted(given, key=lambda cell: cell[0].order):
        known = chosen.get(column.key)
        if known is None or (_says_nothing(known) and not _says_nothing((column, text))):
            chosen[column.key] = (column, text)
    return chosen


def _says_nothing(cell: Cell) -> bool:
    column, text = cell
    if column.key.startswith("reason") or column.key in WHO_AND_WHEN:
        return not plain(text) or plain(text) in {"n/a", "-"}
    return value_of(column.key, text, column.unit).known is None


def _errors(past: _Past, values: dict[str, float]) -> int | None:
    """Uncorrected errors and rows remapped for them, together; a counter that comes later would look like growth."""
    now: dict[str, float] = {key: values[key] for key in ("ecc", "remapped") if key in values}
    if past.errors is None:
        past.errors = now or None
    elif now:
        past.errors |= {key: value for key, value in now.items() if key in past.errors}
    return int(sum(past.errors.values())) if past.errors and now else None


def _failed_remap(past: _Past, failed: float | None, whom: Whom) -> list[Record]:
    """The message that a remap failed, once; an old failure is told as such."""
    before, past.remap_failed = past.remap_failed, past.remap_failed if failed is None else failed
    return [gpu_events.remap_failed(whom, is_old=before is None)] if failed == 1.0 and before != 1.0 else []


def _heat(past: _Past, values: dict[str, float]) -> bool | None:
    """Whether clocks were held down by heat since the sample before, by a counter of such time or a flag; None: unknown."""
    counter, before = values.get("thermal_counter"), past.thermal_counter
    past.thermal_counter = before if counter is None else counter
    if values.get("thermal_flag") is not None:
        return values["thermal_flag"] > 0
    return None if counter is None or before is None else counter > before


def _reasons(asked: dict[str, Cell], heat: bool | None) -> tuple[str, ...] | None:
    """Why clocks are held down: from a bit mask, flags of single reasons, or time spent so; None where nothing says it."""
    found: list[str] = []
    is_known = heat is not None
    for key, (_, text) in asked.items():
        if key == "reasons":
            mask = reasons_of(text)
            is_known = is_known or mask is not None
            found += mask or ()
        elif key.startswith("reason:"):
            said = plain(text)
            is_known = is_known or said in {"active", "not active"}
            found += [key.partition(":")[2]] if said == "active" else []
    found += [THERMAL_VIOLATION] if heat else []
    return tuple(dict.fromkeys(found)) if is_known else None
