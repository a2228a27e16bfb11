"""The parsers of host and network telemetry that others save, in the order in which they are asked."""

from __future__ import annotations

from features.parsers.host_prometheus import PROMETHEUS_HOST
from features.parsers.host_sadf import SADF
from features.parsers.net_bench import BENCH
from features.parsers.net_text import NET_TEXT
from features.parsers.protocol import ParserRow

NET_ROWS: tuple[ParserRow, ...] = (SADF, PROMETHEUS_HOST, BENCH, NET_TEXT)
