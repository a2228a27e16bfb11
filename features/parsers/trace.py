"""The sources that are traces of a profiler or of TensorBoard: one rank's own view of its steps and collectives."""

from __future__ import annotations

from typing import Final

from features.parsers.protocol import ParserRow
from features.parsers.trace_byteps import BYTEPS
from features.parsers.trace_kineto import KINETO
from features.parsers.trace_nsys import NSYS
from features.parsers.trace_nsys_csv import NSYS_CSV
from features.parsers.trace_tensorboard import TENSORBOARD

# In the order in which they are asked: the narrower mark first.
TRACE_ROWS: Final[tuple[ParserRow, ...]] = (NSYS, TENSORBOARD, BYTEPS, KINETO, NSYS_CSV)
