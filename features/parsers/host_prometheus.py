"""Reads the text exposition of Prometheus: one or several scrapes of node_exporter, or of exporters of InfiniBand counters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, cast

from features.counters import MACHINE
from features.notices import Notices
from features.parsers.host_metrics import ACTIVE, CLOCKS, NAMES_NODE, Labels, Meaning, meanings
from features.parsers.loglines import LineSplitter
from features.parsers.net_moments import Moments
from features.parsers.net_numbers import reading
from features.parsers.net_titles import ZONELESS, Titles
from features.parsers.protocol import ParserRow
from features.records import Record

DAMAGED = "sample that cannot be read left out"
KNOWN_PARTS = (b"node_", b"infiniband_")
"""Metrics that are used here begin so."""
LONGEST = 16384
"""Bytes of one sample with its labels."""

_SAMPLE = re.compile(
    r"(?P<metric>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+(?P<at>-?\d+(?:\.\d+)?))?(?:\s+#.*)?\s*$"
)
_DECLARED = re.compile(r"# TYPE (\S+) ")
_PORT = re.compile(r":\d+$")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_NODE_LABELS = ("node", "hostname", "Hostname", "host", "instance")
_NOWHERE = frozenset({"", "localhost", "127.0.0.1", "[::1]"})
"""What an exporter that is asked on its own machine calls it: that names no node."""
KEPT = 1 << 16
"""Series whose labels are remembered: they come again in every scrape."""
_MS_FROM = 1e11
"""Numbers from here on are milliseconds, below it seconds: the one would be in 1973, the other in the year 5138."""


class _Series(NamedTuple):
    """What is known of a series before its value."""

    found: tuple[Meaning, ...]
    node: str | None
    cpu: str
    nodename: str


class Prometheus:
    """A sample that the scrape already has begins the next scrape; a sample's own time puts it where it belongs.

    `node_time_seconds` tells when a scrape was made, `node_uname_info` of which node; without them nobody knows.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._splitter = LineSplitter(file, notices)
        self._moments = Moments(file)
        self._titles = Titles(self._moments)
        self._types: set[str] = set()  # metrics that were declared
        self._scrape = 0  # in which moment that was

    @property
    def absolute(self) -> bool:
        """Whether a time was read."""
        return self._moments.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Readings of the scrapes that `data` completes."""
        for line in self._splitter.feed(data):
            self._line(line)
        return cast("list[Record]", self._moments.take())

    def finish(self) -> list[Record]:
        """Readings of the last scrape."""
        for line in self._splitter.finish():
            self._line(line)
        self._moments.close()
        if self._titles.zoneless:
            self._notices.add("info", ZONELESS, file=self._file)
        return cast("list[Record]", self._moments.take())

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", errors="replace") if len(line) <= LONGEST else ""
        if declared := _DECLARED.match(text):
            self._declared(declared[1])
            return
        if line.startswith(b"#") or not line.strip():
            self._titles.read(text)
            return
        sample = _SAMPLE.match(text)
        series = _series(sample["metric"], sample["labels"] or "") if sample is not None else None
        if sample is not None and series is not None:
            self._sample(sample, series)
        elif not self._titles.read(text):
            self._damaged()

    def _declared(self, metric: str) -> None:
        """A metric is declared once in a scrape: if it comes again, so does everything."""
        if self._scrape != self._moments.closed:
            self._scrape, self._types = self._moments.closed, set()
        if metric in self._types:
            self._moments.close()
            self._scrape, self._types = self._moments.closed, set()
        self._types.add(metric)

    def _sample(self, sample: re.Match[str], series: _Series) -> None:
        metric = sample["metric"]
        if not series.found and metric not in CLOCKS and metric != NAMES_NODE:
            return
        value = reading(sample["value"])
        if value is None:
            if sample["value"].lower().lstrip("+-") not in {"nan", "inf"}:
                self._damaged()
            return
        above, self._moments.node = self._moments.node, series.node or self._moments.node
        if metric in CLOCKS:
            self._moments.stamp(float(value))
        elif metric == NAMES_NODE:
            if series.nodename:
                self._moments.rename(self._moments.node, series.nodename)
        else:
            self._put(series, int(value == ACTIVE) if metric.endswith("state_id") else value, sample["at"])
        self._moments.node = above

    def _put(self, series: _Series, value: int | float, at: str | None) -> None:
        line, seconds, cpu = self._splitter.number, _seconds(at), series.cpu
        for meaning in series.found:
            part = cpu if meaning.add else ""
            scaled = value if meaning.factor == 1.0 else value * meaning.factor
            self._moments.put(meaning.device, meaning.name, scaled, line, series=part, add=meaning.add, at=seconds)
            if meaning.name == "cpu.idle":
                self._moments.put(MACHINE, "cpus", 1, line, series=cpu, add=True, at=seconds)

    def _damaged(self) -> None:
        self._notices.add("warning", DAMAGED, file=self._file, place=f"line {self._splitter.number}")


@lru_cache(maxsize=KEPT)
def _series(metric: str, text: str) -> _Series | None:
    """What a series stands for; None if its labels are not well formed."""
    labels = _labels(text)
    if labels is None:
        return None
    found = tuple(meanings(metric, labels))
    return _Series(found, _node(labels), labels.get("cpu", ""), labels.get("nodename", ""))


def _labels(text: str) -> Labels | None:
    """The labels of a sample; None if they are not well formed."""
    labels: Labels = {}
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        if label is None:
            return None if text[at:].strip() else labels
        labels[label[1]] = _ESCAPE.sub(lambda escape: {"n": "\n"}.get(escape[1], escape[1]), label[2])
        at = label.end()
    return labels


def _node(labels: Labels) -> str | None:
    """The node that the labels name, without its port."""
    for label in _NODE_LABELS:
        name = _PORT.sub("", labels.get(label, ""))
        if name not in _NOWHERE:
            return name
    return None


def _seconds(at: str | None) -> float | None:
    """A sample's own time: milliseconds in Prometheus' format, seconds in OpenMetrics."""
    if at is None:
        return None
    time = float(at)
    return time / 1000 if abs(time) >= _MS_FROM else time


def sniff(head: bytes) -> bool:
    """Whether these first bytes are an exposition with metrics that are used here."""
    if not any(part in head for part in KNOWN_PARTS):
        return False
    lines = head.split(b"\n")
    whole = [line for line in (lines[:-1] if len(lines) > 1 else lines) if line.strip() and not line.startswith(b"#")]
    samples = [_SAMPLE.match(line.decode("utf-8", errors="replace")) for line in whole if len(line) <= LONGEST]
    good = [sample for sample in samples if sample is not None]
    if len(good) * 10 < len(whole) * 9:
        return False
    used = (meanings(sample["metric"], _labels(sample["labels"] or "") or {}) or sample["metric"] in CLOCKS for sample in good)
    return any(used)


PROMETHEUS_HOST = ParserRow("host", sniff, Prometheus)
