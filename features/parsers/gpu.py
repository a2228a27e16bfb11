"""The parsers of GPU telemetry, in the order in which a file is shown to them."""

from __future__ import annotations

from features.parsers.gpu_answers import ANSWERS_ROW
from features.parsers.gpu_csv import GPU_CSV
from features.parsers.gpu_dmon import DMON_ROW
from features.parsers.gpu_exposition import EXPOSITION_ROW
from features.parsers.gpu_query import QUERY_ROW
from features.parsers.gpu_smdebug import SMDEBUG_ROW
from features.parsers.protocol import ParserRow

GPU_ROWS: tuple[ParserRow, ...] = (SMDEBUG_ROW, ANSWERS_ROW, EXPOSITION_ROW, QUERY_ROW, DMON_ROW, GPU_CSV)
