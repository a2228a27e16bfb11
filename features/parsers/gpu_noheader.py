"""Tells what the columns of a GPU table without header are, from units, addresses and other cells that say it themselves."""

from __future__ import annotations

import re

from features.parsers.clocks import find_iso
from features.parsers.gpu_columns import Column
from features.parsers.gpu_values import LOST, SURPRISING, number_of, pci_of, plain, unit_named

LAST_INDEX = 15
"""A bare whole number up to this is the index of a GPU, a larger one its temperature: nodes have at most 16 GPUs."""
HOTTEST = 120
EARLY = 2  # columns: time and index come first

_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4,12}){1,4}")
_MASK = re.compile(r"0x[0-9a-fA-F]{16}")
_NAME = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN|RTX|AMD|A100|H100|V100)\b.*")
_WORD = re.compile(r"P\d{1,2}|Enabled|Disabled|Default|Exclusive_Process|Prohibited|Active|Not Active|\[?N/A\]?")
_EPOCH = re.compile(r"1\d{9}(?:\.\d+)?|1\d{12}")
_BY_UNIT = {
    "%": ("utilization",),  # of several, the GPU's comes before the memory's and the fan's
    "w": ("power", "power_limit"),
    "mib": ("memory_used",),
    "mhz": ("sm_clock",),
}


def columns_without_header(cells: list[str]) -> list[Column | None] | None:
    """The columns of a table whose first row is `cells`; None if this is no row of nvidia-smi.

    >>> [c and c.key for c in columns_without_header(["2026/05/04 10:00:00.123", "0", "97 %", "41", "80 MiB", "90 MiB"])]
    ['time', 'index', 'utilization', 'temperature', 'memory_used', 'memory_total']
    """
    kinds = [_kind(cell) for cell in cells]
    if "" in kinds or not any(kind in {"%", "w", "mib", "mhz", "uuid", "pci", "mask", "sentinel"} for kind in kinds):
        return None
    keys: list[str | None] = [kind if kind in {"time", "uuid", "pci", "name"} else None for kind in kinds]
    for unit in _BY_UNIT:
        _assign(keys, kinds, cells, unit)
    has_units = any(kind in _BY_UNIT for kind in kinds)
    for at, kind in enumerate(kinds):
        if kind == "mask":
            keys[at] = "reasons"
        elif kind == "whole":
            key = _whole(int(cells[at]), has_units=has_units, is_early=at < EARLY)
            keys[at] = key if key not in keys else None
    return [None if key is None else Column(key) for key in keys]


def _whole(number: int, *, has_units: bool, is_early: bool) -> str | None:
    """What a bare whole number is: where other values carry their units, only indices and temperatures are left bare."""
    if number <= LAST_INDEX:
        return "index" if has_units or is_early else None
    return "temperature" if has_units and number <= HOTTEST else None


def says_nothing(columns: list[Column | None]) -> bool:
    """Whether no value can be read: bare numbers without header have no meaning."""
    return not any(c is not None and c.key not in {"time", "uuid", "pci", "name", "index"} for c in columns)


def _kind(cell: str) -> str:
    """What a cell looks like; "" for what nvidia-smi does not write."""
    text, said = cell.strip(), plain(cell)
    patterns = (("uuid", _UUID), ("mask", _MASK), ("name", _NAME), ("time", _EPOCH), ("word", _WORD))
    if text[:1] == "[" and (said in LOST or said in SURPRISING or said in {"not supported", "n/a"}):
        return "sentinel"
    named = next((kind for kind, pattern in patterns if pattern.fullmatch(text)), None)
    if named is not None:
        return named
    if pci_of(text) is not None:
        return "pci"
    stamp = find_iso(text, 1)
    if stamp is not None and stamp.end >= len(text):
        return "time"
    found = number_of(text)
    if found is None:
        return ""
    if found[1]:
        return unit_named(found[1]) or ""
    return "whole" if text.isdecimal() and len(text) < 6 else "number"


def _assign(keys: list[str | None], kinds: list[str], cells: list[str], unit: str) -> None:
    """Give the cells of one unit their keys, in the order in which nvidia-smi's own examples list them."""
    at = [i for i, kind in enumerate(kinds) if kind == unit]
    names = list(_BY_UNIT[unit])
    if unit == "mhz" and len(at) > 1:
        return  # SM, memory and video clocks cannot be told apart
    if unit == "mib" and len(at) > 1:
        sizes = [(number_of(cells[i]) or (0.0, ""))[0] for i in at]
        total = at.pop(sizes.index(max(sizes)))
        keys[total] = "memory_total"
        names = ["memory_used"] if len(at) == 1 else []  # of three, used and free look alike
    for i, name in zip(at, names, strict=False):
        keys[i] = name
