"""The sources that are traces of a profiler: one rank's own view of its steps and collectives."""

from __future__ import annotations

from typing import Final

from features.parsers.protocol import ParserRow
from features.parsers.trace_byteps import BYTEPS
from features.parsers.trace_kineto import KINETO

# In the order in which they are asked: the narrower mark first.
TRACE_ROWS: Final[tuple[ParserRow, ...]] = (BYTEPS, KINETO)
