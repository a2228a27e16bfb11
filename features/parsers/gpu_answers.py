"""Reads answers of the Prometheus API (query_range and query) about metrics of GPUs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from features.notices import Notices
from features.parsers.gpu_columns import METRICS, Column
from features.parsers.gpu_exposition import XID_COUNT, cells_of, device_key, names_in
from features.parsers.gpu_samples import Cell, Samples
from features.parsers.protocol import ParserRow
from features.records import Record

DOCUMENT_CAP = 64 << 20  # bytes; three million values: ten metrics of 200 GPUs over a day, one a minute
DAMAGES_MAX = 100  # series that cannot be read; beyond, the rest is not JSON
TOO_LONG = f"longer than {DOCUMENT_CAP >> 20} MiB: the rest is left out"
CUT = "answer is cut or damaged: whole series before that are used"
NO_SERIES = "series left out: not a metric of a GPU that is read here"
BAD_POINT = "point of a series left out: no time and value"

_NAMED = re.compile(rb'"__name__"\s*:\s*"(?:DCGM_(?:FI|EXP)_|nvidia_smi_|nvidia_gpu_)')
_SERIES = re.compile(r'\{\s*"metric"\s*:')


def sniff(head: bytes) -> bool:
    """Whether this is JSON whose first series speak of GPUs."""
    start = head.lstrip()[:1]
    return start in (b"{", b"[") and b'"metric"' in head and b'"value' in head and _NAMED.search(head) is not None


class _Device(NamedTuple):
    at: int  # place in the order of the file
    names: dict[str, str]


class Answers:
    """Feed it bytes in any chunking; all records come with `finish`, since series of one GPU are told one after another."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._samples = Samples(file, notices)
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def absolute(self) -> bool:
        """Whether the times are since the Unix epoch: those of Prometheus are."""
        return self._samples.clock.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Keep the bytes, as far as they are not too many."""
        room = DOCUMENT_CAP - self._size
        if len(data) > room:
            self._note("warning", TOO_LONG)
        self._parts.append(data[:room])
        self._size += min(len(data), room)
        return []

    def finish(self) -> list[Record]:
        """Records of all series, by time and then in the order of the GPUs."""
        text = b"".join(self._parts).decode(errors="replace")
        self._parts, self._size = [], 0
        devices: dict[tuple[str, ...], _Device] = {}
        moments: dict[tuple[float, int], list[Cell]] = {}
        for series in self._series(text):
            self._collect(series, devices, moments)
        who = [[(Column(key), value) for key, value in device.names.items()] for device in devices.values()]
        return [
            record
            for (ts, at), cells in sorted(moments.items(), key=lambda item: item[0])
            for record in self._samples.add(ts, [*who[at], *cells], cells[0][0].key)
        ]

    def _series(self, text: str) -> Iterator[dict[str, Any]]:
        """All series, whatever they are wrapped in, one at a time; those that are not whole are counted."""
        decoder, at, damages = json.JSONDecoder(), 0, 0
        while damages < DAMAGES_MAX and (match := _SERIES.search(text, at)) is not None:
            try:
                series, at = decoder.raw_decode(text, match.start())
            except (ValueError, RecursionError):
                self._note("warning", CUT)
                at, damages = match.end(), damages + 1
                continue
            yield series

    def _collect(
        self,
        series: dict[str, Any],
        devices: dict[tuple[str, ...], _Device],
        moments: dict[tuple[float, int], list[Cell]],
    ) -> None:
        """Sort the points of a series to their GPU and time; of series that differ in nothing that counts, the first wins."""
        labels = series["metric"]
        labels = {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {}
        metric, names = labels.get("__name__", ""), names_in(labels)
        if not names or (metric not in METRICS and metric != XID_COUNT):
            self._note("info", NO_SERIES)
            return
        device = devices.setdefault(device_key(names), _Device(len(devices), {}))
        device.names.update({k: v for k, v in names.items() if k not in device.names})
        for ts, value in self._points(series):
            cells = cells_of(metric, labels, value)
            if cells:
                moments.setdefault((ts, device.at), []).extend(cells)

    def _points(self, series: dict[str, Any]) -> Iterator[tuple[float, str]]:
        points = series.get("values", [series.get("value")])
        for point in points if isinstance(points, list) else []:
            if isinstance(point, list) and len(point) == 2 and _is_time(point[0]) and isinstance(point[1], str | int | float):
                yield float(point[0]), str(point[1])
            else:
                self._note("warning", BAD_POINT)

    def _note(self, level: str, text: str) -> None:
        self._notices.add("info" if level == "info" else "warning", text, file=self._file)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15 and math.isfinite(value)


ANSWERS_ROW = ParserRow("gpu", sniff, Answers)
