"""Builders for the tests of features: records with little to say, windows of them, a whole job, and runs on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.measures.table import RunMemory
from features.records import (
    Collective,
    Cycles,
    Gpu,
    Host,
    Log,
    Net,
    Phase,
    Process,
    Ready,
    Record,
    RunInfo,
    Step,
)
from features.windows import Window

T0 = 1_800_000_000.0
"""A time on the edge of a window of every length."""

LISTS: dict[type, str] = {
    RunInfo: "info",
    Step: "steps",
    Phase: "phases",
    Collective: "collectives",
    Cycles: "cycles",
    Host: "hosts",
    Process: "processes",
    Gpu: "gpus",
    Net: "nets",
    Log: "logs",
}


@pytest.fixture(scope="session")
def t0() -> float:
    return T0


@pytest.fixture(scope="session")
def lists() -> dict[type, str]:
    """Which list of a window each kind of record belongs to."""
    return LISTS


@pytest.fixture(scope="session")
def step() -> Callable[..., Step]:
    """`step(rank, number, at)`: a step that ended `at` seconds after T0."""

    def make(rank: int, number: int, at: float, **said: Any) -> Step:
        return Step(ts=T0 + at, rank=rank, step=number, **said)

    return make


@pytest.fixture(scope="session")
def collective() -> Callable[..., Collective]:
    """`collective(at)`: one that ended `at` seconds after T0, opened 0.1 s before; `ready` maps ranks to offsets."""

    def make(at: float, tensor: str = "t", ready: dict[int, float] | None = None, **said: Any) -> Collective:
        offsets = tuple(Ready(rank, offset) for rank, offset in (ready or {}).items())
        return Collective(**{"op": "allreduce", "ts": T0 + at - 0.1, "end": T0 + at} | said, tensor=tensor, ready=offsets)

    return make


@pytest.fixture(scope="session")
def process() -> Callable[..., Process]:
    """`process(rank, at)`: a sample of a rank's process."""

    def make(rank: int, at: float, **said: Any) -> Process:
        return Process(ts=T0 + at, rank=rank, **said)

    return make


@pytest.fixture(scope="session")
def host() -> Callable[..., Host]:
    """`host(at)`: a sample of a node."""

    def make(at: float, node: str = "alpha", **said: Any) -> Host:
        return Host(ts=T0 + at, node=node, **said)

    return make


@pytest.fixture(scope="session")
def window() -> Callable[..., Window]:
    """`window(*records)`: a window that holds them, from T0 on; it does not look at their times."""

    def make(*records: Record, start: float = 0.0, length_s: float = 1.0) -> Window:
        begin = T0 + start
        out = Window(index=round(begin / length_s), start=begin, end=begin + length_s, until=begin + length_s)
        for record in records:
            getattr(out, LISTS[type(record)]).append(record)
        return out

    return make


@pytest.fixture(scope="session")
def memory() -> Callable[..., RunMemory]:
    """`memory(4)`: a run of which four ranks are known."""

    def make(ranks: int | list[int] = 2, **known: Any) -> RunMemory:
        return RunMemory(ranks=list(range(ranks)) if isinstance(ranks, int) else ranks, **known)

    return make


@dataclass(frozen=True)
class Job:
    """A healthy data-parallel job on one host per rank: logs, timeline and telemetry, all of them drawn from a seed.

    Everything is counted in steps of `step_s`, so that two jobs that differ in it alone are one job in another tempo.
    `first` is the number of its first step. `slow`: rank, from and to which step its forward pass takes twice as long.
    """

    ranks: int = 4
    steps: int = 120
    step_s: float = 0.1
    start: float = T0
    first: int = 0
    seed: int = 1
    slow: tuple[int, int, int] | None = None

    def records(self) -> list[Record]:
        """All records, in no particular order."""
        return [*self.trained(), *self.sampled()]

    def trained(self) -> list[Record]:
        """What the ranks and the coordinator wrote."""
        random, now, out = np.random.default_rng(self.seed), self.start, list[Record]()
        out.append(RunInfo(ts=self.start, world_size=self.ranks, nodes={r: f"node{r}" for r in range(self.ranks)}))
        for k in range(self.steps):
            forward = random.uniform(0.28, 0.32, self.ranks)
            if self.slow is not None and self.slow[1] <= k < self.slow[2]:
                forward[self.slow[0]] *= 2
            data, optimizer = random.uniform(0.09, 0.11, (2, self.ranks))
            backward = random.uniform(0.2, 0.22, self.ranks)
            wait = (data + forward + backward).max() - (data + forward + backward) + 0.1
            total = data + forward + backward + wait + optimizer
            loss = 2.0 + random.uniform(-0.1, 0.1, self.ranks)
            for r in range(self.ranks):
                out.append(
                    Step(
                        ts=now + self.step_s * float(total[r]),
                        rank=r,
                        step=self.first + k,
                        duration_s=self.step_s * float(total[r]),
                        data_s=self.step_s * float(data[r]),
                        forward_s=self.step_s * float(forward[r]),
                        backward_s=self.step_s * float(backward[r]),
                        sync_s=self.step_s * float(wait[r]),
                        optimizer_s=self.step_s * float(optimizer[r]),
                        batch=64,
                        loss=float(loss[r]),
                        grad_norm=1.0 + 0.01 * k,
                        param_norm=9.0 + 0.001 * k,
                    )
                )
            out += self._collectives(random, now, (data + forward).tolist())
            now += self.step_s * float(total.max())
        return out

    def _collectives(self, random: np.random.Generator, now: float, ready: list[float]) -> list[Record]:
        first, last, out = min(ready), max(ready), list[Record]()
        for j, tensor in enumerate(("dense", "conv")):
            opened, took = now + self.step_s * (first + 0.02 * j), self.step_s * float(random.uniform(0.04, 0.05))
            out.append(
                Collective(
                    ts=opened,
                    tensor=tensor,
                    op="allreduce",
                    negotiate_s=self.step_s * (last - first),
                    execute_s=took,
                    end=opened + self.step_s * (last - first) + took,
                    bytes=4096 << j,
                    transport="gloo",
                    ready=tuple(Ready(r, self.step_s * (at - first)) for r, at in enumerate(ready)),
                )
            )
        out.append(Cycles(ts=now, count=9, median_gap_s=0.05 * self.step_s, max_gap_s=0.08 * self.step_s))
        return out

    def sampled(self) -> list[Record]:
        """What the samplers wrote: one sample every two steps."""
        random, out = np.random.default_rng(self.seed + 1), list[Record]()
        every = 2 * self.step_s
        for k in range(int(0.41 * self.steps)):  # steps take 0.85 of their unit: the sampler ends with the job
            ts = self.start + every * (k + 0.5)
            for r in range(self.ranks):
                busy = float(random.uniform(0.7, 0.8))
                out.append(Host(ts=ts, node=f"node{r}", interval_s=every, cpus=4, cpu_ratio=busy / 4 + 0.02, iowait_ratio=0.01,
                                steal_ratio=0.0, load1=1.0, memory_used_bytes=4e9, memory_available_bytes=12e9,
                                swap_used_bytes=0.0, disk_busy_ratio=0.1))  # fmt: skip
                out.append(Process(ts=ts, rank=r, node=f"node{r}", status="running", interval_s=every, cpu_cores=busy,
                                   rss_bytes=4e8 + 1e6 * r, switches_voluntary_per_s=200.0 + r, switches_involuntary_per_s=40.0,
                                   workers=1, workers_cpu_cores=0.1, workers_read_bytes_per_s=1e6, net_tx_bytes_per_s=3e6,
                                   net_rx_bytes_per_s=3e6 + 1e4 * r, net_drops_per_s=0.0,
                                   tcp_retransmits_per_s=1.0))  # fmt: skip
        return out


@pytest.fixture(scope="session")
def job() -> Callable[..., Job]:
    return Job


@dataclass(frozen=True)
class Layout:
    """Text of a small recorded run in the layouts that are read: what each kind of file looks like."""

    ranks: int = 2
    steps: int = 12
    step_s: float = 0.1
    start: float = T0

    def end_of(self, k: int, rank: int = 0) -> float:
        """When a step ended; every fifth one takes half as long again, so that steps can be told apart."""
        return self.start + self.step_s * (1.0 + k + 0.5 * (k // 5)) + 0.001 * rank

    def log(self, rank: int, steps: Iterable[int] | None = None, late_s: float = 0.0) -> str:
        """The log of one rank, by a clock that is `late_s` ahead."""
        at = partial_stamp(late_s)
        head = f"[rank={rank} host=node{rank}]"
        lines = [f"{at(self.start)} INFO {head} start world_size={self.ranks} model=conv batch=64"]
        for k in range(self.steps) if steps is None else steps:
            lines.append(
                f"{at(self.end_of(k, rank))} INFO {head} step={k} epoch=0 loss=2.25 grad_norm=1.5 param_norm=9.0"
                f" data=0.01 fwd=0.02 bwd=0.02 sync=0.01 opt=0.001 step_time=0.1 batch=64 samples_per_s=640 rss_mb=400.0"
            )
        lines.append(f"{at(self.end_of(self.steps) + 1)} INFO {head} done steps={self.steps}")
        return "\n".join(lines) + "\n"

    def launcher(self) -> str:
        """What the launcher wrote: the lines of all ranks, tagged, in the order of the steps."""
        tagged = [(line.partition(" ")[0], r, line) for r in range(self.ranks) for line in self.log(r).splitlines()]
        return "".join(f"[{r}]<stdout>:{line}\n" for _, r, line in sorted(tagged))

    def telemetry(self, shift_s: float = 0.0) -> str:
        """Samples of all ranks on one host, every half second."""
        samples = range(int((self.end_of(self.steps) - self.start) / 0.5) + 2)
        return "".join(json.dumps(self._sample(self.start + shift_s + 0.5 * k, k)) + "\n" for k in samples)

    def _sample(self, ts: float, k: int) -> dict[str, Any]:
        times = {"user": 10.0 + 0.4 * k, "system": 1.0, "idle": 50.0 + 0.6 * k, "iowait": 0.0, "steal": 0.0}
        host = {"cpu_percent": [40.0, 40.0], "cpu_times": times, "load1": 1.0, "mem_used_mb": 4000.0, "swap_used_mb": 0.0,
                "mem_available_mb": 12000.0}  # fmt: skip
        rank = {"pid": 7, "status": "running", "cpu_user_s": 5.0 + 0.3 * k, "cpu_system_s": 1.0, "rss_mb": 400.0}
        return {"ts": ts, "node": "node0", "host": host, "ranks": {str(r): rank for r in range(self.ranks)}}

    def timeline(self, epoch_s: float | None, late_s: float = 0.0) -> str:
        """One allreduce a step, which ends 2 ms before the step does; `epoch_s` None: of the generation without a clock."""
        zero = self.start if epoch_s is None else epoch_s
        events = [self._named()]
        for k in range(self.steps):
            end = round((self.end_of(k) - self.start - 0.002 + late_s) * 1e6)
            events += [
                {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": end - 5000, "pid": 1},
                *({"ph": "X", "name": str(r), "ts": end - 5000 + r, "pid": 1, "dur": 0} for r in range(self.ranks)),
                {"ph": "E", "ts": end - 3000, "pid": 1},
                {"ph": "B", "name": "ALLREDUCE", "ts": end - 2000, "pid": 1},
                {"ph": "E", "ts": end, "pid": 1, "args": {"dtype": "float32", "shape": "[10, 4]"}},
            ]
        if epoch_s is None:
            return "[\n" + "".join(json.dumps(event) + ",\n" for event in events)
        clock = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": round(zero * 1e6)}}
        return "[\n" + ",\n".join(json.dumps(event) for event in [clock, *events]) + "]"

    @staticmethod
    def _named() -> dict[str, Any]:
        return {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "dense.kernel"}}

    def write(self, into: Path) -> Path:
        """A run directory with a file of every kind."""
        into.mkdir(parents=True, exist_ok=True)
        (into / "timeline.json").write_text(self.timeline(self.start))
        (into / "launcher.log").write_text(self.launcher())
        (into / "telemetry.jsonl").write_text(self.telemetry())
        for rank in range(self.ranks):
            (into / f"train_rank{rank}.log").write_text(self.log(rank))
        return into


def partial_stamp(late_s: float) -> Callable[[float], str]:
    return lambda ts: datetime.fromtimestamp(ts + late_s, tz=UTC).isoformat(timespec="microseconds")


@pytest.fixture(scope="session")
def layout() -> Callable[..., Layout]:
    return Layout
