"""Reads the trees that `nvidia-smi -q` prints, one or many after each other."""

from __future__ import annotations

import re

from features.notices import Notices
from features.parsers import gpu_events
from features.parsers.gpu_columns import REASONS, Column
from features.parsers.gpu_events import Whom, remark_in
from features.parsers.gpu_identity import gpu_shown
from features.parsers.gpu_rows import CELL_CAP, ROW_CAP, clean
from features.parsers.gpu_samples import Cell, Samples
from features.parsers.gpu_values import number_of, pci_of, plain
from features.parsers.loglines import LineSplitter
from features.parsers.protocol import ParserRow
from features.records import Gpu, Record

_TITLE = re.compile(r"=+NVSMI LOG=+\s*")
_GPU = re.compile(r"GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s*")
INDENT_MAX = 80  # blanks before a name; trees are five levels deep
PROCESSES_MAX = 1000  # listed on one GPU

_KEYS: dict[tuple[str, str], Column] = {
    ("", "gpu uuid"): Column("uuid"),
    ("utilization", "gpu"): Column("utilization"),
    ("fb memory usage", "total"): Column("memory_total"),
    ("fb memory usage", "used"): Column("memory_used"),
    ("temperature", "gpu current temp"): Column("temperature"),
    ("power readings", "power draw"): Column("power"),
    ("gpu power readings", "power draw"): Column("power"),
    ("gpu power readings", "instantaneous power draw"): Column("power", order=1),
    ("gpu power readings", "average power draw"): Column("power", order=2),
    ("power readings", "enforced power limit"): Column("power_limit"),
    ("power readings", "power limit"): Column("power_limit", order=1),
    ("gpu power readings", "current power limit"): Column("power_limit"),
    ("clocks", "sm"): Column("sm_clock"),
    ("clocks", "graphics"): Column("sm_clock", order=1),
    ("remapped rows", "uncorrectable error"): Column("remapped"),
    ("remapped rows", "remapping failure occurred"): Column("remap_failed"),
}
"""Section and name in lower case; the name alone where the section is the GPU itself."""
_REASON_SECTIONS = ("clocks event reasons", "clocks throttle reasons")
_UNCORRECTED = frozenset(
    {"sram uncorrectable", "dram uncorrectable", "sram uncorrectable parity", "sram uncorrectable sec-ded"}
)  # fmt: skip


def sniff(head: bytes) -> bool:
    """Whether the first line that says anything is the title of such a tree."""
    first = next((line for line in clean(head).splitlines() if line.strip()), "")
    return _TITLE.fullmatch(first) is not None


class GpuQuery:
    """Feed it bytes in any chunking. A GPU's sample is complete when the next one, or the next tree, begins."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._lines = LineSplitter(file, notices, ROW_CAP)
        self._samples = Samples(file, notices)
        self._ts: float | None = None
        self._start = 0  # line on which the sample began
        self._sections: list[tuple[int, str]] = []  # indent and name of those around the line, outermost first
        self._pci: str | None = None
        self._cells: dict[tuple[str, str], Cell] = {}
        self._errors: dict[str, float] = {}
        self._processes: list[str] = []

    @property
    def absolute(self) -> bool:
        """Whether the times are since the Unix epoch."""
        return self._samples.clock.absolute

    def feed(self, data: bytes) -> list[Record]:
        """Records of the GPUs that `data` completes."""
        return [record for line in self._lines.feed(data) for record in self._read(clean(line))]

    def finish(self) -> list[Record]:
        """Records of the last GPU."""
        return [record for line in self._lines.finish() for record in self._read(clean(line))] + self._close()

    def _read(self, line: str) -> list[Record]:
        place = f"line {self._lines.number}"
        gpu = _GPU.fullmatch(line)
        if gpu is not None or _TITLE.fullmatch(line):
            records = self._close()
            self._pci, self._start = (None, 0) if gpu is None else (pci_of(gpu[1]), self._lines.number)
            self._ts = self._ts if gpu is not None else None
            return records
        indent = len(line) - len(line.lstrip())
        remark = remark_in(line) if indent == 0 else None
        if remark is not None:
            return [*self._close(), *self._samples.remark(remark, place)]
        name, colon, text = line.partition(":")
        if colon:
            self._pair(indent, name.strip().lower(), text.strip(), place)
        elif line.strip() and indent <= INDENT_MAX:
            self._enter(indent, line.strip().lower())
        return []

    def _enter(self, indent: int, name: str) -> None:
        self._sections = [*((i, n) for i, n in self._sections if i < indent), (indent, name)]

    def _pair(self, indent: int, name: str, text: str, place: str) -> None:
        around = [n for i, n in self._sections if i < indent]
        section = around[-1] if around else ""
        if name == "timestamp" and not around:
            self._ts = self._samples.clock.read(text, place)
        elif section in _REASON_SECTIONS:
            reason = REASONS.get(name.replace(" ", "_"))
            if reason is not None:
                self._cells[(section, name)] = (Column(f"reason:{reason}"), text)
        elif "volatile" in around[-2:]:
            self._error(section, name, text)
        elif section == "processes" or name == "process id":
            self._process(name, text)
        elif (column := _KEYS.get((section, name))) is not None:
            self._cells[(section, name)] = (column, text)

    def _error(self, section: str, name: str, text: str) -> None:
        """Volatile counters of uncorrected errors, in the order of memories (new) or of bits (old)."""
        found = number_of(text)
        if found is not None and (name in _UNCORRECTED or (section == "double bit" and name == "total")):
            self._errors[name] = found[0]

    def _process(self, name: str, text: str) -> None:
        if name == "process id" and len(self._processes) < PROCESSES_MAX:
            self._processes.append(text[:CELL_CAP])
        elif name == "type" and self._processes and ("C" not in text or "M" in text):
            self._processes.pop()  # graphics only, or sharing on purpose through MPS

    def _close(self) -> list[Record]:
        """The sample of the GPU that ends here."""
        pci, self._pci = self._pci, None
        cells, errors, processes = list(self._cells.values()), self._errors, self._processes
        self._cells, self._errors, self._processes, self._sections = {}, {}, [], []
        if pci is None:
            return []
        cells.append((Column("pci"), pci))
        if errors:
            cells.append((Column("ecc"), str(sum(errors.values()))))
        records = self._samples.add(self._ts, cells, f"line {self._start}")
        sample = next((r for r in records if isinstance(r, Gpu)), None)
        if sample is None or len({p for p in processes if plain(p)}) < 2:
            return records
        whom = Whom(sample.gpu, sample.ts, sample.source, sample.node, sample.rank)
        text = f"{gpu_shown(sample.gpu)} runs {len(processes)} computing processes at once: {', '.join(processes[:8])}"
        return [*records, gpu_events.log(gpu_events.CONTENDED, whom, text)]


QUERY_ROW = ParserRow("gpu", sniff, GpuQuery)
