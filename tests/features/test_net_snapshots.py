"""Snapshots that become rates: which belong together, in which order, and what resets, full counters and missing times mean."""

from __future__ import annotations

import pytest

from features.counters import BENCHMARK, MACHINE, TCP, Counters
from features.growth import AT_LEAST, RESET, STUCK
from features.notices import Notices
from features.parsers.net import NET_ROWS
from features.records import Host, Log, Net, Record, Step
from features.rundir import SourceFile
from features.snapshots import ALONE, NOT_LATER, UNTIMED, SnapshotJoiner, join_snapshots, read_name

T0 = 1_900_000_000.0


def counters(ts: float | None = T0, device: str = "mlx5_0/1", node: str | None = None, **values: float) -> Counters:
    return Counters(ts=ts, node=node, device=device, values=dict(values), source="f:1")


def file(name: str, *records: object, kind: str = "net") -> SourceFile:
    return SourceFile(name=name, kind=kind, sha256="", records=list(records))  # type: ignore[arg-type]


def joined(*files: SourceFile) -> tuple[list[list[Record]], dict[str, int]]:
    """Records of each file afterwards, and the notices."""
    notices = Notices()
    join_snapshots(list(files), notices)
    return [f.records for f in files], {n.text: n.count for n in notices.items()}


def pair(
    old: dict[str, float], new: dict[str, float], device: str = "mlx5_0/1", seconds: float = 10.0
) -> tuple[list[Record], set[str]]:
    """What two readings of one file, `seconds` apart, become, and the notices."""
    (records,), notices = joined(file("a.log", counters(T0, device, **old), counters(T0 + seconds, device, **new)))
    return records, set(notices)


def net(old: dict[str, float], new: dict[str, float], seconds: float = 10.0) -> tuple[Net, set[str]]:
    records, notices = pair(old, new, seconds=seconds)
    (record,) = (r for r in records if isinstance(r, Net))
    return record, notices


def test_rates_are_exact_and_belong_to_the_later_snapshot() -> None:
    first, second = (
        file("n.t0.prom", counters(T0, rx_bytes=100, symbol_error=5)),
        file("n.t1.prom", counters(T0 + 8, rx_bytes=900, symbol_error=13)),
    )
    (before, after), notices = joined(first, second)
    assert before == []
    assert after == [
        Net(
            ts=T0 + 8,
            node="localhost",
            device="mlx5_0/1",
            interval_s=8.0,
            rx_bytes_per_s=100.0,
            errors={"symbol_error": 1.0},
            source="f:1",
        )
    ]
    assert notices == {}


def test_bytes_on_the_wire_count_where_they_are_known() -> None:
    record, _ = net({"rx_bytes": 0, "rx_bytes_phy": 0}, {"rx_bytes": 10, "rx_bytes_phy": 1000})
    assert record.rx_bytes_per_s == 100.0


def test_drops_are_added_up() -> None:
    record, _ = net({"rx_dropped": 0, "port_xmit_discards": 1}, {"rx_dropped": 20, "port_xmit_discards": 31})
    assert (record.drops_per_s, record.errors) == (5.0, {"port_xmit_discards": 3.0, "rx_dropped": 2.0})


def test_counters_that_move_in_health_are_no_errors() -> None:
    record, _ = net({"rx_packets": 0, "vl15_dropped": 0}, {"rx_packets": 5, "vl15_dropped": 5})
    assert record.errors == {}


def test_a_reset_leaves_what_was_counted_since_of_errors_and_nothing_of_traffic() -> None:
    record, notices = net({"rx_bytes": 500, "symbol_error": 400}, {"rx_bytes": 300, "symbol_error": 30})
    assert (record.rx_bytes_per_s, record.errors, notices) == (None, {"symbol_error": 3.0}, {RESET})


@pytest.mark.parametrize(("name", "full"), [("link_downed", 255), ("symbol_error", 65535), ("port_xmit_wait", 2**32 - 1)])
def test_a_full_counter_says_at_least_and_then_nothing(name: str, full: int) -> None:
    record, notices = net({name: full - 20}, {name: full})
    assert (record.errors, notices) == ({name: 2.0}, {AT_LEAST})
    record, notices = net({name: full}, {name: full})
    assert (record.errors, notices) == ({}, {STUCK})


def test_a_wide_counter_goes_on_beyond_the_narrow_ones_end() -> None:
    record, notices = net({"link_downed": 255}, {"link_downed": 256})
    assert (record.errors, notices) == ({"link_downed": 0.1}, set())


def test_traffic_that_filled_its_32_bits_is_not_known() -> None:
    full = 4 * (2**32 - 1)
    record, notices = net({"tx_bytes": full}, {"tx_bytes": full})
    assert (record.tx_bytes_per_s, notices) == (None, {STUCK})


def test_without_times_rates_are_nominal_and_told() -> None:
    (_, (record,)), notices = joined(
        file("x.before.txt", counters(None, symbol_error=1)), file("x.after.txt", counters(None, symbol_error=61))
    )
    assert isinstance(record, Net)
    assert (record.interval_s, record.errors, record.ts) == (None, {"symbol_error": 1.0}, 60.0)
    assert notices == {UNTIMED: 1}


def test_without_times_they_stand_at_the_end_of_what_has_a_clock() -> None:
    step = Step(ts=T0 + 99, rank=0, step=1)
    files = [
        file("x.t0", counters(None, symbol_error=1)),
        file("x.t1", counters(None, symbol_error=61)),
        file("r.log", step, kind="log"),
    ]
    assert [r.ts for records in joined(*files)[0] for r in records] == [T0 + 99, T0 + 99]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("x.t0.prom", "x.t1.prom"),
        ("x.t9.prom", "x.t10.prom"),
        ("x_before.txt", "x_after.txt"),
        ("pre/x.txt", "post/x.txt"),
        ("x-20310101T000000.txt", "x-20310101T001500.txt"),
        ("x.1900000000.prom", "x.1900000060.prom"),
        ("scrape_2/x.prom", "scrape_11/x.prom"),
        ("x/sample-1.prom.gz", "x/sample-2.prom.gz"),
    ],
)
def test_names_tell_the_order_where_times_do_not(earlier: str, later: str) -> None:
    # The later one is given first, and holds less: only its name says that it is later.
    (second, first), notices = joined(
        file(later, counters(None, symbol_error=1)), file(earlier, counters(None, symbol_error=61))
    )
    assert (len(second), len(first)) == (1, 0)
    assert set(notices) == {UNTIMED, RESET}
    assert read_name(earlier).series == read_name(later).series


@pytest.mark.parametrize(
    ("one", "other"), [("gpu1.prom", "gpu2.prom"), ("node-01.txt", "node-02.txt"), ("a/x.txt", "b/x.txt"), ("7.txt", "8.txt")]
)
def test_files_of_different_nodes_are_never_compared(one: str, other: str) -> None:
    records, notices = joined(file(one, counters(None, symbol_error=0)), file(other, counters(None, symbol_error=99)))
    assert (records, notices) == ([[], []], {ALONE: 1})


def test_a_node_that_nobody_named_is_called_as_its_files() -> None:
    files = [file(f"{n}.t{k}.prom", counters(None, symbol_error=k * 60)) for n in ("gpu1", "gpu2") for k in (0, 1)]
    named = [(r.node, r.errors) for records in joined(*files)[0] for r in records if isinstance(r, Net)]
    assert named == [("gpu1", {"symbol_error": 1.0}), ("gpu2", {"symbol_error": 1.0})]
    deep = [file(f"gpu7/{k}.txt", counters(None, symbol_error=60)) for k in ("before", "after")]
    other = [file("gpu8/before.txt", counters(None, symbol_error=60))]
    assert [r.node for records in joined(*deep, *other)[0] for r in records if isinstance(r, Net)] == ["gpu7"]


def test_a_node_that_the_files_name_is_joined_whatever_they_are_called() -> None:
    one, two = (
        file("x.prom", counters(T0, node="g", symbol_error=1)),
        file("y.prom", counters(T0 + 10, node="g", symbol_error=11)),
    )
    (first, second), _ = joined(two, one)
    assert ([r.node for r in first if isinstance(r, Net)], second) == (["g"], [])


def test_files_without_times_and_order_are_taken_so_that_traffic_rises() -> None:
    files = [file("y.txt", counters(None, node="g", tx_bytes=900)), file("x.txt", counters(None, node="g", tx_bytes=300))]
    (first, second), notices = joined(*files)
    assert ([r.tx_bytes_per_s for r in first if isinstance(r, Net)], second, set(notices)) == ([10.0], [], {UNTIMED})


def test_a_time_that_does_not_advance_gives_no_rate() -> None:
    records, notices = pair({"symbol_error": 1}, {"symbol_error": 100}, seconds=0.0)
    assert (records, notices) == ([], {NOT_LATER})


def test_errors_that_were_seen_once_are_history() -> None:
    assert joined(file("x", counters(symbol_error=7)))[1] == {ALONE: 1}
    assert joined(file("x", counters(symbol_error=0, rx_packets=9)))[1] == {}


def test_the_first_snapshot_tells_whether_the_link_is_up() -> None:
    (records,), _ = joined(file("x", counters(is_up=1), counters(T0 + 1, is_up=0)))
    assert [(r.ts, r.is_up) for r in records if isinstance(r, Net)] == [(T0, True), (T0 + 1, False)]


BUSY = {"cpu.idle": 10.0, "cpu.user": 60.0, "cpu.system": 10.0, "cpu.iowait": 15.0, "cpu.steal": 5.0}
STILL = dict.fromkeys(BUSY, 0.0)


def test_a_machine_has_gauges_at_once_and_rates_from_the_second_snapshot_on() -> None:
    memory = {"memory_total_bytes": 100.0, "memory_available_bytes": 40.0, "swap_total_bytes": 9.0, "swap_free_bytes": 2.0}
    old = {
        "load1": 2.5,
        "cpus": 4,
        **memory,
        **STILL,
        "disk_busy_s.sda": 0.0,
        "disk_read_bytes.sda": 0,
        "disk_read_bytes.dm-0": 0,
        "net_rx_bytes.eth0": 0,
    }
    new = (
        old | BUSY | {"disk_busy_s.sda": 5.0, "disk_read_bytes.sda": 100, "disk_read_bytes.dm-0": 100, "net_rx_bytes.eth0": 50}
    )
    (first, second), _ = pair(old, new, MACHINE)
    gauges = {"memory_used_bytes": 60.0, "memory_available_bytes": 40.0, "swap_used_bytes": 7.0, "load1": 2.5}
    assert first == Host(ts=T0, node="localhost", cpus=4, source="f:1", **gauges)
    assert second == Host(
        ts=T0 + 10,
        node="localhost",
        interval_s=10.0,
        cpus=4,
        cpu_ratio=0.7,
        system_ratio=0.1,
        iowait_ratio=0.15,
        steal_ratio=0.05,
        disk_read_bytes_per_s=10.0,
        disk_busy_ratio=0.5,
        net_rx_bytes_per_s=5.0,
        source="f:1",
        **gauges,
    )


def test_cpu_time_that_went_back_gives_no_ratio() -> None:
    records, notices = pair(BUSY | {"load1": 1}, STILL | {"load1": 1}, MACHINE)
    assert ([r.cpu_ratio for r in records if isinstance(r, Host)], notices) == ([None, None], {RESET})


def test_processes_that_the_kernel_killed_are_an_event() -> None:
    records, _ = pair({"oom_kill": 1}, {"oom_kill": 3}, MACHINE)
    (log,) = (r for r in records if isinstance(r, Log))
    assert (log.event, log.ts, log.node, log.fields) == ("host_oom", T0 + 10, "localhost", {"killed": "2"})
    assert [r for r in pair({"oom_kill": 3}, {"oom_kill": 3}, MACHINE)[0] if isinstance(r, Log)] == []


def test_what_tcp_sent_again_is_a_device_of_its_own() -> None:
    records, _ = pair({"retrans_segs": 5}, {"retrans_segs": 105}, TCP)
    assert [(r.device, r.errors) for r in records if isinstance(r, Net)] == [(TCP, {"retrans_segs": 10.0})]


def test_results_of_benchmarks_are_no_counters() -> None:
    device = "nccl-tests all_reduce_perf, 8 GPUs"
    (one, two), notices = joined(*(file(f"g{k}.txt", counters(None, device, **{BENCHMARK: k * 1e9})) for k in (1, 2)))
    assert [(r.node, r.tx_bytes_per_s, r.interval_s) for r in [*one, *two] if isinstance(r, Net)] == [
        ("g1", 1e9, None),
        ("g2", 2e9, None),
    ]
    assert notices == {}


def test_other_records_stay_as_they_are() -> None:
    step = Step(ts=T0, rank=0, step=1)
    assert joined(file("r.log", step, kind="log"))[0] == [[step]]


def test_a_stream_joins_as_an_archive_does() -> None:
    snapshots = [counters(T0 + 10 * k, device, symbol_error=k * k) for k in range(4) for device in ("a", "b")]
    joiner = SnapshotJoiner(Notices())
    live = [record for s in snapshots for record in joiner.add(s)]
    (archive,), _ = joined(file("x", *snapshots))
    assert sorted(live, key=repr) == sorted(archive, key=repr)
    assert len(live) == 6


def test_the_rows_do_not_quarrel() -> None:
    """Whatever the order, each file has one reader."""
    samples = {
        b'{"sysstat": {"hosts": [{"nodename": "x", "statistics": []}]}}': "host",
        b'node_load1 1\nnode_network_up{device="eth0"} 1\n': "host",
        b"# Port counters: Lid 5 port 1\nPortXmitData:....................5\nPortRcvData:.....................5\n": "net",
        b"# Avg bus bandwidth : 5\n# size algbw busbw\n": "net",
    }
    for head, kind in samples.items():
        assert [row.kind for row in NET_ROWS if row.sniff(head)] == [kind]
