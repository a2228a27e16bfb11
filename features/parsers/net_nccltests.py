"""Reads the tables of nccl-tests and rccl-tests: which nodes took part, and which bandwidth they reached."""

from __future__ import annotations

import re

from features.counters import BENCHMARK, Counters

DEVICE = "nccl-tests"
"""The device of such a result begins so; the collective and the number of GPUs follow."""

LARGE = 1 << 20
"""Bytes. Smaller messages measure latency."""
SETTLED = 0.5
"""The best rate counts only if the largest messages come near it; else the test was cut while it rose."""

_BEGIN = re.compile(r"# *nThreads? \d+ |# *Using devices|# *Collective test starting: (?P<name>\w+)")
_RANK = re.compile(r"# +Rank +\d+ (?:Group +\d+ )?Pid +\d+ on +(?P<node>\S+) +device +\d+ ")
_CONCLUDED = re.compile(r"# *Collective test concluded: (?P<name>\w+)")
_NAMED = re.compile(
    r"\b(?P<name>(?:all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|scatter|gather)_perf)\b"
)
_AVERAGE = re.compile(r"# *Avg bus bandwidth *: *(?P<rate>[\d.]+)")
_ROW = re.compile(r"\s*(?P<size>\d{1,19}) +\d+ +[a-z]\w* +(?:\w+ +)?(?:-?\d+ +)?(?P<numbers>[\d.]+ +.*)$")
_CELL = re.compile(r"\d{1,9}(?:\.\d{1,9})?(?:e[+-]?\d)?")
WRONG = re.compile(r"# *Out of bounds values *: *(?P<count>\d{1,18}) +FAILED")


class NcclTables:
    """One result for each test; `finish` closes the last one."""

    def __init__(self, file: str) -> None:
        """`file` is the name to show in `source`."""
        self._file = file
        self._collective: str | None = None
        self._nodes: list[str] = []
        self._rates: list[tuple[int, float]] = []
        self._line = 0
        self.found: list[Counters] = []
        self.wrong: list[tuple[int, int]] = []  # (values that were wrong, line)

    def read(self, line: str, number: int) -> bool:
        """Whether this is a line of such a test."""
        if begin := _BEGIN.match(line):
            if self._rates:
                self.finish()
            self._collective = begin["name"] or self._collective
            return True
        if rank := _RANK.match(line):
            if self._rates:
                self.finish()
            self._nodes.append(rank["node"])
            return True
        if row := _ROW.match(line):
            return self._row(int(row["size"]), row["numbers"].split(), number)
        return self._told(line, number)

    def _told(self, line: str, number: int) -> bool:
        if concluded := _CONCLUDED.match(line):
            self._collective = concluded["name"]
            self.finish()
            return True
        if wrong := WRONG.match(line):
            self.wrong.append((int(wrong["count"]), number))
        if named := _NAMED.search(line):
            if self._rates:
                self.finish()
            self._collective = named["name"]
        return line.startswith("#")

    def _row(self, size: int, numbers: list[str], number: int) -> bool:
        """time, algbw, busbw and errors, out of place and then in place."""
        if len(numbers) < 3:
            return False
        cells = [numbers[2], *numbers[6:7]]
        rates = [float(cell) for cell in cells if _CELL.fullmatch(cell)]
        if not rates:
            return False
        self._line = self._line or number
        self._rates.append((size, max(rates)))
        return True

    def finish(self) -> None:
        """The test is over."""
        rates = [rate for size, rate in self._rates if size >= LARGE]
        if rates and rates[-1] >= SETTLED * max(rates):
            nodes = sorted(set(self._nodes))
            device = f"{DEVICE} {self._collective or 'collective'}, {len(self._nodes) or 'some'} GPUs"
            values: dict[str, int | float] = {BENCHMARK: max(rates) * 1e9}
            source = f"{self._file}:{self._line}"
            self.found.append(Counters(ts=None, node="+".join(nodes) or None, device=device, values=values, source=source))
        self._collective, self._nodes, self._rates, self._line = None, [], [], 0
