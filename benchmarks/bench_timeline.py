"""How fast a Horovod timeline becomes records, next to json.loads and orjson.loads on the same bytes in the same run.

python benchmarks/bench_timeline.py --mb 64
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import orjson

from features.notices import Notices
from features.parsers.timeline import TimelineParser

TENSORS = 33
CHUNK = 1 << 20  # bytes fed at once, as a file reader would
EPOCH_US = 1_700_000_000_000_000


class Writer:
    """Writes events as Horovod does."""

    def __init__(self, seed: int, *, ticks: bool) -> None:
        """`ticks`: write a tick per rank, as without the response cache."""
        self.random, self.ticks, self.now = random.Random(seed), ticks, 0  # noqa: S311 - not for secrets
        self.parts: list[str] = []
        self.size = 0

    def put(self, text: str) -> None:
        """One record; time goes on by a few microseconds."""
        self.parts.append(text)
        self.size += len(text) + 1
        self.now += self.random.randrange(3)

    def each(self, pids: list[int], name: str, seconds: float) -> None:
        """One span on each of a fused group of tensors."""
        for pid in pids:
            self.put(f'{{"ph": "B", "name": "{name}", "ts": {self.now}, "pid": {pid}}}')
        self.now += int(seconds * 1e6)
        for pid in pids:
            self.put(f'{{"ph": "E", "ts": {self.now}, "pid": {pid}}}')

    def cycle(self) -> None:
        """The mark of one cycle of 5 ms."""
        self.now += 5000
        self.put(f'{{"ph": "i", "name": "CYCLE_START", "ts": {self.now}, "s": "g"}}')

    def collective(self, pids: list[int]) -> None:
        """A fused allreduce from its negotiation to its end."""
        for pid in pids:
            self.put(f'{{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": {self.now}, "pid": {pid}}}')
        for rank in range(4 if self.ticks else 0):
            self.cycle()
            for pid in pids:
                self.put(f'{{"ph": "X", "name": "{rank}", "ts": {self.now}, "pid": {pid}, "dur": 0}}')
        self.cycle()
        for pid in pids:
            self.put(f'{{"ph": "E", "ts": {self.now}, "pid": {pid}}}')
        for pid in pids:
            self.put(f'{{"ph": "B", "name": "ALLREDUCE", "ts": {self.now}, "pid": {pid}}}')
        self.each(pids, "MEMCPY_IN_FUSION_BUFFER", 0.0001)
        self.each(pids, "GLOO_ALLREDUCE", 0.001)
        self.each(pids, "MEMCPY_OUT_FUSION_BUFFER", 0.0001)
        for pid in pids:
            args = '{"dtype": "float32", "shape": "[32, 16, 3, 3]"}'
            self.put(f'{{"ph": "E", "ts": {self.now}, "pid": {pid}, "args": {args}}}')


def generate(megabytes: float, *, seed: int, ticks: bool) -> bytes:
    """A timeline of at least that many megabytes."""
    writer = Writer(seed, ticks=ticks)
    epoch = f'{{"start_time_since_epoch_in_micros":{EPOCH_US}}}'
    head = f'[\n{{"name": "process_name", "ph": "M", "pid": 0, "args": {epoch}}},\n'
    names = [
        f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "gradient.{pid}"}}}}'
        for pid in range(1, TENSORS + 1)
    ]
    while writer.size < megabytes * 1e6:
        pids = list(range(1, TENSORS + 1))
        while pids:
            group = writer.random.choice((1, 2, 2, 4, 6))
            writer.collective(pids[:group])
            writer.cycle()
            pids = pids[group:]
    return (head + ",\n".join(names) + ",\n" + ",".join(writer.parts) + "]").encode()


def parse(data: bytes) -> int:
    """All records of the file; how many."""
    parser = TimelineParser("timeline.json", Notices())
    count = 0
    for start in range(0, len(data), CHUNK):
        count += len(parser.feed(data[start : start + CHUNK]))
    return count + len(parser.finish())


def peak_memory(data: bytes) -> int:
    """The most bytes that parsing holds at any one time, numpy's included; the records are not kept."""
    tracemalloc.start()
    parse(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def fastest(works: dict[str, Callable[[bytes], object]], data: bytes, repeat: int) -> dict[str, float]:
    """Seconds of the best of several rounds; in each round all take their turn, so that all meet the same noise."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeat):
        for name, work in works.items():
            gc.collect()
            start = time.perf_counter()
            result = work(data)
            best[name] = min(best[name], time.perf_counter() - start)
            del result
    return best


def main() -> None:
    """Print times, ratios and memory."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mb", type=float, default=32.0, help="size of the generated timeline")
    options.add_argument("--file", type=Path, help="measure this timeline instead of a generated one")
    options.add_argument("--ticks", action="store_true", help="generate a tick per rank (response cache off)")
    options.add_argument("--repeat", type=int, default=5)
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    data = args.file.read_bytes() if args.file else generate(args.mb, seed=args.seed, ticks=args.ticks)
    seconds = fastest({"records": parse, "json": json.loads, "orjson": orjson.loads}, data, args.repeat)
    print(f"{len(data) / 1e6:.1f} MB, {parse(data)} records, Python {sys.version.split()[0]}")
    for name, own in seconds.items():
        print(f"{name:8} {own:8.3f} s {len(data) / 1e6 / own:7.1f} MB/s, {own / seconds['records']:.2f} times our time")
    print(f"memory: at most {peak_memory(data) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
