"""Telemetry samples: exact rates, resets, times that go back, and damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from features.notices import Notices
from features.parsers import PARSERS
from features.parsers.telemetry_jsonl import BACKWARDS, DAMAGED, NO_SAMPLE, RESET, TelemetryJsonl, sniff
from features.records import Host, Process, Record

START = 1_800_000_000.0


def host(**changes: Any) -> dict[str, Any]:
    """Counters of a host with two CPUs."""
    sample: dict[str, Any] = {
        "cpu_percent": [50.0, 50.0],
        "cpu_times": {"user": 100.0, "system": 20.0, "idle": 200.0, "iowait": 5.0, "softirq": 1.0, "steal": 2.0},
        "load1": 1.5,
        "mem_used_mb": 1000.5,
        "mem_available_mb": 7000.25,
        "swap_used_mb": 0.0,
        "disk": {"read_bytes": 1000, "write_bytes": 2000, "busy_time": 300},
        "net": {
            "lo": {"tx_bytes": 10, "rx_bytes": 10, "drop": 0},
            "eth0": {"tx_bytes": 100, "rx_bytes": 200, "drop": 3},
            "veth12": {"tx_bytes": 100, "rx_bytes": 200, "drop": 3},
        },
    }
    return sample | changes


def rank(**changes: Any) -> dict[str, Any]:
    """Counters of one rank's process."""
    sample: dict[str, Any] = {
        "pid": 77,
        "status": "running",
        "cpu_user_s": 10.0,
        "cpu_system_s": 1.0,
        "rss_mb": 440.125,
        "threads": 6,
        "ctx_voluntary": 100,
        "ctx_involuntary": 50,
        "read_bytes": 4096,
        "write_bytes": 8192,
        "workers": {"n": 2, "cpu_s": 4.0, "rss_mb": 300.5, "read_bytes": 0},
        "net": {"lo": {"rx_bytes": 0, "rx_drop": 0, "tx_bytes": 0, "tx_drop": 0},
                "eth0": {"rx_bytes": 500, "rx_drop": 1, "tx_bytes": 700, "tx_drop": 2}},
        "tcp": {"retrans_segs": 5, "out_segs": 1000},
    }  # fmt: skip
    return sample | changes


def lines(*samples: dict[str, Any]) -> bytes:
    """Samples as a file."""
    return b"".join(json.dumps(sample).encode() + b"\n" for sample in samples)


def parse(data: bytes) -> tuple[list[Record], Notices]:
    """Records and notices of a whole file."""
    notices = Notices()
    parser = TelemetryJsonl("telemetry.jsonl", notices)
    return parser.feed(data) + parser.finish(), notices


def hosts(records: list[Record]) -> list[Host]:
    return [record for record in records if isinstance(record, Host)]


def processes(records: list[Record]) -> list[Process]:
    return [record for record in records if isinstance(record, Process)]


def texts(notices: Notices) -> dict[str, tuple[str, int]]:
    return {notice.text: (notice.source, notice.count) for notice in notices.items()}


def test_first_sample_has_gauges_and_no_rates() -> None:
    records, notices = parse(lines({"ts": START, "host": host(), "ranks": {"3": rank()}}))
    assert records == [
        Host(
            ts=START,
            node="localhost",
            cpus=2,
            load1=1.5,
            memory_used_bytes=1_000_500_000.0,
            memory_available_bytes=7_000_250_000.0,
            swap_used_bytes=0.0,
            source="telemetry.jsonl:1",
        ),
        Process(
            ts=START,
            rank=3,
            node="localhost",
            pid=77,
            status="running",
            rss_bytes=440_125_000.0,
            threads=6,
            workers=2,
            workers_rss_bytes=300_500_000.0,
            source="telemetry.jsonl:1",
        ),
    ]
    assert notices.items() == []


def test_host_rates_are_exact() -> None:
    after = host(
        cpu_times={"user": 100.5, "system": 20.25, "idle": 200.25, "iowait": 5.5, "softirq": 1.25, "steal": 2.25},
        disk={"read_bytes": 1500, "write_bytes": 2000, "busy_time": 500},
        net={
            "lo": {"tx_bytes": 20, "rx_bytes": 30, "drop": 0},
            "eth0": {"tx_bytes": 150, "rx_bytes": 200, "drop": 5},
            "veth12": {"tx_bytes": 9999, "rx_bytes": 9999, "drop": 9},
            "eth9": {"tx_bytes": 10**9, "rx_bytes": 10**9, "drop": 9},
        },
    )
    records, _ = parse(lines({"ts": START, "host": host()}, {"ts": START + 0.5, "host": after}))
    second = hosts(records)[1]
    assert second.interval_s == 0.5
    assert second.cpu_ratio == 0.5  # 1.0 of 2.0 CPU seconds: 0.5 user, 0.25 system, 0.25 softirq
    assert second.system_ratio == 0.25
    assert second.iowait_ratio == 0.25
    assert second.steal_ratio == 0.125
    assert second.disk_read_bytes_per_s == 1000.0
    assert second.disk_write_bytes_per_s == 0.0
    assert second.disk_busy_ratio == pytest.approx(0.4)
    assert second.net_tx_bytes_per_s == 120.0  # loopback counts, virtual and new interfaces do not
    assert second.net_rx_bytes_per_s == 40.0
    assert second.net_drops_per_s == 4.0


def test_process_rates_are_exact() -> None:
    after = rank(
        cpu_user_s=10.25,
        cpu_system_s=1.125,
        ctx_voluntary=110,
        ctx_involuntary=51,
        read_bytes=4096,
        write_bytes=8704,
        workers={"n": 2, "cpu_s": 4.5, "rss_mb": 301.0, "read_bytes": 512},
        net={"eth0": {"rx_bytes": 750, "rx_drop": 2, "tx_bytes": 700, "tx_drop": 2}},
        tcp={"retrans_segs": 8, "out_segs": 1100},
    )
    records, _ = parse(lines({"ts": START, "ranks": {"0": rank()}}, {"ts": START + 0.25, "ranks": {"0": after}}))
    second = processes(records)[1]
    assert second.cpu_cores == 1.5
    assert second.switches_voluntary_per_s == 40.0
    assert second.switches_involuntary_per_s == 4.0
    assert second.read_bytes_per_s == 0.0
    assert second.write_bytes_per_s == 2048.0
    assert second.workers_cpu_cores == 2.0
    assert second.workers_read_bytes_per_s == 2048.0
    assert second.net_rx_bytes_per_s == 1000.0
    assert second.net_tx_bytes_per_s == 0.0
    assert second.net_drops_per_s == 4.0
    assert second.tcp_out_segments_per_s == 400.0
    assert second.tcp_retransmits_per_s == 12.0


def test_busy_disk_never_exceeds_the_whole() -> None:
    after = host(disk={"read_bytes": 1000, "write_bytes": 2000, "busy_time": 1301})
    records, _ = parse(lines({"ts": START, "host": host()}, {"ts": START + 1, "host": after}))
    assert hosts(records)[1].disk_busy_ratio == 1.0


def test_counter_that_goes_back_gives_no_rate_once_and_a_notice() -> None:
    low = host(disk={"read_bytes": 10, "write_bytes": 20, "busy_time": 1})
    high = host(disk={"read_bytes": 30, "write_bytes": 20, "busy_time": 1})
    samples = [{"ts": START + i, "host": h} for i, h in enumerate((host(), low, high))]
    records, notices = parse(lines(*samples))
    _, second, third = hosts(records)
    assert second.disk_read_bytes_per_s is None
    assert second.disk_busy_ratio is None
    assert second.net_tx_bytes_per_s == 0.0  # other counters went on
    assert third.disk_read_bytes_per_s == 20.0
    assert texts(notices) == {RESET: ("telemetry.jsonl:line 2", 1)}


def test_falling_iowait_is_no_reset() -> None:
    times = {"user": 101.0, "system": 20.0, "idle": 200.0, "iowait": 4.9, "softirq": 1.0, "steal": 2.0}
    records, notices = parse(lines({"ts": START, "host": host()}, {"ts": START + 1, "host": host(cpu_times=times)}))
    assert hosts(records)[1].cpu_ratio == 1.0
    assert hosts(records)[1].iowait_ratio == 0.0
    assert notices.items() == []


def test_new_process_of_a_rank_has_no_rates_and_is_no_reset() -> None:
    other = rank(pid=78, cpu_user_s=0.1)
    records, notices = parse(lines({"ts": START, "ranks": {"0": rank()}}, {"ts": START + 1, "ranks": {"0": other}}))
    assert processes(records)[1].cpu_cores is None
    assert processes(records)[1].pid == 78
    assert notices.items() == []


def test_workers_that_were_replaced_are_no_reset() -> None:
    fewer = rank(workers={"n": 1, "cpu_s": 0.5, "rss_mb": 100.0, "read_bytes": 0})
    again = rank(workers={"n": 1, "cpu_s": 0.1, "rss_mb": 100.0, "read_bytes": 0})
    samples = [{"ts": START + i, "ranks": {"0": r}} for i, r in enumerate((rank(), fewer, again))]
    records, notices = parse(lines(*samples))
    assert [p.workers_cpu_cores for p in processes(records)] == [None, None, None]
    assert [p.workers for p in processes(records)] == [2, 1, 1]
    assert notices.items() == []


def test_time_that_does_not_advance_gives_no_rates_and_a_notice() -> None:
    samples = [{"ts": START + offset, "host": host()} for offset in (0, 5, 4, 4, 5)]
    records, notices = parse(lines(*samples))
    assert [h.interval_s for h in hosts(records)] == [None, 5.0, None, None, 1.0]
    assert hosts(records)[2].cpu_ratio is None
    assert hosts(records)[2].memory_used_bytes == 1_000_500_000.0
    assert texts(notices) == {BACKWARDS: ("telemetry.jsonl:line 3", 2)}


def test_gone_process_keeps_its_status_and_pid() -> None:
    gone = {"pid": 77, "status": "gone"}
    records, _ = parse(lines({"ts": START, "ranks": {"0": rank()}}, {"ts": START + 1, "ranks": {"0": gone}}))
    last = processes(records)[1]
    assert (last.status, last.pid, last.rss_bytes, last.cpu_cores) == ("gone", 77, None, None)


def test_process_that_could_not_be_sampled_has_no_status() -> None:
    records, notices = parse(lines({"ts": START, "ranks": {"0": {"pid": 1, "status": "error"}}}))
    assert processes(records)[0].status is None
    assert list(texts(notices)) == [NO_SAMPLE]


def test_nodes_are_kept_apart() -> None:
    samples = [
        {"ts": START, "node": "alpha", "host": host()},
        {"ts": START + 0.1, "node": "beta", "host": host(disk={"read_bytes": 0})},
        {"ts": START + 1, "node": "alpha", "host": host(disk={"read_bytes": 3000})},
    ]
    records, notices = parse(lines(*samples))
    assert [(h.node, h.interval_s, h.disk_read_bytes_per_s) for h in hosts(records)] == [
        ("alpha", None, None),
        ("beta", None, None),
        ("alpha", 1.0, 2000.0),
    ]
    assert notices.items() == []


def test_ranks_come_in_the_order_of_their_numbers() -> None:
    records, _ = parse(lines({"ts": START, "ranks": {"10": rank(), "9": rank(), "x": rank(), "-1": rank()}}))
    assert [p.rank for p in processes(records)] == [9, 10]


def test_damaged_lines_are_counted_at_their_place() -> None:
    good = lines({"ts": START, "host": host()})
    data = good + b'{"ts": 18000\n' + b"\xff\xfe\n" + b"[1, 2]\n" + b'{"host": {}}\n' + b'{"ts": true}\n\n' + good
    records, notices = parse(data)
    assert len(records) == 2
    assert texts(notices)[DAMAGED] == ("telemetry.jsonl:line 2", 5)


@pytest.mark.parametrize("value", ["text", None, [], {}, True, 10**400])
def test_values_that_are_no_numbers_are_unknown(value: Any) -> None:
    strange = host(load1=value, mem_used_mb=value, disk={"read_bytes": value}, cpu_times=value, net={"lo": value})
    records, _ = parse(lines({"ts": START, "host": host()}, {"ts": START + 1, "host": strange, "ranks": {"0": value}}))
    second = hosts(records)[1]
    assert (second.load1, second.memory_used_bytes, second.disk_read_bytes_per_s, second.cpu_ratio) == (None,) * 4


def test_table_of_parsers_knows_it() -> None:
    data = lines({"ts": START, "host": host()})
    assert next(row.kind for row in PARSERS if row.sniff(data)) == "telemetry"
    assert sniff(data[:400])
    assert not sniff(b'{"step": 3, "loss": 0.5, "ts": 1}\n')
    assert not sniff(b"")
