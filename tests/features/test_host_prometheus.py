"""Scrapes of exporters that speak of hosts: which samples are used, where a scrape ends, of which node it is, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.counters import MACHINE, TCP, Counters
from features.notices import Notices
from features.parsers.host_prometheus import DAMAGED, Prometheus, sniff

NOW = 1_900_000_000.5


def scrape(now: float | None = NOW, node: str | None = "gpu21", symbols: int = 5) -> str:
    """A scrape of node_exporter, in the order in which it writes."""
    clock = "" if now is None else f"# TYPE node_time_seconds gauge\nnode_time_seconds {now!r}\n"
    name = "" if node is None else f'node_uname_info{{machine="x86_64",nodename="{node}",sysname="Linux"}} 1\n'
    return f"""\
# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 8
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{{cpu="0",mode="idle"}} 100.5
node_cpu_seconds_total{{cpu="0",mode="user"}} 20
node_cpu_seconds_total{{cpu="1",mode="idle"}} 200.25
node_cpu_seconds_total{{cpu="1",mode="user"}} 30
# TYPE node_disk_io_time_seconds_total counter
node_disk_io_time_seconds_total{{device="nvme0n1"}} 7.5
node_disk_read_bytes_total{{device="nvme0n1"}} 4.096e+06
# TYPE node_infiniband_symbol_error_total counter
node_infiniband_port_data_transmitted_bytes_total{{device="mlx5_0",port="1"}} 1e+12
node_infiniband_state_id{{device="mlx5_0",port="1"}} 4
node_infiniband_state_id{{device="mlx5_1",port="1"}} 1
node_infiniband_symbol_error_total{{device="mlx5_0",port="1"}} {symbols}
# TYPE node_load1 gauge
node_load1 3.25
node_memory_MemAvailable_bytes 6e+10
node_memory_MemTotal_bytes 1e+11
node_netstat_Tcp_RetransSegs 77
node_network_receive_bytes_total{{device="eth0"}} 1000
node_network_receive_drop_total{{device="eth0"}} 3
node_network_transmit_bytes_total{{device="docker0"}} 9
node_network_up{{device="eth0"}} 1
node_pressure_io_stalled_seconds_total 12.5
{clock}# TYPE node_uname_info gauge
{name}# TYPE node_vmstat_oom_kill untyped
node_vmstat_oom_kill 2
"""


def read(text: str | bytes, size: int = 1 << 20) -> tuple[list[Counters], Notices]:
    """Counters and notices of a file, fed in pieces of `size` bytes."""
    data = text.encode() if isinstance(text, str) else text
    notices = Notices()
    parser = Prometheus("node.prom", notices)
    found: list[object] = [r for at in range(0, len(data), size) for r in parser.feed(data[at : at + size])]
    found += parser.finish()
    return [record for record in found if isinstance(record, Counters)], notices


def of_device(found: list[Counters], device: str) -> list[dict[str, int | float]]:
    return [c.values for c in found if c.device == device]


def test_samples_go_to_the_machine_and_to_its_devices() -> None:
    found, notices = read(scrape())
    assert {(c.ts, c.node) for c in found} == {(NOW, "gpu21")}
    assert of_device(found, MACHINE) == [
        {
            "cpu.idle": 300.75,
            "cpu.user": 50,
            "cpus": 2,
            "disk_busy_s.nvme0n1": 7.5,
            "disk_read_bytes.nvme0n1": 4_096_000,
            "load1": 3.25,
            "memory_available_bytes": 6e10,
            "memory_total_bytes": 1e11,
            "net_rx_bytes.eth0": 1000,
            "net_drops.rx.eth0": 3,
            "pressure.io_stalled": 12.5,
            "oom_kill": 2,
        }
    ]
    assert of_device(found, "mlx5_0/1") == [{"tx_bytes": 1e12, "is_up": 1, "symbol_error": 5}]
    assert of_device(found, "mlx5_1/1") == [{"is_up": 0}]
    assert of_device(found, "eth0") == [{"rx_bytes": 1000, "rx_dropped": 3, "is_up": 1}]
    assert of_device(found, TCP) == [{"retrans_segs": 77}]
    assert notices.items() == []


def test_a_metric_that_is_declared_again_begins_the_next_scrape() -> None:
    found, _ = read(scrape(NOW, symbols=5) + scrape(NOW + 15, symbols=6))
    assert [(c.ts, c.values["symbol_error"]) for c in found if c.device == "mlx5_0/1"] == [(NOW, 5), (NOW + 15, 6)]
    assert [values["cpus"] for values in of_device(found, MACHINE)] == [2, 2]


def test_without_declarations_a_sample_that_comes_again_begins_the_next_scrape() -> None:
    bare = "".join(line + "\n" for line in scrape(None).splitlines() if not line.startswith("#"))
    assert [values["symbol_error"] for values in of_device(read(bare + bare)[0], "mlx5_0/1")] == [5, 5]


def test_a_time_between_scrapes_is_that_of_the_scrape_below() -> None:
    text = f"# scrape at 2031-01-01T00:00:00Z\n{scrape(None)}2031-01-01T00:01:00Z\n{scrape(None)}"
    found, notices = read(text)
    assert [c.ts for c in found if c.device == TCP] == [1924992000.0, 1924992060.0]
    assert notices.items() == []


def test_without_clock_and_name_neither_is_known() -> None:
    found, _ = read(scrape(None, None))
    assert {(c.ts, c.node) for c in found} == {(None, None)}
    assert not Prometheus("x", Notices()).absolute


def test_samples_with_times_of_their_own_go_where_they_belong() -> None:
    text = (
        'node_infiniband_link_downed_total{device="m",instance="a:9100",port="1"} 1 1900000000000\n'
        'node_infiniband_link_downed_total{device="m",instance="a:9100",port="1"} 2 1900000060000\n'
        'node_infiniband_link_downed_total{device="m",instance="b:9100",port="1"} 3 1900000000000\n'
        'node_infiniband_symbol_error_total{device="m",instance="a:9100",port="1"} 4 1900000060000\n'
        'node_uname_info{instance="b:9100",nodename="bnode"} 1\n'
    )
    found = {(c.node, c.ts): c.values for c in read(text)[0]}
    assert found == {
        ("a", 1.9e9): {"link_downed": 1},
        ("a", 1900000060.0): {"link_downed": 2, "symbol_error": 4},
        ("bnode", 1.9e9): {"link_downed": 3},
    }


@pytest.mark.parametrize(
    ("line", "device", "values"),
    [
        ('node_infiniband_legacy_data_received_bytes_total{device="m",port="2"} 8', "m/2", {"rx_bytes": 8}),
        ('infiniband_hca_port_symbol_error_total{guid="0x1",hca="h7",port="1"} 8', "h7/1", {"symbol_error": 8}),
        ('infiniband_switch_port_transmit_wait_total{guid="0x9",port="3",switch="s1"} 8', "s1/3", {"port_xmit_wait": 8}),
        ('node_infiniband_np_cnp_packets_sent_total{device="m",port="1"} 8', "m/1", {"np_cnp_sent": 8}),
        ('node_ethtool_rx_prio3_pause_duration{device="eth1"} 8', "eth1", {"rx_prio3_pause_duration": 8}),
        ('node_network_transmit_errs{device="eth1"} 8', "eth1", {"tx_errors": 8}),
        ('node_network_carrier_changes_total{device="eth1"} 8', "eth1", {"carrier_changes": 8}),
        ("node_memory_SwapFree 8", MACHINE, {"swap_free_bytes": 8}),
        ('node_disk_io_time_ms{device="sda"} 8000', MACHINE, {"disk_busy_s.sda": 8.0}),
    ],
)
def test_other_exporters_and_older_names(line: str, device: str, values: dict[str, float]) -> None:
    assert [(c.device, c.values) for c in read(line + "\n")[0]] == [(device, values)]


def test_a_numa_node_is_no_host() -> None:
    assert read('node_memory_numa_MemFree{node="0"} 5\n')[0] == []


def test_values_that_are_no_numbers_say_nothing() -> None:
    found, notices = read("node_load1 NaN\nnode_load1 +Inf\nnode_vmstat_oom_kill -1\nnode_load1{broken 5\nnode_load1 2\n")
    assert of_device(found, MACHINE) == [{"load1": 2}]
    assert [(n.text, n.source, n.count) for n in notices.items()] == [(DAMAGED, "node.prom:line 3", 2)]


def test_labels_may_hold_anything() -> None:
    found, notices = read('node_network_up{ifalias="a \\"b\\", {c} \\\\",device="eth0",} 1\n')
    assert [(c.device, c.values) for c in found] == [("eth0", {"is_up": 1})]
    assert notices.items() == []


TWO = scrape() + scrape(NOW + 15)


@given(size=st.integers(1, 500))
def test_chunks_do_not_matter(size: int) -> None:
    assert read(TWO, size)[0] == read(TWO)[0]


@given(cuts=st.lists(st.tuples(st.integers(0, len(TWO)), st.binary(max_size=8)), max_size=5), size=st.integers(1, 5000))
def test_damage_never_raises(cuts: list[tuple[int, bytes]], size: int) -> None:
    data = TWO.encode()
    for at, put in cuts:
        data = data[:at] + put + data[at + len(put) :]
    assert read(data, size)[0] == read(data)[0]
    sniff(data)


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_never_raise(data: bytes) -> None:
    sniff(data)
    read(data)


def test_scrapes_are_recognised() -> None:
    assert sniff(scrape().encode())
    assert sniff((scrape() * 30).encode()[:65536])
    assert sniff(b'infiniband_hca_port_symbol_error_total{hca="h7",port="1"} 8\n')


OTHERS = {
    "GPUs only": 'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="node_1"} 90\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n' * 5,
    "GPUs beside an exporter's own metrics": 'go_goroutines 5\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} 90\n# node_exporter is not here\n',
    "training": "node_rank 0 starts\n2031-01-01 INFO node_load1 of the host is 5\nstep=1 loss=0.5\n" * 3,
    "keys and values": "node_count=2\nnode_name=gpu1\nworld_size=16\n",
    "nothing": "",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_files_of_others_are_left_alone(text: str) -> None:
    assert not sniff(text.encode())
