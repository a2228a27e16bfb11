"""The history that sar keeps, as JSON: units, spellings of its versions, documents that are cut, and damage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.counters import TCP
from features.notices import Notices
from features.parsers.host_sadf import CUT, LOCAL, NO_TIME, Sadf, sniff
from features.records import Host, Net, Record

T0 = 1924992000.0  # 2031-01-01T00:00:00Z


def sample(second: int = 0, **changes: Any) -> dict[str, Any]:
    """One sample with all activities that are used."""
    return {
        "timestamp": {"date": "2031-01-01", "time": f"00:00:{second:02d}", "utc": 1, "interval": 10},
        "cpu-load": [
            {"cpu": "all", "user": 50.0, "nice": 0.0, "system": 12.5, "iowait": 6.25, "steal": 3.125, "idle": 25.0},
            {"cpu": "0", "user": 99.0, "nice": 0.0, "system": 1.0, "iowait": 0.0, "steal": 0.0, "idle": 0.0},
        ],
        "memory": {"memfree": 100, "avail": 300, "memused": 500, "buffers": 50, "cached": 150, "swpused": 7},
        "queue": {"runq-sz": 1, "ldavg-1": 4.5},
        "disk": [
            {"disk-device": "sda", "rd_sec": 10.0, "wr_sec": 20.0, "util-percent": 50.0},
            {"disk-device": "sdb", "rkB": 1.0, "wkB": 2.0, "util-percent": 75.0},
            {"disk-device": "dm-0", "rd_sec": 10.0, "wr_sec": 20.0, "util-percent": 99.0},
        ],
        "network": {
            "net-dev": [{"iface": "eth0", "rxkB": 2.0, "txkB": 4.0}, {"iface": "docker0", "rxkB": 8.0, "txkB": 8.0}],
            "net-edev": [{"iface": "eth0", "rxerr": 1.5, "txerr": 0.0, "rxdrop": 2.0, "txdrop": 3.0, "rxfram": 0.5}],
            "net-etcp": {"atmptf": 0.0, "retrans": 6.0},
        },
    } | changes


def document(*samples: dict[str, Any]) -> dict[str, Any]:
    host = {"nodename": "gpu33", "number-of-cpus": 16, "timezone": "UTC", "statistics": list(samples)}
    return {"sysstat": {"hosts": [host]}}


def read(data: bytes, size: int = 1 << 20) -> tuple[list[Record], Notices]:
    """Records and notices of a file, fed in pieces of `size` bytes."""
    notices = Notices()
    parser = Sadf("sar.json", notices)
    found = [r for at in range(0, len(data), size) for r in parser.feed(data[at : at + size])]
    return found + parser.finish(), notices


def encoded(*samples: dict[str, Any]) -> bytes:
    return json.dumps(document(*samples), indent=1).encode()


def test_a_sample_is_one_host_and_its_devices_in_plain_units() -> None:
    records, notices = read(encoded(sample()))
    assert records == [
        Host(
            ts=T0,
            node="gpu33",
            interval_s=10.0,
            cpus=16,
            cpu_ratio=1 - 0.25 - 0.0625 - 0.03125,
            system_ratio=0.125,
            iowait_ratio=0.0625,
            steal_ratio=0.03125,
            load1=4.5,
            memory_used_bytes=500 * 1024.0,
            memory_available_bytes=300 * 1024.0,
            swap_used_bytes=7 * 1024.0,
            disk_read_bytes_per_s=10 * 512.0 + 1024.0,
            disk_write_bytes_per_s=20 * 512.0 + 2048.0,
            disk_busy_ratio=0.75,
            net_rx_bytes_per_s=2048.0,
            net_tx_bytes_per_s=4096.0,
            net_drops_per_s=5.0,
            source="sar.json:gpu33",
        ),
        Net(
            ts=T0,
            node="gpu33",
            device="docker0",
            interval_s=10.0,
            rx_bytes_per_s=8192.0,
            tx_bytes_per_s=8192.0,
            source="sar.json:gpu33",
        ),
        Net(
            ts=T0,
            node="gpu33",
            device="eth0",
            interval_s=10.0,
            rx_bytes_per_s=2048.0,
            tx_bytes_per_s=4096.0,
            drops_per_s=5.0,
            errors={"rx_errors": 1.5, "tx_errors": 0.0, "rx_dropped": 2.0, "tx_dropped": 3.0, "rx_frame_errors": 0.5},
            source="sar.json:gpu33",
        ),
        Net(ts=T0, node="gpu33", device=TCP, interval_s=10.0, errors={"retrans_segs": 6.0}, source="sar.json:gpu33"),
    ]
    assert notices.items() == []


def host_of(**changes: Any) -> Host:
    (host,) = (r for r in read(encoded(sample(**changes)))[0] if isinstance(r, Host))
    return host


def test_all_kinds_of_cpu_time_are_read_as_well() -> None:
    row = {"cpu": "all", "usr": 50.0, "sys": 10.0, "iowait": 0.0, "steal": 0.0, "irq": 1.0, "soft": 1.5, "idle": 37.5}
    host = host_of(**{"cpu-load": None, "cpu-load-all": [row]})
    assert (host.cpu_ratio, host.system_ratio) == (0.625, pytest.approx(0.125))


def test_an_old_sar_counts_caches_as_used() -> None:
    host = host_of(memory={"memfree": 100, "memused": 900, "buffers": 50, "cached": 150})
    assert (host.memory_available_bytes, host.memory_used_bytes) == (300 * 1024.0, 700 * 1024.0)


def test_without_disks_the_sum_of_all_is_used() -> None:
    host = host_of(disk=None, io={"io-reads": {"bread": 8.0}, "io-writes": {"bwrtn": 16.0}})
    assert (host.disk_read_bytes_per_s, host.disk_write_bytes_per_s, host.disk_busy_ratio) == (4096.0, 8192.0, None)


def test_the_first_interval_after_boot_is_nonsense() -> None:
    stamp = sample()["timestamp"] | {"interval": 184467440737095516}
    assert host_of(timestamp=stamp).interval_s is None


def test_local_times_are_told() -> None:
    stamp = sample()["timestamp"] | {"utc": 0}
    records, notices = read(encoded(sample(timestamp=stamp)))
    assert records[0].ts == T0
    assert [(n.level, n.text) for n in notices.items()] == [("info", LOCAL)]


def test_a_sample_without_time_is_left_out() -> None:
    records, notices = read(encoded(sample(timestamp={"date": "2031-13-01", "time": "00:00:00"})))
    assert (records, [n.text for n in notices.items()]) == ([], [NO_TIME])


def test_of_a_document_that_is_cut_all_whole_samples_are_used() -> None:
    data = encoded(sample(0), sample(10), sample(20))
    cut = data[: data.rindex(b"cpu-load")]
    records, notices = read(cut)
    assert [(r.ts, r.node, r.cpus) for r in records if isinstance(r, Host)] == [(T0, "gpu33", 16), (T0 + 10, "gpu33", 16)]
    assert [(n.level, n.text) for n in notices.items()] == [("warning", CUT)]


WRONG: list[Any] = [None, [], {}, "x", -1, 1e400, [[]], {"a": []}, True, [1, "y", None]]


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("key", ["timestamp", "cpu-load", "memory", "queue", "disk", "network", "io"])
def test_values_of_another_kind_never_raise(key: str, value: Any) -> None:
    read(json.dumps(document(sample(**{key: value}))).encode())


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_lists_of_another_kind_never_raise(value: Any) -> None:
    for text in (value, {"sysstat": value}, {"sysstat": {"hosts": value}}, document(value)):
        read(json.dumps(text).encode())
    read(encoded(sample(network={"net-dev": [value, {"iface": value}], "net-edev": value, "net-etcp": value})))
    read(encoded(sample(**{"cpu-load": [{"cpu": value, "idle": value}], "disk": [{"disk-device": value, "rd_sec": value}]})))


WHOLE = encoded(sample(0), sample(10))


@given(size=st.integers(1, 3000))
def test_chunks_do_not_matter(size: int) -> None:
    assert read(WHOLE, size)[0] == read(WHOLE)[0]


@given(cuts=st.lists(st.tuples(st.integers(0, len(WHOLE)), st.binary(max_size=8)), max_size=5))
def test_damage_never_raises(cuts: list[tuple[int, bytes]]) -> None:
    data = WHOLE
    for at, put in cuts:
        data = data[:at] + put + data[at + len(put) :]
    read(data)
    sniff(data)


def test_only_documents_of_sadf_are_recognised() -> None:
    assert sniff(WHOLE)
    assert sniff(WHOLE[:100])
    for other in (b"", b"{}", b'{"hosts": []}', b'{"traceEvents": [{"name": "sysstat"}]}', b"sysstat hosts"):
        assert not sniff(other)
