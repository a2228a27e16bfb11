"""Reads what p2pBandwidthLatencyTest of the CUDA samples prints: how fast GPUs copy to each other, directly and not."""

from __future__ import annotations

import re
import statistics

from features.notices import Notices
from features.parsers import gpu_events
from features.parsers.gpu_columns import Column
from features.parsers.gpu_events import Whom
from features.parsers.gpu_rows import ROW_CAP, clean
from features.parsers.gpu_samples import Samples
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.records import Gpu, Record

SLOWER = 0.5
"""Direct copies at less than this share of the way over the host: they should be as fast, and are several times faster."""
GPUS_MAX = 64

_TITLE = b"P2P (Peer-to-Peer) GPU Bandwidth Latency Test"
_DEVICE = re.compile(r"Device: (\d{1,3}), .{1,100}?, pciBusID: (\w{1,4}), pciDeviceID: (\w{1,4}), pciDomainID: ?(\w{1,8})\s*")
_MATRIX = re.compile(r"(\w+) P2P=(Enabled|Disabled) (Bandwidth|Latency).*")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?")


def sniff(head: bytes) -> bool:
    """Whether the file begins with the title of the test."""
    return head.lstrip().removeprefix(b"[").startswith(_TITLE)


class P2pTest:
    """Feed it bytes in any chunking; the verdict comes with `finish`. There is no time in this output."""

    absolute = False

    def __init__(self, file: str, notices: Notices) -> None:
        self._file = file
        self._lines = LineSplitter(file, notices, ROW_CAP)
        self._samples = Samples(file, notices)
        self._devices: list[Gpu] = []
        self._matrix: str | None = None  # "Enabled" or "Disabled" while a matrix of bandwidths is read
        self._copies: dict[str, list[float]] = {"Enabled": [], "Disabled": []}

    def feed(self, data: bytes) -> list[Record]:
        """One record for each device."""
        return [record for line in self._lines.feed(data) for record in self._read(clean(line))]

    def finish(self) -> list[Record]:
        """What the two ways of copying say together."""
        records = [record for line in self._lines.finish() for record in self._read(clean(line))]
        direct, over_host = self._copies["Enabled"], self._copies["Disabled"]
        if not direct or not over_host or statistics.median(direct) >= SLOWER * statistics.median(over_host):
            return records
        first = self._devices[0] if self._devices else None
        whom = Whom(self._file if first is None else first.gpu, 0.0, self._file, None if first is None else first.node)
        fast, slow = statistics.median(over_host), statistics.median(direct)
        text = f"direct copies between GPUs run at {slow:.1f} GB/s, over the host at {fast:.1f} GB/s"
        return [*records, gpu_events.log(gpu_events.P2P_SLOW, whom, text)]

    def _read(self, line: str) -> list[Record]:
        device = _DEVICE.fullmatch(line.strip())
        if device is not None:
            return self._device(*device.groups())
        matrix = _MATRIX.fullmatch(line.strip())
        if matrix is not None:
            self._matrix = matrix[2] if matrix[1] == "Unidirectional" and matrix[3] == "Bandwidth" else None
        elif self._matrix is not None:
            self._row(line.split())
        return []

    def _device(self, number: str, bus: str, device: str, domain: str) -> list[Record]:
        """The device list: the address is written in decimal here, in hexadecimal everywhere else."""
        if len(self._devices) >= GPUS_MAX or not (bus.isdecimal() and device.isdecimal() and domain.isdecimal()):
            return []
        pci = f"{int(domain):08x}:{int(bus) & 0xFF:02x}:{int(device) & 0xFF:02x}.0"
        cells = [(Column("index"), number), (Column("pci"), pci)]
        records = self._samples.add(0.0, cells, f"line {self._lines.number}")
        self._devices += [record for record in records if isinstance(record, Gpu)]
        return records

    def _row(self, cells: list[str]) -> None:
        """A row of a matrix: the number of the device, then how fast it copies to each; to itself is no copy."""
        if not cells or not all(_NUMBER.fullmatch(cell) for cell in cells) or not cells[0].isdecimal():
            self._matrix = self._matrix if cells[:1] == ["D\\D"] else None
            return
        own, speeds = int(cells[0]), [float(cell) for cell in cells[1 : GPUS_MAX + 1]]
        if self._matrix is not None and own < GPUS_MAX:
            self._copies[self._matrix] += [speed for to, speed in enumerate(speeds) if to != own][:GPUS_MAX]
            del self._copies[self._matrix][GPUS_MAX * GPUS_MAX :]


P2P_ROW = ParserRow("gpu", sniff, P2pTest)
