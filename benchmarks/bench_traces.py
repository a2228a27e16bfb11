"""How fast a trace of the PyTorch profiler becomes records, next to other readers on the same bytes in the same run.

python benchmarks/bench_traces.py --mb 64

Beside json.loads and orjson.loads, which only make objects, stands the loader of HolisticTraceAnalysis, if it is there:
pip install HolisticTraceAnalysis
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from features.notices import Notices
from features.parsers.trace_kineto import KinetoTrace

CHUNK = 1 << 20  # bytes fed at once, as a file reader would
BASE_NS = 1_700_000_000_000_000_000
LAYERS = 40
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_nn_align8>(Params)"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Writer:
    """Writes events as Kineto does: a line for the names, one for the times, one for each of the args."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - not for secrets
        self.now, self.gpu, self.number = 1000.0, 1000.0, 0
        self.parts: list[str] = []
        self.size = 0

    def put(self, category: str, name: str, tid: int, span: tuple[float, float], args: dict[str, Any]) -> None:
        """One event."""
        told = ",".join(f'"{key}": {json.dumps(value)}' for key, value in args.items())
        text = (
            f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 4711, "tid": {tid},\n'
            f'    "ts": {span[0]:.3f}, "dur": {span[1] - span[0]:.3f},\n    "args": {{\n      {told}\n    }}\n  }}'
        )
        self.parts.append(text)
        self.size += len(text) + 2

    def operator(self, name: str, kernel: str, tid: int, shape: list[int]) -> None:
        """An operator on the CPU, the launch of its kernel, and the kernel."""
        self.number += 1
        begin, length = self.now, self.random.uniform(8, 30)
        args = {
            "External id": self.number, "Record function id": 0, "Ev Idx": self.number, "Sequence number": self.number,
            "Fwd thread id": 0, "Input Dims": [shape, shape, [], []], "Input type": ["c10::BFloat16", "c10::BFloat16", "", ""],
            "Concrete Inputs": ["", "", "1", ""],
        }  # fmt: skip
        self.put("cpu_op", name, tid, (begin, begin + length), args)
        launch = {"External id": self.number, "cbid": 211, "correlation": self.number}
        self.put("cuda_runtime", "cudaLaunchKernel", tid, (begin + 3, begin + 7), launch)
        self.kernel(kernel, 7, max(begin + 6, self.gpu), self.random.uniform(10, 60), {})
        self.now += length + 1

    def kernel(self, name: str, stream: int, begin: float, length: float, more: dict[str, Any]) -> None:
        """A kernel on the GPU."""
        args = {
            "External id": self.number, "queued": 0, "device": 0, "context": 1, "stream": stream, "correlation": self.number,
            "registers per thread": 96, "shared memory": 41744, "blocks per SM": 0.148148, "warps per SM": 2.962963,
            "grid": [16, 1, 1], "block": [640, 1, 1], "est. achieved occupancy %": 5, **more,
        }  # fmt: skip
        self.put("kernel", name, stream, (begin, begin + length), args)
        if stream == 7:
            self.gpu = begin + length

    def collective(self, elements: int) -> None:
        """An all-reduce: asked for on the CPU, carried out on a stream of its own."""
        self.number += 1
        begin = self.now
        told = {
            "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "Group size": 8,
            "dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg",
        }  # fmt: skip
        self.put("cpu_op", "record_param_comms", 2, (begin, begin + 60), {"External id": self.number, **told})
        self.put("user_annotation", "nccl:all_reduce", 2, (begin + 5, begin + 55), {"External id": self.number})
        self.put("cuda_runtime", "cudaLaunchKernelExC", 2, (begin + 30, begin + 40), {"correlation": self.number})
        self.kernel(NCCL, 20, self.gpu, self.random.uniform(300, 900), told)
        self.now += 61

    def step(self, number: int) -> None:
        """Input, forward, backward with collectives, optimizer."""
        start = self.now
        self.now += 200
        self.put("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1, (start, self.now), {})
        for _ in range(LAYERS):
            self.operator("aten::mm", GEMM, 1, [4096, 4096])
            self.operator("aten::add_", ELEMENTWISE, 1, [4096, 4096])
        for layer in range(LAYERS):
            self.operator("autograd::engine::evaluate_function: MmBackward0", GEMM, 2, [4096, 4096])
            self.operator("aten::add_", ELEMENTWISE, 2, [4096, 4096])
            if layer % 8 == 7:
                self.collective(1 << (20 + layer % 3))
        begin = self.now
        self.operator("aten::_foreach_add_", ELEMENTWISE, 1, [4096, 4096])
        self.put("user_annotation", "Optimizer.step#AdamW.step", 1, (begin, self.now), {"External id": self.number})
        self.now = max(self.now, self.gpu)
        self.put("user_annotation", f"ProfilerStep#{number}", 1, (start, self.now), {"External id": self.number})


def generate(megabytes: float, seed: int) -> bytes:
    """A trace of at least that many megabytes."""
    writer = Writer(seed)
    number = 0
    while writer.size < megabytes * 1e6:
        number += 1
        writer.step(number)
    head = (
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],\n'
        '  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},\n'
        f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [\n'
    )
    return (head + ",\n".join(writer.parts) + '\n  ],\n  "traceName": "trace.json"\n}\n').encode()


def parse(data: bytes) -> int:
    """All records of the trace; how many."""
    parser = KinetoTrace("rank3.json", Notices())
    for start in range(0, len(data), CHUNK):
        parser.feed(data[start : start + CHUNK])
    return len(parser.finish())


def hta_loaders(path: Path) -> dict[str, Callable[[bytes], object]]:
    """The loaders of HolisticTraceAnalysis on the same bytes as a file; empty, with a word on stderr, if it is missing."""
    try:
        module = importlib.import_module("hta.common.trace_parser")
        config = importlib.import_module("hta.configs.parser_config")
    except ImportError:
        print("HolisticTraceAnalysis is missing and is left out; pip install HolisticTraceAnalysis", file=sys.stderr)
        return {}
    settings = config.ParserConfig.get_default_cfg()
    return {"HTA": lambda _: module.parse_trace_dataframe(str(path), settings)}


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


def peak(work: Callable[[bytes], object], data: bytes) -> float:
    """The most MiB that a reader holds at any one time, beside the bytes themselves."""
    gc.collect()
    tracemalloc.start()
    result = work(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return most / 2**20


def main() -> None:
    """Print times, ratios and memory."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mb", type=float, default=32.0, help="size of the generated trace")
    options.add_argument("--file", type=Path, help="measure this trace (not compressed) instead of a generated one")
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    data = args.file.read_bytes() if args.file else generate(args.mb, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank3.json"
        path.write_bytes(data)
        works: dict[str, Callable[[bytes], object]] = {"records": parse, "json": json.loads, "orjson": orjson.loads}
        works |= hta_loaders(path)
        seconds = fastest(works, data, args.repeat)
        memory = {name: peak(work, data) for name, work in works.items()}
    print(f"{len(data) / 1e6:.1f} MB, {parse(data)} records, Python {sys.version.split()[0]}")
    for name, own in seconds.items():
        ratio = own / seconds["records"]
        more = memory[name] / memory["records"]
        print(
            f"{name:8} {own:8.3f} s {len(data) / 1e6 / own:7.1f} MB/s, {ratio:6.2f} times our time; "
            f"{memory[name]:8.1f} MiB, {more:6.1f} times our memory"
        )


if __name__ == "__main__":
    main()
