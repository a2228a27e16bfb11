"""Tables of `nsys stats`, as new and old versions print them."""

from __future__ import annotations

import pytest

from features.notices import Notices
from features.parsers.trace import TRACE_ROWS
from features.parsers.trace_nsys_csv import BY_DEVICE, DAMAGED, NO_CLOCK, NSYS_CSV
from features.records import Collective, Record, Step

TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
)
NCCL = '"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>, x)"'
SUMS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"


def row(start: object, length: object, name: str, device: int = 0) -> str:
    return f"{start},{length},8,16,1,1,640,1,1,96,0.000,0.001,,,,,NVIDIA A100-SXM4-80GB ({device}),1,,20,{name}"


def read(*lines: str, file: str = "kernels.csv") -> tuple[list[Record], list[str]]:
    notices = Notices()
    data = ("\n".join(lines) + "\n").encode()
    assert next(r for r in TRACE_ROWS if r.sniff(data)) is NSYS_CSV
    parser = NSYS_CSV.make(file, notices)
    return parser.feed(data) + parser.finish(), [n.text for n in notices.items()]


def test_kernels_one_by_one_are_collectives() -> None:
    lines = ("Processing [r.sqlite] with [cuda_gpu_trace.py]...", TRACE, row(1000, 500, NCCL), row(900, 50, "gemm"))
    records, notices = read(*lines, row(9, 9, "[CUDA memcpy Host-to-Device]"), file="rank2.csv")
    assert records == [
        Collective(
            ts=pytest.approx(1e-6), tensor="allreduce", op="allreduce", execute_s=pytest.approx(5e-7),
            transfer_s=pytest.approx(5e-7), end=pytest.approx(1.5e-6), transport="nccl", rank=2, source="rank2.csv:stream 20",
        )
    ]  # fmt: skip
    assert notices == [NO_CLOCK]


def test_each_gpu_is_a_rank() -> None:
    records, notices = read(TRACE, row(10, 5, NCCL, device=5), row(10, 5, NCCL, device=2))
    assert sorted(c.rank for c in records if isinstance(c, Collective) and c.rank is not None) == [0, 1]
    assert notices == [NO_CLOCK, BY_DEVICE]


def test_units_of_the_header_count() -> None:
    records, _ = read("Start (ms),Duration (us),CorrId,Device,Strm,Name".replace("(us)", "(ms)"), f"2,1,1,GPU (0),7,{NCCL}")
    assert [(c.ts, c.transfer_s) for c in records if isinstance(c, Collective)] == [(pytest.approx(2e-3), pytest.approx(1e-3))]


def test_marked_ranges_are_steps() -> None:
    head = "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId"
    records, _ = read(
        head,
        "0,4000,4000,0,0,:step 3,5,5,0,0,1,",
        "1000,2000,1000,0,0,:forward,5,5,1,0,2,1",
        '3000,3100,100,0,0,"NCCL:ncclAllReduce",5,5,1,0,3,1',
    )
    (step,) = (r for r in records if isinstance(r, Step))
    assert (step.step, step.duration_s, step.forward_s) == (3, pytest.approx(4e-6), pytest.approx(1e-6))
    assert [c.op for c in records if isinstance(c, Collective)] == ["allreduce"]


@pytest.mark.parametrize(
    "header",
    [SUMS, '"Time(%)","Total Time (ns)","Instances","Average","Median","Minimum","Maximum","StdDev","Name"'],
    ids=["new", "old"],
)
def test_sums_are_told_and_have_no_time(header: str) -> None:
    records, notices = read(
        header,
        f"60.0,6000000,3,2000000.0,1,1,4000000,0,{NCCL}",
        "30.0,3000000,100,1,1,1,900000,0,gemm",
        '10.0,1000000,1,1,1,1,1000000,0,"ncclDevKernel_Broadcast(x)"',
    )
    assert records == []
    told = "allreduce 3 x 2.00 ms (at most 4.00 ms), broadcast 1 x 1.00 ms (at most 1.00 ms)"
    assert notices == [f"collectives took 70% of the time of all kernels: {told}"]


def test_rows_that_do_not_fit_are_counted_and_a_blank_line_ends_a_table() -> None:
    records, notices = read(TRACE, row("x", 5, NCCL), row(10, -5, NCCL), row(10, 5, NCCL), "", "1,2,3")
    assert len(records) == 1
    assert notices == [DAMAGED, NO_CLOCK]


def test_other_tables_are_not_taken() -> None:
    assert not NSYS_CSV.sniff(b"timestamp, name, utilization.gpu [%]\n2026/01/01, A100, 5 %\n")
