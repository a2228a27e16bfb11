"""Which column of a table of training steps means what: as a person says it, or as obvious names tell."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from features.errors import SettingsError

UNITS_S: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds in one of each unit that names of columns end in."""
DURATIONS: Final = ("duration", "data", "forward", "backward", "sync", "optimizer")
TIMES: Final = ("ts", "start_ts")
PLAIN: Final = ("rank", "step", "node", "epoch", "batch", "loss", "grad_norm", "param_norm", "rss_bytes")
UNSURE_TIME: Final = "time"
"""A column of this name holds step numbers in one table and clock times in the next: its values decide."""
_KEYS: Final = (*PLAIN, *TIMES, *DURATIONS, *(f"{d}_{u}" for d in (*DURATIONS, "ts", "start_ts") for u in UNITS_S))

_OBVIOUS: Final[dict[str, tuple[str, ...]]] = {
    "rank": ("rank", "global_rank", "worker_rank", "worker", "worker_id", "worker_index", "replica", "process", "dp_rank"),
    "step": (
        *("step", "global_step", "training_iteration", "iteration", "iter", "step_num", "step_id"),
        *("batch_idx", "batch_index"),
    ),
    "duration": (
        *("step_time", "step_duration", "batch_time", "batch_duration", "iter_time", "iteration_time", "iter_duration"),
        *("iteration_duration", "mini_batch_time", "time_per_step", "time_per_iteration", "time_per_batch", "duration"),
    ),
    "data": ("data_time", "data_wait", "data_loading_time", "dataloader_time", "load_time", "input_time"),
    "forward": ("forward_time", "fwd_time", "forward", "fwd"),
    "backward": ("backward_time", "bwd_time", "backward", "bwd"),
    "sync": ("sync_time", "comm_time", "communication_time", "allreduce_time"),
    "optimizer": ("optimizer_time", "optim_time", "opt_time", "optimizer_step_time"),
    "ts": ("timestamp", "ts", "time_stamp", "wall_time", "unix_time", "datetime", "end_ts", "end_time"),
    "start_ts": ("start_ts", "start_time", "start_timestamp"),
    "node": ("node", "host", "hostname", "machine", "node_name"),
    "loss": ("loss", "train_loss", "training_loss"),
    "grad_norm": ("grad_norm", "gradient_norm"),
    "epoch": ("epoch",),
    "batch": ("batch_size", "samples"),
    UNSURE_TIME: ("time",),
}
"""What is taken without being told: names under which tables in the wild keep these columns."""
_FIELD_OF: Final = {name: field for field, names in _OBVIOUS.items() for name in names}
_UNIT: Final = re.compile(r"_(s|sec|secs|seconds?|ms|msec|millis|milliseconds?|us|usec|micros|microseconds?|ns|nanoseconds?)$")
_NO_UNIT: Final = re.compile(r"_(norm|normalized|normalised|rel|relative|scaled)$")
_SHORT: Final = {"m": "ms", "u": "us", "n": "ns", "s": "s"}


class Column(NamedTuple):
    """A column and what one of its numbers is in seconds: None = its unit is not told, 0.0 = told to have none."""

    name: str
    unit_s: float | None = None


class StepMap(msgspec.Struct, frozen=True):
    """Field of a step -> the column that holds it. `told`: a person said so, so that a column that is missing is an error."""

    columns: dict[str, Column]
    told: bool = False

    @classmethod
    def parse(cls, text: str) -> StepMap:
        """Read "rank=worker,duration_s=batch_time,step=time"; raises SettingsError for what nobody could mean.

        >>> StepMap.parse("rank=worker, duration_ms=took").columns["duration"]
        Column(name='took', unit_s=0.001)
        """
        columns: dict[str, Column] = {}
        for part in text.split(","):
            key, equals, name = (piece.strip() for piece in part.partition("="))
            if not equals or not key or not name:
                raise _refuse("FIELD=COLUMN pairs with commas between them", repr(part.strip()))
            if key not in _KEYS:
                near = difflib.get_close_matches(key, _KEYS, n=1)
                remedy = f"did you mean {near[0]}?" if near else "see docs/inputs.md for what a step holds"
                raise _refuse(f"one of {', '.join((*PLAIN, *TIMES, *(f'{d}_s' for d in DURATIONS)))}", key, remedy)
            field, unit = _split_unit(key)
            if field in columns:
                raise _refuse("each field once", f"{field} twice")
            columns[field] = _with_hint(name, unit) if field in (*DURATIONS, *TIMES) else Column(name)
        if not {"duration", "ts", "start_ts"} & set(columns):
            raise _refuse("a column for duration_s or ts: without it there is no pace to look at", repr(text))
        return cls(columns, told=True)

    @classmethod
    def automatic(cls, names: Iterable[str]) -> StepMap | None:
        """The map of a table whose names are obvious; None where no rank and no duration of a step are among them."""
        columns: dict[str, Column] = {}
        for name in names:
            field, unit = _recognise(name)
            if field is not None and (field not in columns or _is_before(name, columns[field].name, field)):
                columns[field] = Column(name, unit)
        return cls(columns) if {"rank", "duration"} <= set(columns) else None

    def fitted(self, names: Sequence[str]) -> StepMap:
        """The map for a table with these names: a column that was told without the ending of its unit is found by it."""
        endings = {name: _NO_UNIT.sub("", _UNIT.sub("", _plain(name))) for name in names}
        columns = {}
        for field, column in self.columns.items():
            near = [name for name, stem in endings.items() if stem == _plain(column.name)]
            is_near = column.name not in names and len(near) == 1 and field in (*DURATIONS, *TIMES)
            columns[field] = _with_hint(near[0], column.unit_s) if is_near else column
        return StepMap(columns, self.told)

    def needed(self) -> StepMap:
        """The part without which a row says nothing."""
        return StepMap({f: c for f, c in self.columns.items() if f in ("rank", "duration", "ts", "start_ts")}, self.told)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Columns of the map that a table with these names does not have."""
        return [c.name for c in self.columns.values() if c.name not in names]

    def __str__(self) -> str:
        """As a person would write it."""
        return ",".join(f"{field}={column.name}" for field, column in self.columns.items())


def _refuse(expected: str, found: str, remedy: str = "write for example rank=worker,duration_s=batch_time") -> SettingsError:
    return SettingsError("--map", expected=expected, found=found, remedy=remedy)


def _split_unit(key: str) -> tuple[str, float | None]:
    stem, _, unit = key.rpartition("_")
    return (stem, UNITS_S[unit]) if unit in UNITS_S and stem in (*DURATIONS, *TIMES) else (key, None)


def _with_hint(name: str, unit_s: float | None) -> Column:
    """A column that says itself that it is normalised has no unit, whatever the field is called."""
    plain = _plain(name)
    if _NO_UNIT.search(plain):
        return Column(name, 0.0)
    return Column(name, unit_s if unit_s is not None else _unit_of(plain))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")


def _unit_of(plain: str) -> float | None:
    found = _UNIT.search(plain)
    return None if found is None else UNITS_S[_SHORT[found[1][0]]]


def _recognise(name: str) -> tuple[str | None, float | None]:
    """The field that a column's name stands for, and its unit where the name ends in one."""
    plain = _plain(name)
    if plain in _FIELD_OF:
        return _FIELD_OF[plain], None
    for ending, unit in ((_NO_UNIT, 0.0), (_UNIT, _unit_of(plain))):
        field = _FIELD_OF.get(ending.sub("", plain))
        if ending.search(plain) and field in (*DURATIONS, *TIMES):
            return field, unit
    return None, None


def _is_before(name: str, other: str, field: str) -> bool:
    """Of two columns for one field that one counts whose name stands first in the table of names."""
    names = _OBVIOUS[field]
    places = [next((i for i, n in enumerate(names) if _plain(c).startswith(n)), len(names)) for c in (name, other)]
    return places[0] < places[1]
