"""Reads the matrices of p2pBandwidthLatencyTest and nvbandwidth, and finds GPUs that exchange data too slowly."""

from __future__ import annotations

import re
from statistics import median
from typing import NamedTuple

from features.records import Log

P2P_SLOW = "p2p_slow"
"""Event: with peer access on, copies between GPUs are slower than without it."""
BANDWIDTH_LOW = "bandwidth_low"
"""Event: one GPU or node moves data far more slowly than its neighbours do."""

FAR_SLOWER = 0.6
"""Peer access must not cost speed. Repeated tests of a sound machine differ by a few hundredths."""
LATENCY_FACTOR, LATENCY_US = 10.0, 100.0
"""Sound machines take 1 to 30 us either way; redirected by an IOMMU, writes to a peer take 50 000."""
NEIGHBOUR_FACTOR = 0.5
"""Best link of a GPU against the median of the others' best: half the lanes, or half the NVLinks, are gone."""
FEWEST_NEIGHBOURS, ALIKE = 3, 0.7
"""A GPU is odd only among several that are alike; a bridge between two of three GPUs makes none of them sick."""

_TITLE = re.compile(
    r"(?:(?P<way>Uni|Bi)directional )?P2P=(?P<p2p>Enabled|Disabled) (?P<what>Bandwidth|Latency)"
    r"(?: \(P2P (?P<kind>Writes|Reads)\))?(?: Matrix)? \((?:GB/s|us)\)"
)
_COPY_TITLE = re.compile(r"memcpy \w+ GPU\(row\) (?P<arrow><-|->) GPU\(column\) bandwidth \(GB/s\)")
_COLUMNS = re.compile(r"\s*(?P<corner>D\\D|GPU|CPU)?(?:\s+\d{1,3})+\s*$")
_ROW = re.compile(r"\s*(?P<gpu>\d{1,3})(?P<cells>(?:\s+(?:\d{1,9}(?:\.\d{1,9})?|N/A|nan|inf))+)\s*$")
_BELONGS = re.compile(
    r"\[P2P \(Peer-to-Peer\)|Device: \d+, |Device=\d+ CAN(?:NOT)? Access Peer|P2P Connectivity Matrix|SUM \w+ |Running \w+\.$"
    r"|\*\*\*NOTE: In case a device|So you can see lesser Bandwidth|NOTE: The CUDA Samples|nvbandwidth Version|Device \d+: "
)
_START = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"

Pair = tuple[int, int]


class Matrix(NamedTuple):
    """One table: what it shows, where it began, and its cells by pair of GPUs, those on the diagonal left out."""

    what: str  # bandwidth or latency
    way: str  # as the title says: Uni, Bi; reads or writes
    p2p: bool
    line: int
    cells: dict[Pair, float]

    @property
    def unit(self) -> str:
        """What the cells are measured in."""
        return "GB/s" if self.what == "Bandwidth" else "us"


class P2pTables:
    """Collects the tables of one test; `finish` judges them."""

    def __init__(self, file: str) -> None:
        """`file` is the name to show in `source`."""
        self._file = file
        self._tables: list[Matrix] = []
        self._open: Matrix | None = None
        self._columns: list[int] | None = None
        self.found: list[Log] = []

    def read(self, line: str, number: int) -> bool:
        """Whether this is a line of such a test."""
        if line.startswith(_START):
            self.finish()
            return True
        if self._titled(line, number):
            return True
        columns = _COLUMNS.match(line)
        if columns and (columns["corner"] or (self._open is not None and self._columns is None)):
            self._columns = [int(word) for word in line.split() if word.isdecimal()]
            if columns["corner"] == "CPU":  # the second half of a table of latencies says nothing of the way
                self._open = None
            return True
        if self._columns is not None and (row := _ROW.match(line)):
            self._row(int(row["gpu"]), row["cells"].split())
            return True
        if line.strip():
            self._open, self._columns = None, None
        return _BELONGS.match(line) is not None

    def _titled(self, line: str, number: int) -> bool:
        if title := _TITLE.match(line):
            way = f"{title['way'] or ''} {title['kind'] or 'Writes'}"
            self._open = Matrix(title["what"], way, title["p2p"] == "Enabled", number, {})
        elif copy := _COPY_TITLE.match(line):
            self._open = Matrix("Bandwidth", f"copy {copy['arrow']}", True, number, {})
        else:
            return False
        self._columns = None
        self._tables.append(self._open)
        return True

    def _row(self, gpu: int, cells: list[str]) -> None:
        if self._open is None or self._columns is None:
            return
        for other, cell in zip(self._columns, cells, strict=False):
            if other != gpu and cell[0].isdecimal():
                self._open.cells[gpu, other] = float(cell)

    def finish(self) -> None:
        """The test is over: judge its tables."""
        tables, self._tables, self._open, self._columns = self._tables, [], None, None
        self.found += [
            log for log in (_slower_with_peers(tables, self._file), *_slow_gpus(tables, self._file)) if log is not None
        ]


class _Loss(NamedTuple):
    """One pair that is far worse off with peer access."""

    factor: float
    pair: Pair
    table: Matrix
    without: float


def _slower_with_peers(tables: list[Matrix], file: str) -> Log | None:
    """Pairs that lose by peer access, in any of the tables that come with and without it."""
    plain = {_kind(table): table for table in tables if not table.p2p}
    lost: list[_Loss] = []
    compared: set[Pair] = set()
    for table in (t for t in tables if t.p2p and _kind(t) in plain):
        without = plain[_kind(table)].cells
        for pair in sorted(table.cells.keys() & without.keys()):
            compared.add(pair)
            factor = _loss(table.what, table.cells[pair], without[pair])
            if factor is not None:
                lost.append(_Loss(factor, pair, table, without[pair]))
    if not lost:
        return None
    worst = max(lost, key=lambda loss: (loss.factor, loss.pair))
    gpus = sorted({gpu for loss in lost for gpu in loss.pair})
    text = (
        f"peer access makes copies between GPUs slower: {worst.table.what.lower()} of {worst.pair[0]} -> {worst.pair[1]} is"
        f" {worst.table.cells[worst.pair]:g} {worst.table.unit} with it and {worst.without:g} {worst.table.unit} without;"
        f" {len({loss.pair for loss in lost})} of {len(compared)} pairs, GPUs {_listed(gpus)}"
    )
    return Log(ts=None, event=P2P_SLOW, text=text, fields={"gpus": _listed(gpus)}, source=f"{file}:{worst.table.line}")


def _kind(table: Matrix) -> tuple[str, str]:
    """Equal for tables that show the same with and without peer access; without it there are no reads and writes."""
    return table.what, table.way.split()[0] if table.what == "Bandwidth" else ""


def _loss(what: str, with_peers: float, without: float) -> float | None:
    """By what factor peer access is worse; None if it is not far worse."""
    if what == "Bandwidth":
        return without / with_peers if 0 < with_peers < FAR_SLOWER * without else None
    bad = with_peers > LATENCY_US and 0 < LATENCY_FACTOR * without < with_peers
    return with_peers / without if bad else None


def _slow_gpus(tables: list[Matrix], file: str) -> list[Log]:
    """GPUs whose best link is far below that of the others: whichever way they are wired, each has some good link."""
    table = next((t for t in tables if t.what == "Bandwidth" and t.p2p and len(t.cells) > 2), None)
    if table is None:
        return []
    best: dict[int, float] = {}
    for pair, rate in table.cells.items():
        for gpu in pair:
            best[gpu] = max(best.get(gpu, 0.0), rate)
    logs = []
    for gpu, rate in sorted(best.items()):
        others = [other for number, other in best.items() if number != gpu]
        usual = median(others) if len(others) >= FEWEST_NEIGHBOURS else 0.0
        if rate < NEIGHBOUR_FACTOR * usual and min(others) >= ALIKE * usual:
            text = f"GPU {gpu} exchanges data at {rate:g} GB/s at best, the other GPUs of the node at {usual:g} GB/s"
            logs.append(Log(ts=None, event=BANDWIDTH_LOW, text=text, fields={"gpus": str(gpu)}, source=f"{file}:{table.line}"))
    return logs


def _listed(gpus: list[int]) -> str:
    return ", ".join(map(str, gpus))
