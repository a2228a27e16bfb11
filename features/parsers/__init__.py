"""Parsers of telemetry sources, and the table in which a file is looked up by its first bytes."""

from __future__ import annotations

from features.parsers.flightrecorder import FR_ROWS
from features.parsers.gpu import GPU_ROWS
from features.parsers.net import NET_ROWS
from features.parsers.protocol import Parser, ParserRow
from features.parsers.steptable import TABLE_ROWS, table_rows
from features.parsers.steptable_map import StepMap
from features.parsers.telemetry_jsonl import TELEMETRY_JSONL
from features.parsers.textlog import TEXT_LOG
from features.parsers.timeline import TIMELINE
from features.parsers.trace import TRACE_ROWS

# In the order in which they are asked; text takes what is left if it is mostly printable.
PARSERS: tuple[ParserRow, ...] = (
    *(TIMELINE, TELEMETRY_JSONL, *TRACE_ROWS, *GPU_ROWS, *NET_ROWS, *FR_ROWS),
    *(*TABLE_ROWS, TEXT_LOG),
)


def parsers_for(step_map: StepMap | None) -> tuple[ParserRow, ...]:
    """The table of parsers; with a map, tables are those that have its columns, and they come first."""
    return PARSERS if step_map is None else (*table_rows(step_map), *(row for row in PARSERS if row not in TABLE_ROWS))


__all__ = ["PARSERS", "Parser", "ParserRow", "parsers_for"]
