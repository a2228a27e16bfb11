"""Bandwidth tests: copies between GPUs with and without peer access, collectives across nodes, and what is said in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.counters import BENCHMARK, Counters
from features.notices import Notices
from features.parsers.net_bench import WRONG, Bench, sniff
from features.parsers.net_p2p import BANDWIDTH_LOW, P2P_SLOW
from features.records import Log, Record

Cells = list[list[float]]


def matrix(title: str, cells: Cells, corner: str = "D\\D") -> str:
    """One table as the test prints it; the diagonal is a GPU's own memory."""
    head = f"   {corner}" + "".join(f"{i:6d} " for i in range(len(cells)))
    return "\n".join([title, head, *(f"{i:6d} " + " ".join(f"{c:6.2f}" for c in row) for i, row in enumerate(cells))]) + "\n"


def even(gpus: int, rate: float, own: float = 900.0) -> Cells:
    return [[own if i == j else rate for j in range(gpus)] for i in range(gpus)]


def with_pair(cells: Cells, a: int, b: int, rate: float) -> Cells:
    return [[rate if {i, j} == {a, b} else c for j, c in enumerate(row)] for i, row in enumerate(cells)]


DISABLED, ENABLED = (
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
)
NO_PEER_US, PEER_US = "P2P=Disabled Latency Matrix (us)", "P2P=Enabled Latency (P2P Writes) Matrix (us)"
HEADER = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, Some GPU, pciBusID: 3b, pciDeviceID: 0, pciDomainID:0\n"


def p2p(disabled: Cells, enabled: Cells, *more: str) -> str:
    return HEADER + matrix(DISABLED, disabled) + matrix(ENABLED, enabled) + "".join(more)


def table(rates: list[float], nodes: list[str], gpus: int = 8, *, name: str = "all_reduce_perf", wrong: str = "0 OK") -> str:
    """What nccl-tests prints of one test."""
    ranks = [
        f"#  Rank {r:2d} Group  0 Pid   4{r:03d} on {nodes[r * len(nodes) // gpus]} device  {r % 8} [0x{r:02x}] Some GPU"
        for r in range(gpus)
    ]
    rows = [
        f"{4**k << 20:12d} {4**k << 18:12d}     float     sum      -1" + f"   100.0   {r / 2:.2f}   {r:.2f}      0" * 2
        for k, r in enumerate(rates)
    ]
    return "\n".join(
        [
            "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 268435456 step: 4(factor) warmup iters: 5 iters: 20",
            "#",
            "# Using devices",
            *ranks,
            "#                                            out-of-place                       in-place",
            "#       size         count      type   redop    root " + "    time   algbw   busbw #wrong " * 2,
            *rows,
            f"# Out of bounds values : {wrong}",
            "# Avg bus bandwidth    : 123.4",
            "#",
            f"# Collective test concluded: {name}",
            "",
        ]
    )


def read(text: str | bytes, size: int = 1 << 20) -> tuple[list[Record], Notices]:
    """Records and notices of a file, fed in pieces of `size` bytes."""
    data = text.encode() if isinstance(text, str) else text
    notices = Notices()
    parser = Bench("bench.txt", notices)
    found = [r for at in range(0, len(data), size) for r in parser.feed(data[at : at + size])]
    return found + parser.finish(), notices


def logs(text: str) -> list[Log]:
    return [r for r in read(text)[0] if isinstance(r, Log)]


def results(text: str) -> list[tuple[str | None, str, float]]:
    found: list[object] = list(read(text)[0])
    return [(c.node, c.device, c.values[BENCHMARK]) for c in found if isinstance(c, Counters)]


def test_copies_that_peer_access_makes_slower_are_told_with_their_gpus() -> None:
    (log,) = logs(p2p(even(3, 12.5), with_pair(even(3, 11.5), 1, 2, 2.5)))
    assert (log.event, log.ts, log.fields, log.source) == (P2P_SLOW, None, {"gpus": "1, 2"}, "bench.txt:8")
    assert log.text == (
        "peer access makes copies between GPUs slower: bandwidth of 2 -> 1 is 2.5 GB/s with it and 12.5 GB/s without;"
        " 2 of 6 pairs, GPUs 1, 2"
    )


@pytest.mark.parametrize("enabled", [12.5, 9.0, 250.0])
def test_copies_that_peer_access_leaves_alone_or_makes_faster_are_sound(enabled: float) -> None:
    assert read(p2p(even(4, 12.5), even(4, enabled)))[0] == []


def test_a_latency_of_milliseconds_with_peer_access_is_told() -> None:
    text = p2p(
        even(2, 12.5),
        even(2, 25.0),
        matrix(NO_PEER_US, even(2, 12.0, 1.5), "GPU"),
        matrix(PEER_US, even(2, 49000.0, 1.5), "GPU"),
    )
    (log,) = logs(text)
    assert (log.event, log.source) == (P2P_SLOW, "bench.txt:15")
    assert "latency of 1 -> 0 is 49000 us with it and 12 us without" in log.text


def test_the_time_of_the_cpu_in_a_table_of_latencies_says_nothing() -> None:
    slow_cpu = matrix("", even(2, 90000.0, 1.5), "CPU")
    text = p2p(
        even(2, 12.5),
        even(2, 25.0),
        matrix(NO_PEER_US, even(2, 12.0), "GPU"),
        slow_cpu,
        matrix(PEER_US, even(2, 2.0), "GPU"),
        slow_cpu,
    )
    assert logs(text) == []


def lone(gpus: int, slow: int, rate: float, usual: float) -> Cells:
    return [[900.0 if i == j else rate if slow in (i, j) else usual for j in range(gpus)] for i in range(gpus)]


def test_a_gpu_that_is_slow_to_all_others_is_told() -> None:
    (log,) = logs(p2p(even(4, 10.0), lone(4, 2, 11.0, 46.0)))
    assert (log.event, log.fields) == (BANDWIDTH_LOW, {"gpus": "2"})
    assert log.text == "GPU 2 exchanges data at 11 GB/s at best, the other GPUs of the node at 46 GB/s"


def test_gpus_that_are_bridged_in_pairs_are_all_sound() -> None:
    pairs = with_pair(with_pair(even(4, 12.0), 0, 1, 50.0), 2, 3, 50.0)
    assert logs(p2p(even(4, 12.0), pairs)) == []
    assert logs(p2p(even(3, 12.0), with_pair(even(3, 12.0), 0, 1, 50.0))) == []


def test_nvbandwidth_shows_the_same() -> None:
    title = "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)"
    (log,) = logs(
        "nvbandwidth Version: v0.4\nRunning device_to_device_memcpy_write_ce.\n" + matrix(title, lone(5, 0, 20.0, 300.0), "   ")
    )
    assert (log.event, log.fields) == (BANDWIDTH_LOW, {"gpus": "0"})


def test_two_tests_in_a_file_are_judged_apart() -> None:
    bad = p2p(even(2, 12.0), even(2, 3.0))
    assert [log.source for log in logs(bad + bad)] == ["bench.txt:7", "bench.txt:17"]


def test_a_table_of_collectives_gives_its_best_rate_node_and_kind() -> None:
    text = table([40.0, 180.0, 190.5], ["g1"])
    assert results(text) == [("g1", "nccl-tests all_reduce_perf, 8 GPUs", 190.5e9)]
    assert results(table([40.0, 45.0], ["g1", "g2"], 16, name="alltoall_perf")) == [
        ("g1+g2", "nccl-tests alltoall_perf, 16 GPUs", 45e9)
    ]


def test_small_messages_and_tests_that_were_cut_give_no_rate() -> None:
    assert results(table([180.0, 30.0], ["g1"])) == []
    small = table([5.0], ["g1"]).replace(f"{1 << 20:12d} ", f"{1024:12d} ")
    assert results(small) == []


def test_tests_of_several_nodes_in_one_file_stay_apart() -> None:
    text = "".join(table([r], [node]) for node, r in (("g1", 190.0), ("g2", 80.0)))
    assert [(node, rate) for node, _, rate in results(text)] == [("g1", 190e9), ("g2", 80e9)]


def test_rows_without_root_and_with_tags_of_mpirun_are_read() -> None:
    row = "     8388608       2097152     float     sum   400.0   20.97   36.70  5e-07   401.0   20.92   36.61  5e-07\n"
    text = "# Using devices\n#   Rank  0 Pid  9 on g5 device  0 [0x07] Some GPU\n" + row
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())
    assert results(text) == results(tagged) == [("g5", "nccl-tests collective, 1 GPUs", 36.7e9)]


def test_wrong_values_are_told() -> None:
    _, notices = read(table([5.0], ["g1"], wrong="12 FAILED"))
    assert [(n.text, n.count) for n in notices.items() if n.text == WRONG] == [(WRONG, 12)]


def test_messages_between_the_rows_are_read_as_text_on_their_lines() -> None:
    warn = "g1:77:88 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error\n"
    lines = table([180.0, 190.0], ["g1"]).splitlines(keepends=True)
    found = read("".join([*lines[:14], warn, *lines[14:]]))[0]
    (log,) = (r for r in found if isinstance(r, Log))
    assert (log.event, log.source) == ("nccl_ib_error", "bench.txt:15")


EVERYTHING = p2p(even(3, 12.5), lone(3, 1, 2.0, 30.0)) + table([40.0, 180.0], ["g1", "g2"])


@given(size=st.integers(1, 500))
def test_chunks_do_not_matter(size: int) -> None:
    assert read(EVERYTHING, size)[0] == read(EVERYTHING)[0]


@given(cuts=st.lists(st.tuples(st.integers(0, len(EVERYTHING)), st.binary(max_size=8)), max_size=5), size=st.integers(1, 5000))
def test_damage_never_raises(cuts: list[tuple[int, bytes]], size: int) -> None:
    data = EVERYTHING.encode()
    for at, put in cuts:
        data = data[:at] + put + data[at + len(put) :]
    assert read(data, size)[0] == read(data)[0]
    sniff(data)


def test_the_tests_are_recognised() -> None:
    assert sniff(p2p(even(2, 1.0), even(2, 1.0)).encode())
    assert sniff(table([1.0], ["g1"]).encode())
    assert sniff(("g1:1:2 [0] NCCL INFO Bootstrap : Using eth0\n" * 30 + table([1.0], ["g1"])).encode())


@pytest.mark.parametrize(
    "text",
    [
        "2031-01-01T00:00:00Z INFO [rank=0] step=1 loss=0.5\n" * 60 + table([1.0], ["g1"]),
        "P2P=Enabled is what the Bandwidth test says\nalgbw and busbw of the run\nstep=1 loss=1\nstep=2 loss=1\n",
        "g1:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM\n" * 5,
        "",
    ],
)
def test_files_of_others_are_left_alone(text: str) -> None:
    assert not sniff(text.encode())
