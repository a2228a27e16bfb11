"""Merges timeline, logs and telemetry of a run into one trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

from detector.merged.building import Summary, write_trace
from detector.merged.sampling import MAX_EVENTS

__all__ = ["MAX_EVENTS", "Summary", "write_trace"]
