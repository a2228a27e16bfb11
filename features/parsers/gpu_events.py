"""Messages that samples of GPUs give rise to: a device that is lost or replaced, failed repairs, foreign processes."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from features.parsers.gpu_identity import Replaced, gpu_shown
from features.parsers.gpu_values import LOST, SURPRISING, plain
from features.parsers.textline import TEXT_KEPT
from features.records import Log

GPU_LOST = "gpu_lost"
REMAP_FAILED = "gpu_remap_failed"
"""A memory row is bad and could not be replaced by a spare one."""
CONTENDED = "gpu_contended"
"""Several processes compute on one GPU."""

LOST_CELLS = 3
"""A row of at least this many values that are all errors speaks of a lost device, not of one odd value."""


class Whom(NamedTuple):
    """The device and where its sample stands."""

    gpu: str
    ts: float
    source: str
    node: str | None = None
    rank: int | None = None


def log(event: str, whom: Whom, text: str, **fields: str) -> Log:
    """A message about one device."""
    return Log(
        ts=whom.ts,
        event=event,
        text=text[:TEXT_KEPT],
        rank=whom.rank,
        node=whom.node,
        fields={"gpu": whom.gpu, **fields},
        source=whom.source,
    )


def lost(whom: Whom, said: str) -> Log:
    """The device itself, or the tool that asked it, says that it is gone."""
    return log(GPU_LOST, whom, f"{gpu_shown(whom.gpu)} does not answer any more: {said}", said=said[:TEXT_KEPT])


def replaced(whom: Whom, change: Replaced) -> Log:
    """Another device sits in the slot of one that is silent since."""
    new, silent = gpu_shown(whom.gpu), whom.ts - change.until
    text = f"{gpu_shown(change.old)} is gone from slot {change.slot}: after {silent:.0f} s of silence {new} sits there"
    return log(GPU_LOST, whom._replace(gpu=change.old), text, replaced_by=whom.gpu, slot=change.slot)


def remap_failed(whom: Whom, *, is_old: bool) -> Log:
    """The driver could not put a spare row in place of a bad one; an old failure was there in the first sample."""
    text = f"{gpu_shown(whom.gpu)}: a bad row of its memory could not be remapped"
    return log(REMAP_FAILED, whom, text + (", before these samples" if is_old else ""), old=str(is_old).lower())


def what_is_lost(values: list[str]) -> str | None:
    """What a row says when its device is gone; `values` are its cells other than names and times.

    >>> what_is_lost(["[GPU is lost]", "41"]), what_is_lost(["[Unknown Error]"] * 3), what_is_lost(["41", "ERR!"])
    ('GPU is lost', 'unknown error', None)
    """
    said = [plain(value) for value in values]
    for one in said:
        if one in LOST:
            return LOST[one]
    return said[0] if len(said) >= LOST_CELLS and set(said) <= SURPRISING else None


class Remark(NamedTuple):
    """A sentence that a tool wrote among its samples: about one device, all of them, or the tool itself."""

    about: Literal["one", "all", "tool"]
    text: str


_REMARKS: tuple[tuple[Literal["one", "all", "tool"], re.Pattern[str]], ...] = (
    ("one", re.compile(r"Unable to determine the device handle for", re.IGNORECASE)),
    ("one", re.compile(r"GPU.{0,60}(?:is lost|has fallen off the bus|requires reset)", re.IGNORECASE)),
    ("all", re.compile(r"No devices were found", re.IGNORECASE)),
    ("tool", re.compile(r"Failed to initialize NVML|NVIDIA-SMI has failed|Failed to properly shut down NVML", re.IGNORECASE)),
    ("tool", re.compile(r"Unable to (?:get|connect)|Error(?: \w+)*: |Field \".{0,80}\" is not a valid field", re.IGNORECASE)),
    ("tool", re.compile(r"WARNING: infoROM is corrupted|Terminated|Killed|Aborted", re.IGNORECASE)),
)


def remark_in(line: str) -> Remark | None:
    """The remark that a line consists of, if it is one.

    >>> remark_in("No devices were found")
    Remark(about='all', text='No devices were found')
    """
    text = line.strip()
    found = next((about for about, pattern in _REMARKS if pattern.match(text)), None)
    return None if found is None else Remark(found, text[:TEXT_KEPT])
