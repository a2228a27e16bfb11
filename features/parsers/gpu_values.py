"""Reads single values of GPU telemetry: units, stand-ins for missing values, reasons of slowed clocks, device addresses."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

MISSING = frozenset(
    {"", "-", "--", "n/a", "na", "nan", "none", "null", "unknown", "not supported", "not available", "not found", "disabled"}
    | {"not applicable", "requested functionality has been deprecated", "unknown error", "err!", "insufficient permissions"}
    | {"gpu is lost", "gpu requires reset"}
)
"""What stands where a value is not known; compared in lower case, without brackets."""
SURPRISING = frozenset({"unknown error", "err!", "insufficient permissions"})
"""Of these a reader should hear: a healthy GPU that is asked for a supported value answers."""
LOST = {"gpu is lost": "GPU is lost", "gpu requires reset": "GPU requires reset"}
"""Answers that mean that the device itself is gone or unusable."""

# DCGM writes a blank as one of the last 16 numbers of its type (dcgm_structs.h: DCGM_INT32_BLANK and the like). A float
# cannot tell the 64-bit ones apart: they all read as 2**63.
_BLANKS_FROM = (0x7FFFFFF0, 2**47)
_BLANK_SPAN = 16
_BLANK_64 = 2.0**63

_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([%°a-zA-Z/]*)")
_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


class Unit(NamedTuple):
    """What a unit measures; a value in the unit of the records is `times` as large, divided by `per`."""

    measures: str
    times: float
    per: float = 1.0  # a division by 100 is exact where a product with 0.01 is not


UNITS: dict[str, Unit] = {
    "%": Unit("ratio", 1.0, 100.0),
    "ratio": Unit("ratio", 1.0),
    "w": Unit("power", 1.0),
    "mw": Unit("power", 1.0, 1000.0),
    "hz": Unit("clock", 1.0),
    "mhz": Unit("clock", 1e6),
    "ghz": Unit("clock", 1e9),
    "c": Unit("temperature", 1.0),
    "b": Unit("bytes", 1.0),
    # Scripts repeat what nvidia-smi says, which are MiB, and call it MB.
    **{name: Unit("bytes", 2.0**10) for name in ("kib", "kb")},
    **{name: Unit("bytes", 2.0**20) for name in ("mib", "mb")},
    **{name: Unit("bytes", 2.0**30) for name in ("gib", "gb")},
}
_SYNONYMS = {"percent": "%", "pct": "%", "perc": "%", "°c": "c", "celsius": "c", "degc": "c", "degree": "c", "bytes": "b"} | {
    "fraction": "ratio", "watts": "w", "watt": "w", "milliwatts": "mw", "megahertz": "mhz"
}  # fmt: skip


class Field(NamedTuple):
    """A value of a sample: what it measures, its usual unit, and the bounds beyond which it is not believed."""

    measures: str
    unit: str
    least: float
    most: float


FIELDS: dict[str, Field] = {
    "utilization": Field("ratio", "%", 0.0, 1.0),
    "memory_used": Field("bytes", "mib", 0.0, 2.0**50),
    "memory_free": Field("bytes", "mib", 0.0, 2.0**50),
    "memory_total": Field("bytes", "mib", 1.0, 2.0**50),
    "power": Field("power", "w", 0.0, 20_000.0),
    "power_limit": Field("power", "w", 0.0, 20_000.0),
    "sm_clock": Field("clock", "mhz", 0.0, 1e10),
    "temperature": Field("temperature", "c", -60.0, 200.0),
    "ecc": Field("count", "", 0.0, 2.0**53),
    "remapped": Field("count", "", 0.0, 2.0**53),
    "remap_failed": Field("count", "", 0.0, 1.0),
    "xid": Field("count", "", 0.0, 100_000.0),
    "thermal_counter": Field("count", "", 0.0, 2.0**63),
    "thermal_flag": Field("count", "", 0.0, 100.0),
}
"""Bounds are generous: they only keep out other stand-ins, such as AMD's 65535, and cells of another column."""

_YES_NO = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}

# NVML's bits (nvml.h, nvmlClocksEventReasons), by the names that the records use.
REASON_BITS: tuple[tuple[int, str], ...] = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clock_setting"),
)
THERMAL_VIOLATION = "thermal_violation"
"""The reason given by counters and flags of time spent below the clocks because of heat (DCGM 241, tviol)."""
THROTTLED = "throttled"
"""The reason where the source only says that there is one (AMD)."""


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """A cell for comparison: lower case, without blanks and brackets around it.

    >>> plain(" [GPU is lost] ")
    'gpu is lost'
    """
    return text.strip().strip("[]").strip().lower()


def unit_named(text: str) -> str | None:
    """The key in UNITS that a written unit stands for; None for an unknown one."""
    name = text.strip().lower()
    name = _SYNONYMS.get(name, name)
    return name if name in UNITS else None


def number_of(text: str) -> tuple[float, str] | None:
    """The number that a cell consists of and the unit after it ("" if none).

    >>> number_of("297.01 W"), number_of("9.1e-01"), number_of("0x4")
    ((297.01, 'W'), (0.91, ''), None)
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    value = float(match[1])
    return (value, match[2]) if math.isfinite(value) else None


def is_blank(value: float) -> bool:
    """Whether a number is one of DCGM's blanks."""
    return value == _BLANK_64 or any(start <= value < start + _BLANK_SPAN for start in _BLANKS_FROM)


class Value(NamedTuple):
    """A value in the unit of the records, or why there is none ("" where that is nothing to speak of)."""

    known: float | None
    problem: str = ""


@lru_cache(maxsize=65536)  # cells repeat: whole percents, degrees, clocks in steps
def value_of(field: str, text: str, unit: str = "") -> Value:
    """Read a cell of `field`; a unit in the cell counts more than `unit`, the column's.

    >>> value_of("power", "300 mW"), value_of("utilization", "97"), value_of("memory_used", "[N/A]")
    (Value(known=0.3, problem=''), Value(known=0.97, problem=''), Value(known=None, problem=''))
    """
    spec, said = FIELDS[field], plain(text)
    if said in MISSING:
        return Value(None, f"'{said}' in place of a value" if said in SURPRISING else "")
    if said in _YES_NO and spec.measures == "count":
        return Value(_YES_NO[said])
    found = number_of(said)
    if found is None:
        return Value(None, f"not a number in a column of {field}")
    number, written = found
    if is_blank(number):
        return Value(None)
    chosen = _unit(spec, written, unit)
    if chosen is None:
        return Value(None, f"unit of another quantity in a column of {field}")
    scaled = number * chosen.times / chosen.per
    return Value(scaled) if spec.least <= scaled <= spec.most else Value(None, f"value of {field} that cannot be")


_COUNT = Unit("count", 1.0)


def _unit(spec: Field, written: str, unit: str) -> Unit | None:
    if spec.measures == "count":
        return _COUNT
    chosen = UNITS.get(unit_named(written) or "") if written else UNITS.get(unit or spec.unit)
    return chosen if chosen is not None and chosen.measures == spec.measures else None


def reasons_of(text: str) -> tuple[str, ...] | None:
    """The reasons in a bit mask, written in hexadecimal or decimal; None if it says nothing.

    >>> reasons_of("0x0000000000000044"), reasons_of("0"), reasons_of("[N/A]")
    (('sw_power_cap', 'hw_thermal_slowdown'), (), None)
    """
    said = plain(text)
    if len(said) > _LONGEST_MASK:
        return None
    try:
        mask = int(said, 16) if said.startswith("0x") else int(float(said))
    except (ValueError, OverflowError):
        return _AMD.get(said)
    if mask < 0 or is_blank(float(mask)):
        return None
    return tuple(name for bit, name in REASON_BITS if mask & bit)


_LONGEST_MASK = 20  # characters: 64 bits in decimal
_AMD: dict[str, tuple[str, ...]] = {"throttled": (THROTTLED,), "unthrottled": (), "not active": (), "none": ()}


def pci_of(text: str) -> str | None:
    """A PCI address in one spelling, as `lspci -D` writes it but with eight digits of domain; None if it is none.

    >>> pci_of("0000:3B:00.0"), pci_of("GPU-7")
    ('00000000:3b:00.0', None)
    """
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{(domain or '0').lower():0>8}:{bus.lower()}:{device.lower()}.{function}"


def pci_in(text: str) -> str | None:
    """The first PCI address with a domain inside a sentence: "GPU0000:01:00.0: ..."."""
    match = re.search(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", text)
    return None if match is None else pci_of(match[0])
