"""What the tests of the product share: a synthetic job with known faults, parts of its judgement, and the command line."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from detector.catalog import Catalog, load_catalog
from detector.cli import main
from detector.fact import Fact
from detector.verdicts import ChannelVerdict, WindowVerdict
from detector.wiring import SHIPPED_BUNDLE
from features.extract import Extractor, FeatureFrame
from features.measures.table import Measures, RunMemory
from features.notices import Notices
from features.records import Host, Process, Record, Step
from features.rundir import RunData
from features.vocabulary import INDEX, NAMES
from features.windows import Window, order_key
from models import Bundle, read_bundle

ROOT = Path(__file__).resolve().parents[2]
T0 = 1_772_000_000.0
"""A time of day in 2026, on the edge of a window of every length."""


@dataclass(frozen=True)
class Job:
    """A data-parallel job of steps of 50 ms whose ranks wait for each other, with at most one of each fault.

    `slow`: rank, first step, last step + 1; its forward pass takes four times as long. `stall`: rank, step, seconds; the rank
    stands still before the step and all others wait. `nan`: rank, step; the others get it one step later. `killed`: rank,
    step; nobody comes further, and the others' processes live on for ten seconds.
    """

    ranks: int = 4
    steps: int = 300
    start: float = T0
    slow: tuple[int, int, int] | None = None
    stall: tuple[int, int, float] | None = None
    nan: tuple[int, int] | None = None
    killed: tuple[int, int] | None = None
    seed: int = 1
    step_s: float = 0.05

    def steps_of_all(self) -> list[Step]:
        """Every step of every rank, in order."""
        random, now, out = np.random.default_rng(self.seed), self.start, []
        for k in range(self.steps if self.killed is None else self.killed[1]):
            forward = 0.2 * self.step_s * random.uniform(0.9, 1.1, self.ranks)
            if self.slow is not None and self.slow[1] <= k < self.slow[2]:
                forward[self.slow[0]] *= 4
            stalled = np.zeros(self.ranks)
            if self.stall is not None and k == self.stall[1]:
                stalled[self.stall[0]] = self.stall[2]
            rest = self.step_s * random.uniform(0.9, 1.1, (3, self.ranks)) * [[0.1], [0.4], [0.02]]
            local = forward + stalled + rest.sum(axis=0)
            lasts = float(local.max()) + 0.2 * self.step_s * random.uniform(0.9, 1.1)
            now += lasts
            out += [
                Step(
                    ts=round(now + 1e-4 * rank, 6),
                    rank=rank,
                    step=k,
                    duration_s=round(lasts, 6),
                    data_s=round(float(rest[0, rank] + stalled[rank]), 6),
                    forward_s=round(float(forward[rank]), 6),
                    backward_s=round(float(rest[1, rank]), 6),
                    sync_s=round(lasts - float(local[rank]), 6),
                    optimizer_s=round(float(rest[2, rank]), 6),
                    loss=self._loss(rank, k, random.uniform(0.98, 1.02)),
                    source=f"rank{rank}.log:{k + 1}",
                )
                for rank in range(self.ranks)
            ]
        return out

    def samples(self, until: float) -> Iterator[tuple[Host, list[Process]]]:
        """The machine and the processes, five times a second."""
        random = np.random.default_rng(self.seed + 1)
        for i in range(1, round((until - self.start) / 0.2)):
            ts = round(self.start + 0.2 * i, 6)
            busy = float(random.uniform(0.55, 0.6))
            gone = {self.killed[0]} if self.killed is not None and ts > self.last_step_end else set()
            host = Host(ts=ts, node="n0", interval_s=0.2, cpus=8, cpu_ratio=busy, iowait_ratio=0.0, load1=4.0)
            yield host, [self._sample(rank, ts, rank in gone, float(random.uniform(0.9, 1.0))) for rank in range(self.ranks)]

    @property
    def last_step_end(self) -> float:
        """When the last step ended."""
        return max(s.ts for s in self.steps_of_all())

    def records(self) -> list[Record]:
        """All records in event order."""
        until = self.last_step_end + (10.0 if self.killed is not None else 0.0)
        samples = [record for host, processes in self.samples(until) for record in (host, *processes)]
        return sorted([*self.steps_of_all(), *samples], key=order_key)

    def run(self, name: str = "job") -> RunData:
        """The run as if it had been read."""
        return RunData(id=name, path=name, files=[], records=self.records(), notices=Notices())

    def write(self, directory: Path) -> Path:
        """Log files of all ranks in `directory`, which is made."""
        directory.mkdir(parents=True, exist_ok=True)
        lines: dict[int, list[str]] = {rank: [] for rank in range(self.ranks)}
        for step in self.steps_of_all():
            lines[step.rank].append(log_line(step))
        for rank, text in lines.items():
            (directory / f"rank{rank}.log").write_text("\n".join(text) + "\n")
        return directory

    def _loss(self, rank: int, k: int, noise: float) -> float:
        if self.nan is not None and k >= self.nan[1] + (rank != self.nan[0]):
            return math.nan
        return round(2.0 * math.exp(-k / 400) * noise, 6)

    def _sample(self, rank: int, ts: float, gone: bool, cpu: float) -> Process:
        if gone:
            return Process(ts=ts, rank=rank, node="n0", pid=100 + rank, status="gone", interval_s=0.2)
        return Process(
            ts=ts, rank=rank, node="n0", pid=100 + rank, status="sleeping", interval_s=0.2, cpu_cores=cpu, rss_bytes=5e8
        )


def log_line(step: Step, shift_s: float = 0.0) -> str:
    """A step as the training script would log it."""
    when = dt.datetime.fromtimestamp(step.ts + shift_s, dt.UTC).isoformat(timespec="microseconds")
    return (
        f"{when} INFO [rank={step.rank} host=n0] step={step.step} loss={step.loss} data={step.data_s} fwd={step.forward_s}"
        f" bwd={step.backward_s} sync={step.sync_s} opt={step.optimizer_s} step_time={step.duration_s}"
    )


@pytest.fixture(scope="session")
def job() -> type[Job]:
    return Job


@pytest.fixture(scope="session")
def line_of() -> Callable[..., str]:
    return log_line


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def shipped() -> Bundle:
    return read_bundle(SHIPPED_BUNDLE)


def make_frame(
    index: int,
    ranks: int = 4,
    *,
    length_s: float = 1.0,
    unit_s: float = 0.05,
    per_rank: Mapping[str, Mapping[int, float]] | None = None,
    run: Mapping[str, float] | None = None,
    steps: tuple[int, int] | None = None,
    **more: object,
) -> FeatureFrame:
    """Features of window `index`; whatever is not given is unknown. `per_rank`: feature -> rank -> value."""
    start, end = T0 + index * length_s, T0 + (index + 1) * length_s
    empty = Extractor(RunMemory(ranks=list(range(ranks)))).frame(Window(index=index, start=start, end=end, until=end))
    values = np.full((ranks, len(NAMES)), math.nan)
    for name, of_ranks in (per_rank or {}).items():
        for rank, value in of_ranks.items():
            values[rank, INDEX[name]] = value
    first, last = steps or (None, None)
    changes = {"is_warmup": False, **more, "values": values, "unit_s": unit_s, "first_step": first, "last_step": last}
    measures = Measures(ranks=empty.ranks, per_rank=empty.measures.per_rank, run={**empty.measures.run, **(run or {})})
    return msgspec.structs.replace(empty, **changes, measures=measures)


@pytest.fixture(scope="session")
def frame() -> Callable[..., FeatureFrame]:
    return make_frame


@pytest.fixture(scope="session")
def verdict() -> Callable[..., WindowVerdict]:
    """Unusual in the named channels."""

    def make(*channels: str, ranks: tuple[int, ...] = (0,), features: tuple[tuple[str, float], ...] = ()) -> WindowVerdict:
        said = ChannelVerdict(score=5.0, limit=3.5, ranks=ranks, features=features)
        return WindowVerdict(channels=dict.fromkeys(channels, said))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def fact() -> Callable[..., Fact]:
    """A fact at `at` seconds after T0."""

    def make(at: float, name: str = "log_exception", role: str = "root", **more: object) -> Fact:
        return Fact(**{"ts": T0 + at, "name": name, "role": role, "channel": "pace", "text": f"{name} at {at:g}", **more})

    return make


@dataclass
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it wrote to stdout, read."""
        return json.loads(self.out)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command line here: quick, and an exception that nobody made on purpose fails the test."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(left.value.code, out, err)

    return run


@pytest.fixture(scope="session")
def rankwatch() -> Callable[..., Outcome]:
    """Runs the command line in a process of its own, as a person would."""

    def run(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
        command = [str(Path(sys.executable).with_name("rankwatch")), *map(str, arguments)]
        done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, check=False)
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The recorded runs."""
    return ROOT / "datasets" / "runs"
