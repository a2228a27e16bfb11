"""Traces of the PyTorch profiler, written by hand: both time bases, GPU and CPU, old and new spellings, and damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from features.notices import Notices
from features.parsers import trace_kineto
from features.parsers.timeline import TIMELINE
from features.parsers.trace import TRACE_ROWS
from features.parsers.trace_kineto import KINETO
from features.records import Collective, Record, RunInfo, Step

BASE_NS = 1_700_000_000_000_000_000
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(name: str, cat: str, ts: float, dur: float, tid: object = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": tid, "ts": ts, "dur": dur, "args": args}


def mark(name: str, ts: float, dur: float, tid: object = 1, **args: Any) -> dict[str, Any]:
    return event(name, "user_annotation", ts, dur, tid, **args)


def asked(ts: float, correlation: int, elements: int = 1000, name: str = "nccl:all_reduce") -> list[dict[str, Any]]:
    """A request of 100 us that launches a kernel after 40."""
    dims = {"Input Dims": [[elements]], "Input type": ["float"]}
    launch = event("cudaLaunchKernelExC", "cuda_runtime", ts + 40, 5, 2, correlation=correlation)
    return [mark(name, ts, 100, 2, **dims), launch]


def kernel(ts: float, dur: float, correlation: int, name: str = KERNEL, **args: Any) -> dict[str, Any]:
    return event(name, "kernel", ts, dur, 20, correlation=correlation, **args)


def whole(*events: Any, base: int | None = BASE_NS, info: dict[str, Any] | None = None) -> bytes:
    """A trace whose clock is told behind the events, as newer profilers do."""
    trace: dict[str, Any] = {"schemaVersion": 1}
    if info is not None:
        trace["distributedInfo"] = info
    trace["traceEvents"] = [e for es in events for e in (es if isinstance(es, list) else [es])]
    if base is not None:
        trace["baseTimeNanoseconds"] = base
    return json.dumps(trace).encode()


def read(data: bytes, file: str = "trace.json") -> tuple[list[Record], dict[str, int]]:
    notices = Notices()
    assert KINETO.sniff(data[:65536])
    parser = KINETO.make(file, notices)
    records = parser.feed(data) + parser.finish()
    return records, {n.text: n.count for n in notices.items()}


def collectives(records: list[Record]) -> list[Collective]:
    return [r for r in records if isinstance(r, Collective)]


def steps(records: list[Record]) -> list[Step]:
    return [r for r in records if isinstance(r, Step)]


RANK3 = {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2]}]}


def test_collective_begins_when_asked_for_and_moves_in_its_kernel() -> None:
    records, notices = read(whole(kernel(5000, 700, 9), asked(2000, 9), info=RANK3))
    assert notices == {}
    assert records == [
        RunInfo(ts=1_700_000_000.002, world_size=8, settings={"backend": "nccl"}, source="trace.json"),
        Collective(
            ts=pytest.approx(1_700_000_000.002, abs=1e-6),
            tensor="allreduce float[1000]",
            op="allreduce",
            execute_s=pytest.approx(0.0037),
            transfer_s=pytest.approx(0.0007),
            end=pytest.approx(1_700_000_000.0057, abs=1e-6),
            bytes=4000,
            transport="nccl",
            rank=3,
            source="trace.json:stream 20",
        ),
    ]


@pytest.mark.parametrize("base", [None, 0, BASE_NS], ids=["no base", "zero", "with a base that must not be added"])
def test_older_times_count_from_the_epoch(base: int | None) -> None:
    records, _ = read(whole(mark("ProfilerStep#4", 1_680_000_000_000_000, 250_000), base=base, info=RANK3))
    assert [(s.ts, s.duration_s) for s in steps(records)] == [(1_680_000_000.25, 0.25)]


def test_without_any_clock_times_are_not_absolute() -> None:
    notices = Notices()
    parser = KINETO.make("rank2.json", notices)
    parser.feed(whole(mark("ProfilerStep#4", 1000, 500), base=None))
    (step,) = steps(parser.finish())
    assert getattr(parser, "absolute") is False  # noqa: B009 - the protocol leaves it open
    assert (step.ts, step.rank) == (0.0015, 2)
    assert [n.text for n in notices.items()] == [trace_kineto.NO_CLOCK]


def test_rank_is_that_of_the_trace_then_of_the_file_then_zero() -> None:
    one = mark("ProfilerStep#1", 0, 10)
    assert [steps(read(whole(one, info=RANK3), "job/rank7/t.json")[0])[0].rank] == [3]
    assert [steps(read(whole(one), "job/rank-7/t.json")[0])[0].rank] == [7]
    records, notices = read(whole(one), "node_1234.pt.trace.json")
    assert [s.rank for s in steps(records)] == [0]
    assert notices == {"no rank named: steps are taken as those of rank 0": 1}


def test_step_has_the_parts_that_are_marked() -> None:
    records, _ = read(
        whole(
            mark("ProfilerStep#7", 0, 1000),
            mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 10, 90),
            mark("## forward ##", 100, 300),
            mark("DistributedDataParallel.forward", 110, 280),  # within the other: counts once
            mark("Optimizer.step#AdamW.step", 800, 150),
            mark("Optimizer.zero_grad#AdamW.zero_grad", 960, 100),  # reaches out of the step
            event("autograd::engine::evaluate_function: MulBackward0", "cpu_op", 400, 200, 2),
            event("autograd::engine::evaluate_function: AddBackward0", "cpu_op", 650, 50, 2),
            info=RANK3,
        )
    )
    (step,) = steps(records)
    told = (step.step, step.duration_s, step.data_s, step.forward_s, step.backward_s, step.optimizer_s, step.sync_s)
    assert told == (7, *(pytest.approx(v) for v in (1e-3, 9e-5, 3e-4, 2.5e-4, 1.9e-4)), None)


def test_marked_backward_pass_counts_instead_of_the_gradients() -> None:
    gradients = event("autograd::engine::evaluate_function: MulBackward0", "cpu_op", 400, 200, 2)
    records, _ = read(whole(mark("ProfilerStep#7", 0, 1000), mark("loss.backward", 350, 400), gradients))
    assert steps(records)[0].backward_s == pytest.approx(4e-4)


def test_wait_is_the_time_in_which_only_communication_goes_on() -> None:
    records, _ = read(
        whole(mark("ProfilerStep#7", 0, 1000), kernel(100, 400, 1, "gemm"), kernel(300, 500, 2), kernel(700, 50, 3, "add"))
    )
    assert steps(records)[0].sync_s == pytest.approx(250e-6)  # 500-700 and 750-800


def test_each_step_once_and_not_as_the_gpu_repeats_it() -> None:
    again = event("ProfilerStep#7", "gpu_user_annotation", 300, 2000, 20)
    records, _ = read(whole(mark("ProfilerStep#7", 0, 1000), again, mark("ProfilerStep#8", 1000, 900)))
    assert [(s.step, s.duration_s) for s in steps(records)] == [(7, 1e-3), (8, 9e-4)]


def test_steps_that_people_mark_count_where_the_profiler_marks_none() -> None:
    own = [mark("train_step 12", 0, 500), mark("iteration 13", 500, 400)]
    assert [s.step for s in steps(read(whole(own))[0])] == [12, 13]
    assert [s.step for s in steps(read(whole(own, mark("ProfilerStep#2", 0, 900)))[0])] == [2]


def test_gloo_annotations_are_the_operation_itself() -> None:
    dims = {"Input Dims": [[50]], "Input type": ["double"]}
    records, notices = read(
        whole(
            mark("ProfilerStep#1", 0, 1000),
            mark("gloo:all_reduce", 200, 300, 9, **dims),
            event("record_param_comms", "cpu_op", 190, 5, 1, **{"Collective name": "allreduce", "dtype": "Double"}),
            event("aten::mm", "cpu_op", 0, 260),
            info={"backend": "gloo", "rank": 1, "world_size": 2},
        )
    )
    (one,) = collectives(records)
    assert (one.op, one.transport, one.bytes, one.rank) == ("allreduce", "gloo", 400, 1)
    assert one.transfer_s == one.execute_s == pytest.approx(3e-4)
    assert steps(records)[0].sync_s == pytest.approx(2.4e-4)  # 260-500
    assert notices == {}


def test_arguments_tell_more_than_names() -> None:
    told = {
        "Collective name": "_reduce_scatter_base", "In msg nelems": 800, "Out msg nelems": 100, "dtype": "BFloat16",
        "Process Group Name": "3", "Process Group Description": "mesh_tp",
    }  # fmt: skip
    records, _ = read(whole(kernel(0, 10, 1, "ncclDevKernel_Generic(x)", **told), kernel(50, 10, 2, "ncclKernel_Generic")))
    first, second = collectives(records)
    assert (first.op, first.bytes, first.tensor) == ("reducescatter", 1600, "reducescatter BFloat16[800] in mesh_tp")
    assert (second.op, second.bytes, second.tensor) == ("collective", None, "collective")


def test_request_of_torch_and_of_its_backend_are_one() -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "Float"}
    records, notices = read(
        whole(event("record_param_comms", "cpu_op", 90, 120, 2, **told), asked(100, 5, 64), kernel(400, 50, 5))
    )
    (one,) = collectives(records)
    assert (one.bytes, one.execute_s, notices.get(trace_kineto.NO_CLOCK)) == (256, pytest.approx(360e-6), None)


def test_equal_messages_of_a_step_are_numbered() -> None:
    events = [[*asked(at, n), kernel(at + 50, 10, n)] for n, at in enumerate((100, 300, 1100, 1300))]
    records, _ = read(whole(mark("ProfilerStep#1", 0, 1000), mark("ProfilerStep#2", 1000, 1000), *events))
    names = [c.tensor for c in collectives(records)]
    assert names == ["allreduce float[1000]", "allreduce float[1000] #2"] * 2


def test_request_without_kernel_is_not_taken_for_a_transfer() -> None:
    records, notices = read(whole(asked(100, 1), kernel(200, 50, 1), asked(900, 2, 77)))
    assert [c.bytes for c in collectives(records)] == [4000]
    assert notices == {"a collective was asked for, but its kernel is not in the trace": 1}


def test_trace_without_kernels_tells_when_and_not_how_long() -> None:
    records, notices = read(whole(asked(100, 1), info=RANK3))
    (one,) = collectives(records)
    assert (one.execute_s, one.transfer_s, one.bytes) == (None, None, 4000)
    assert one.end is not None
    assert any("no GPU kernels" in text for text in notices)


def test_several_kernels_of_one_request_do_not_each_have_its_bytes() -> None:
    launches = [event("cudaLaunchKernel", "cuda_runtime", 120 + n, 1, 2, correlation=n) for n in (1, 2)]
    records, _ = read(whole(mark("nccl:all_gather", 100, 100, 2), launches, kernel(300, 5, 1), kernel(310, 5, 2)))
    assert [(c.op, c.bytes) for c in collectives(records)] == [("allgather", None)] * 2


def test_words_of_old_profilers() -> None:
    records, _ = read(
        whole(
            event("ProfilerStep#3", "Operator", 0, 1000),
            event("nccl:broadcast", "Operator", 10, 50, 2),
            event("cudaLaunchKernel", "Runtime", 20, 5, 2, correlation=4),
            event("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclColl)", "Kernel", 100, 40, 7, correlation=4),
        )
    )
    assert [s.step for s in steps(records)] == [3]
    assert [(c.op, c.execute_s) for c in collectives(records)] == [("broadcast", pytest.approx(130e-6))]


def test_amd_traces_have_other_words_of_launching() -> None:
    launch = event("hipExtLaunchKernel", "cuda_runtime", 20, 5, 2, correlation=4)
    records, _ = read(whole(mark("nccl:all_reduce", 10, 50, 2), launch, kernel(100, 40, 4, "ncclDevKernel_Generic_4(x)")))
    assert [(c.op, c.transport) for c in collectives(records)] == [("allreduce", "nccl")]


def test_bare_array_is_read() -> None:
    events = [mark("ProfilerStep#1", 0, 10), mark("ProfilerStep#2", 10, 10)]
    assert len(steps(read(json.dumps(events).encode())[0])) == 2


def test_trace_that_tells_nothing_says_so() -> None:
    records, notices = read(whole(event("aten::mm", "cpu_op", 0, 5)))
    assert (records, notices) == ([], {trace_kineto.NOTHING: 1})


HOROVOD = b'[\n{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1}'


@pytest.mark.parametrize("head", [HOROVOD, b'{"traceEvents": ' + HOROVOD, b"[\n", b"[]", b'[{"ph": "B", "ts": 1, "pid": 1}'])
def test_horovod_timelines_are_left_to_their_reader(head: bytes) -> None:
    assert not any(row.sniff(head) for row in TRACE_ROWS)


def test_no_other_reader_wants_these_traces() -> None:
    for data in (whole(mark("ProfilerStep#1", 0, 10)), json.dumps([mark("ProfilerStep#1", 0, 10)]).encode()):
        assert [row for row in (TIMELINE, *TRACE_ROWS) if row.sniff(data)] == [KINETO]


def test_log_lines_that_speak_of_traces_are_no_trace() -> None:
    assert not KINETO.sniff(b'{"msg": 1, "traceEvents": 3}\n{"msg": 2}\n')
