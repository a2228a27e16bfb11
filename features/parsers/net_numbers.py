"""Reads the numbers that counters are printed as."""

from __future__ import annotations

import math
import re

LARGEST = 2**64 - 1
"""No counter is wider."""

_INTEGER = re.compile(r"\d{1,20}|0[xX][0-9a-fA-F]{1,16}")
_NUMBER = re.compile(r"\d{1,20}(?:\.0*)?|\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?")


def integer(text: str) -> int | None:
    """A count, decimal or hexadecimal; None for anything else."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text, 16 if text[1:2] in {"x", "X"} else 10)
    return value if value <= LARGEST else None


def reading(text: str) -> int | float | None:
    """A finite number that is not negative, exact where it is printed as a whole; None for anything else."""
    if not _NUMBER.fullmatch(text):
        return None
    if text.isdecimal():
        return integer(text)
    value = float(text)
    return value if math.isfinite(value) else None
