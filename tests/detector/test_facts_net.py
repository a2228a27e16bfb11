"""Facts of the network: which counters accuse whom, from how much on, and what they stay silent about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from detector.catalog import Catalog
from detector.facts import Fact
from detector.facts_net import WORD_OF_TEST, NetFacts
from features.counters import TCP
from features.measures.table import RunMemory
from features.parsers.net_nccltests import DEVICE
from features.parsers.net_p2p import BANDWIDTH_LOW, P2P_SLOW
from features.records import Log, Net
from features.windows import Window, windows

T0 = 1_900_000_000.0
LENGTH = 10.0
NODES = {0: "g1", 1: "g1", 2: "g2", 3: "g2"}
HEALTHY = {"symbol_error": 0.0, "link_downed": 0.0, "port_rcv_errors": 0.0, "port_xmit_wait": 500.0}


def net(device: str = "mlx5_0/1", node: str = "g2", *, index: int = 0, interval: float | None = LENGTH, **fields: Any) -> Net:
    """A record in the midst of window `index`."""
    return Net(ts=T0 + index * LENGTH + 5, node=node, device=device, interval_s=interval, source=f"{device}:{index}", **fields)


def window(*records: Net | Log, index: int = 0) -> Window:
    """All records in one window; `index` counts from T0."""
    (cut,) = windows(records, LENGTH)
    assert cut.start in {T0 + index * LENGTH, 0.0}
    return cut


def facts(*nets: Net, nodes: Mapping[int, str] = NODES) -> list[Fact]:
    return NetFacts().of(window(*nets), RunMemory(nodes=dict(nodes)))


def named(found: Iterable[Fact]) -> list[tuple[str, bool]]:
    return [(f.name, f.hard) for f in found]


def per_s(**grown: float) -> dict[str, float]:
    """Growth in one window, as rates."""
    return {name: amount / LENGTH for name, amount in grown.items()}


def test_a_link_that_gathers_errors_is_the_root_and_names_node_device_and_counts() -> None:
    (fact,) = facts(net(errors=per_s(symbol_error=4000, link_downed=2, port_rcv_errors=300)))
    assert fact == Fact(
        ts=T0 + 5,
        name="net_link_errors",
        role="root",
        hard=True,
        channel="pace",
        text="mlx5_0/1 on g2: symbol_error +4000, port_rcv_errors +300, link_downed +2 in 10 s",
        ranks=(2, 3),
        source="mlx5_0/1:0",
        kind="telemetry",
    )


@pytest.mark.parametrize("nodes", [{}, {0: "g2", 1: "g2"}])
def test_on_a_single_node_no_rank_is_accused(nodes: dict[int, str]) -> None:
    (fact,) = facts(net(errors=per_s(link_downed=1)), nodes=nodes)
    assert fact.ranks == ()


def test_a_domain_does_not_part_a_node_from_its_ranks() -> None:
    (fact,) = facts(net(node="g1.cluster.example", errors=per_s(link_downed=1)))
    assert fact.ranks == (0, 1)


def test_a_device_of_no_named_node_stands_alone() -> None:
    (fact,) = facts(net("lid 7/1", "localhost", errors=per_s(link_downed=1)))
    assert fact.text == "lid 7/1: link_downed +1 in 10 s"


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        ({"link_downed": 1}, [True]),
        ({"link_error_recovery": 1}, [True]),
        ({"link_down_events_phy": 1}, [True]),
        ({"symbol_error": 10}, [True]),
        ({"rx_crc_errors_phy": 10}, [True]),
        ({"symbol_error": 9}, [False]),
        ({"port_rcv_errors": 1}, [False]),
        ({"rx_errors": 500}, [False]),
        ({"rx_errors": 5}, []),
        ({"out_of_sequence": 10_000}, []),
        (dict.fromkeys(HEALTHY, 0), []),
    ],
    ids=str,
)
def test_one_break_is_enough_and_single_errors_are_not(grown: dict[str, float], expected: list[bool]) -> None:
    assert named(facts(net(errors=per_s(**grown)))) == [("net_link_errors", hard) for hard in expected]


def test_slow_damage_adds_up_over_windows_and_is_forgotten() -> None:
    finder, memory = NetFacts(), RunMemory()
    hard = []
    for index in range(4):
        found = finder.of(window(net(index=index, errors=per_s(symbol_error=4)), index=index), memory)
        hard.append([f.hard for f in found])
    assert hard == [[False], [False], [True], [True]]
    (late,) = finder.of(window(net(index=30, errors=per_s(symbol_error=4)), index=30), memory)
    assert not late.hard


def test_a_handful_of_errors_in_an_hour_is_no_bad_link() -> None:
    hour = net(interval=3600.0, errors={"symbol_error": 20 / 3600})
    assert named(facts(hour)) == [("net_link_errors", False)]
    assert named(facts(net(interval=3600.0, errors={"symbol_error": 200 / 3600}))) == [("net_link_errors", True)]


def test_without_times_the_growth_itself_decides_and_the_text_says_so() -> None:
    (fact,) = facts(net(interval=None, errors={"symbol_error": 48194 / 60}))
    assert (fact.hard, fact.text) == (True, "mlx5_0/1 on g2: symbol_error +48194 between two snapshots")


def wait(ticks: float, sent: float | None, **more: float) -> Net:
    errors = per_s(port_xmit_wait=ticks, **more)
    return net(errors=errors, tx_bytes_per_s=None if sent is None else sent / LENGTH)


def test_a_port_that_cannot_send_over_a_clean_link_is_congestion() -> None:
    (fact,) = facts(wait(3e9, 8e9))
    assert (fact.name, fact.role, fact.hard) == ("net_congestion", "root", True)
    assert fact.text == (
        "mlx5_0/1 on g2: held back by the network: port_xmit_wait +3000000000 ticks in 10 s,"
        " it could send at most 25.0% of what it had to; the link itself is clean"
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (wait(4e8, 8e9), [("net_congestion", False)]),
        (wait(1e7, 8e9), []),
        (wait(1e5, 10.0), []),
        (wait(3e9, None), [("net_congestion", False)]),
    ],
    ids=["some", "little against what was sent", "little at all", "sent bytes unknown"],
)
def test_some_waiting_is_no_proof(record: Net, expected: list[tuple[str, bool]]) -> None:
    assert named(facts(record)) == expected


def test_waiting_on_a_bad_link_is_the_links_doing() -> None:
    found = facts(wait(3e9, 8e9, symbol_error=900))
    assert sorted(named(found)) == [("net_congestion", False), ("net_link_errors", True)]


@pytest.mark.parametrize(("us", "expected"), [(5e6, [True]), (5e5, [False]), (1e5, [])])
@pytest.mark.parametrize("name", ["rx_prio3_pause_duration", "tx_global_pause_duration"])
def test_pauses_are_congestion_by_their_share_of_the_time(name: str, us: float, expected: list[bool]) -> None:
    found = facts(net("eth0", errors=per_s(**{name: us})))
    assert named(found) == [("net_congestion", hard) for hard in expected]
    assert all(("forbade it to send" in f.text) == name.startswith("rx") for f in found)


@pytest.mark.parametrize(("marked", "expected"), [(4e6, [True]), (2e5, [False]), (1e4, [])])
def test_marked_packets_are_congestion_by_their_share(marked: float, expected: list[bool]) -> None:
    found = facts(net(errors=per_s(np_ecn_marked_roce_packets=marked), rx_bytes_per_s=1.024e9))
    assert named(found) == [("net_congestion", hard) for hard in expected]


@pytest.mark.parametrize(
    ("dropped", "bytes_per_s", "expected"),
    [
        (20_000.0, 1.5e8, [True]),
        (500.0, 1.5e8, [True]),
        (500.0, 1.5e9, [False]),
        (0.5, 1500.0, []),
        (5.0, 1.5e9, []),
        (50.0, None, [False]),
    ],
)
def test_drops_weigh_by_their_share_of_the_packets(dropped: float, bytes_per_s: float | None, expected: list[bool]) -> None:
    errors = {"rx_dropped": dropped}
    found = facts(net("eth0", drops_per_s=dropped, errors=errors, rx_bytes_per_s=bytes_per_s))
    # 1000 packets a second make a share of 1 % of 1.5e8 bytes.
    is_proof = [dropped * 1500 / bytes_per_s >= 0.01 for _ in expected] if bytes_per_s is not None else expected
    assert named(found) == [("net_drops", hard) for hard in is_proof]


def test_what_tcp_sends_again_is_weighed_by_what_its_node_sends() -> None:
    again = net(TCP, errors={"retrans_segs": 1000.0})
    assert named(facts(again, net("eth0", tx_bytes_per_s=1.448e7))) == [("net_retransmits", True)]
    assert named(facts(again, net("eth0", tx_bytes_per_s=1.448e8))) == [("net_retransmits", False)]
    assert named(facts(again, net("eth0", tx_bytes_per_s=1.448e10))) == []
    assert named(facts(again, net("eth0", "g1", tx_bytes_per_s=1.0))) == [("net_retransmits", False)]


def test_rdma_that_sends_much_again_has_a_lossy_network() -> None:
    errors = {"packet_seq_err": 50_000.0, "local_ack_timeout_err": 20.0}
    (fact,) = facts(net(errors=errors, tx_bytes_per_s=1.024e9))
    assert (fact.name, fact.hard) == ("net_retransmits", True)
    assert "packet_seq_err +500000, local_ack_timeout_err +200 in 10 s, 5.0% of what it sent" in fact.text


@pytest.mark.parametrize("device", ["docker0", "veth12ab", "lxc99", "cali1", "tun0", "eni55"])
def test_interfaces_of_containers_are_left_alone(device: str) -> None:
    assert facts(net(device, errors={"carrier_changes": 5.0, "rx_dropped": 900.0}, drops_per_s=900.0, rx_bytes_per_s=1.0)) == []


def test_a_link_that_goes_down_is_told_once_and_an_unused_port_never() -> None:
    finder, memory = NetFacts(), RunMemory()
    found = [
        finder.of(window(net(index=i, is_up=up), net("spare", index=i, is_up=False), index=i), memory)
        for i, up in enumerate((True, False, False, True, False))
    ]
    assert [[f.text for f in one] for one in found] == [
        [],
        ["mlx5_0/1 on g2: the link went down"],
        [],
        [],
        ["mlx5_0/1 on g2: the link went down"],
    ]


def silent_after(quiet: Mapping[str, int], *, usual: float = 1e9, last: int = 8) -> list[tuple[int, str]]:
    """Links of three nodes, each of which carries nothing from a window on: in which windows that is told, and of whom."""
    finder, memory = NetFacts(), RunMemory(nodes=NODES)
    told = []
    for index in range(last):
        nets = [
            net(node=node, index=index, rx_bytes_per_s=0.0 if index >= quiet.get(node, last) else usual, tx_bytes_per_s=0.0)
            for node in ("g1", "g2", "g3")
        ]
        for fact in finder.of(window(*nets, index=index), memory):
            assert (fact.name, fact.hard) == ("net_silence", False)
            told.append((index, fact.text))
    return told


def test_one_link_that_falls_silent_among_others_is_told_once() -> None:
    text = "mlx5_0/1 on g2: carries 0 MB/s, usually 1000 MB/s, while other links go on"
    assert silent_after({"g2": 5}) == [(5, text)]


def test_silence_of_all_is_the_end_of_the_job_and_that_of_an_idle_link_nothing() -> None:
    assert silent_after({"g1": 5, "g2": 5, "g3": 5}) == []
    assert silent_after({"g2": 5}, usual=1e4) == []
    assert silent_after({"g2": 1}) == []


def bench(node: str, rate: float, index: int = 0) -> Net:
    return net(f"{DEVICE} all_reduce_perf, 8 GPUs", node, index=index, interval=None, tx_bytes_per_s=rate)


def test_a_node_whose_test_is_far_below_the_others_is_told() -> None:
    (fact,) = facts(bench("g1", 190e9), bench("g2", 80e9), bench("g3", 188e9))
    assert (fact.name, fact.hard, fact.ranks) == ("net_throughput_low", True, (2, 3))
    assert fact.text == "nccl-tests all_reduce_perf, 8 GPUs on g2: reaches 80 GB/s, the other nodes 189 GB/s"


def test_two_tests_or_even_ones_accuse_nobody() -> None:
    assert facts(bench("g1", 190e9), bench("g2", 80e9)) == []
    assert facts(bench("g1", 190e9), bench("g2", 120e9), bench("g3", 188e9)) == []


def test_tests_of_different_windows_are_compared_and_a_better_repetition_clears() -> None:
    finder, memory = NetFacts(), RunMemory()
    assert finder.of(window(bench("g1", 190e9), bench("g2", 20e9)), memory) == []
    assert finder.of(window(bench("g2", 185e9, 1), index=1), memory) == []
    assert finder.of(window(bench("g3", 30e9, 2), index=2), memory)[0].text.startswith(
        "nccl-tests all_reduce_perf, 8 GPUs on g3"
    )
    assert finder.of(window(bench("g1", 191e9, 3), index=3), memory) == []


@pytest.mark.parametrize(("event", "word"), [(P2P_SLOW, "log_p2p_disabled"), (BANDWIDTH_LOW, "net_throughput_low")])
def test_a_test_of_gpus_is_proof(event: str, word: str) -> None:
    log = Log(ts=None, event=event, text="GPU 1 is slow", source="p2p.txt:3")
    (fact,) = NetFacts().of(window(log), RunMemory())
    assert (fact.name, fact.hard, fact.role, fact.ts, fact.text) == (word, True, "root", 0.0, "GPU 1 is slow")


def test_several_samples_in_a_window_are_one_fact() -> None:
    halves = [net(interval=5.0, errors={"symbol_error": 1.0, "link_downed": 0.2}) for _ in range(2)]
    (fact,) = facts(*halves)
    assert fact.text == "mlx5_0/1 on g2: symbol_error +10, link_downed +2 in 10 s"


def test_every_word_is_one_of_the_catalog(catalog: Catalog) -> None:
    said = {"net_link_errors", "net_congestion", "net_drops", "net_retransmits", "net_silence", "net_throughput_low"}
    assert said | set(WORD_OF_TEST.values()) <= set(catalog.vocabulary)


def test_nothing_is_said_of_a_healthy_network() -> None:
    healthy = [
        net(
            device,
            node,
            errors=HEALTHY | {"np_cnp_sent": 50.0},
            rx_bytes_per_s=2e10,
            tx_bytes_per_s=2e10,
            drops_per_s=0.0,
            is_up=True,
        )
        for node in ("g1", "g2")
        for device in ("mlx5_0/1", "mlx5_1/1")
    ]
    assert (
        facts(*healthy, net(TCP, errors={"retrans_segs": 0.4}), net("eth0", errors={"rx_dropped": 0.3}, drops_per_s=0.3)) == []
    )
