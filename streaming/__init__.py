"""Records in and out, safely: the loop that reads, judges, writes and commits. It knows no models and no features' meaning."""

from __future__ import annotations

from streaming.lists import ListSink, ListSource
from streaming.loop import Handler, Sink, Source, run

__all__ = ["Handler", "ListSink", "ListSource", "Sink", "Source", "run"]
