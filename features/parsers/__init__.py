"""Parsers of telemetry sources, and the table in which a file is looked up by its first bytes."""

from __future__ import annotations

from features.parsers.gpu import GPU_ROWS
from features.parsers.net import NET_ROWS
from features.parsers.protocol import Parser, ParserRow
from features.parsers.telemetry_jsonl import TELEMETRY_JSONL
from features.parsers.textlog import TEXT_LOG
from features.parsers.timeline import TIMELINE
from features.parsers.trace import TRACE_ROWS

# In the order in which they are asked; text takes what is left if it is mostly printable.
PARSERS: tuple[ParserRow, ...] = (TIMELINE, TELEMETRY_JSONL, *TRACE_ROWS, *GPU_ROWS, *NET_ROWS, TEXT_LOG)

__all__ = ["PARSERS", "Parser", "ParserRow"]
