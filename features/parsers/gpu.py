"""The parsers of GPU telemetry, in the order in which a file is shown to them."""

from __future__ import annotations

from features.parsers.gpu_csv import GPU_CSV
from features.parsers.protocol import ParserRow

GPU_ROWS: tuple[ParserRow, ...] = (GPU_CSV,)
