"""Saved counters of network devices: what each tool prints, at which moments, of which nodes, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.counters import TCP, Counters
from features.notices import Notices
from features.parsers.net_text import DAMAGED, UNKNOWN, NetText, sniff
from features.parsers.net_titles import ZONELESS

PORT = """\
# Port extended counters: Lid 77 port 2 (CapMask: 0x5300)
PortSelect:......................2
CounterSelect:...................0x0000
PortXmitData:....................1000
PortRcvData:.....................2000
SymbolErrorCounter:..............3
LinkErrorRecoveryCounter:........0
LinkDownedCounter:...............255
PortRcvErrors:...................0x10
PortXmitDiscards:................4
VL15Dropped:.....................9
PortXmitWait:....................50
"""
PROC = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0
  eth0:    5000      50    1    2    3     4          0         0     6000      60    5    6    7     8       9          0
"""
LINK = """\
3: ib0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 4092 qdisc mq state UP mode DEFAULT group default qlen 256
    link/infiniband 00:00:10:49:fe:80 brd 00:ff:ff:ff:ff:12
    RX: bytes  packets  errors  dropped missed  mcast
    7000       70       1       2       3       4
    RX errors: length    crc     frame   fifo    overrun
               0         11      12      13      14
    TX: bytes  packets  errors  dropped carrier collsns
    8000       80       5       6       7       8
4: eth7@if9: <NO-CARRIER,BROADCAST,UP> mtu 1500 qdisc mq state DOWN mode DEFAULT group default qlen 1000
    link/ether 0c:42:a1:00:00:01 brd ff:ff:ff:ff:ff:ff
"""
IFCONFIG = """\
ens3f0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 9000
        inet 10.1.0.5  netmask 255.255.0.0  broadcast 10.1.255.255
        ether b8:ce:f6:00:00:02  txqueuelen 1000  (Ethernet)
        RX packets 90  bytes 9000 (9.0 KB)
        RX errors 1  dropped 2  overruns 3  frame 4
        TX packets 100  bytes 10000 (10.0 KB)
        TX errors 5  dropped 6 overruns 7  carrier 8  collisions 9
"""
ETHTOOL = """\
$ ethtool -S eth2
NIC statistics:
     rx_packets: 12
     rx_bytes_phy: 34000
     rx_discards_phy: 5
     rx_prio3_pause_duration: 600
     [0]: rx_ucast_packets: 7
"""
SYSFS = """\
/sys/class/infiniband/mlx5_2/ports/1/counters/port_xmit_data:10
/sys/class/infiniband/mlx5_2/ports/1/counters/symbol_error:7
/sys/class/infiniband/mlx5_2/ports/1/counters/VL15_dropped:N/A (no PMA)
/sys/class/infiniband/mlx5_2/ports/1/hw_counters/np_cnp_sent:8
/sys/class/infiniband/mlx5_2/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_2/ports/1/rate:200 Gb/sec (4X HDR)
/sys/class/infiniband/mlx5_3/ports/1/state:1: DOWN
/sys/class/net/eth5/statistics/rx_dropped:9
/sys/class/net/eth5/carrier_changes:3
/sys/class/net/eth5/operstate:up
"""
HEADINGS = """\
==> mlx5_0/ports/1/counters/port_rcv_data <==
25

==> mlx5_0/ports/1/counters/link_downed <==
1
"""
RDMA = "link mlx5_4/1 rx_write_requests 5 out_of_sequence 6 packet_seq_err 7 np_ecn_marked_roce_packets 8 \n"
SNMP = "Tcp: RtoAlgorithm RtoMin OutSegs RetransSegs\nTcp: 1 200 5000 42\n"
NETSTAT = "Tcp:\n    5000 segments sent out\n    43 segments retransmitted\n"

EVERYTHING = "".join(
    ("=== node05 ===\n", "2031-02-03T04:05:06Z\n", PORT, PROC, LINK, IFCONFIG, ETHTOOL, SYSFS, HEADINGS, RDMA, SNMP)
)


def read(text: str | bytes, size: int = 1 << 20) -> tuple[list[Counters], Notices]:
    """Counters and notices of a file, fed in pieces of `size` bytes."""
    data = text.encode() if isinstance(text, str) else text
    notices = Notices()
    parser = NetText("net.log", notices)
    found: list[object] = [r for at in range(0, len(data), size) for r in parser.feed(data[at : at + size])]
    found += parser.finish()
    return [record for record in found if isinstance(record, Counters)], notices


def by_device(text: str) -> dict[str, dict[str, int | float]]:
    return {c.device: c.values for c in read(text)[0]}


def texts(notices: Notices) -> dict[str, tuple[str, int]]:
    return {n.text: (n.source, n.count) for n in notices.items()}


def test_perfquery_counts_words_and_names_the_port_by_its_lid() -> None:
    assert by_device(PORT) == {
        "lid 77/2": {
            "tx_bytes": 4000,
            "rx_bytes": 8000,
            "symbol_error": 3,
            "link_error_recovery": 0,
            "link_downed": 255,
            "port_rcv_errors": 16,
            "port_xmit_discards": 4,
            "port_xmit_wait": 50,
        }
    }


def test_proc_net_dev_has_eight_columns_each_way() -> None:
    eth0 = by_device(PROC)["eth0"]
    assert (eth0["rx_bytes"], eth0["rx_errors"], eth0["rx_dropped"], eth0["rx_frame_errors"]) == (5000, 1, 2, 4)
    assert (eth0["tx_bytes"], eth0["tx_errors"], eth0["tx_dropped"], eth0["tx_carrier_errors"]) == (6000, 5, 6, 9)


def test_ip_link_names_its_columns_and_says_whether_the_link_is_up() -> None:
    found = by_device(LINK)
    ib0 = found["ib0"]
    assert (ib0["is_up"], found["eth7"]) == (1, {"is_up": 0})
    assert (ib0["rx_bytes"], ib0["rx_missed_errors"], ib0["rx_crc_errors"], ib0["rx_fifo_errors"]) == (7000, 3, 11, 13)
    assert (ib0["tx_bytes"], ib0["tx_dropped"], ib0["tx_carrier_errors"]) == (8000, 6, 7)


def test_ifconfig_is_read_by_its_words() -> None:
    ens = by_device(IFCONFIG)["ens3f0"]
    assert (ens["rx_bytes"], ens["rx_dropped"], ens["rx_fifo_errors"], ens["rx_frame_errors"]) == (9000, 2, 3, 4)
    assert (ens["tx_bytes"], ens["tx_errors"], ens["tx_carrier_errors"], ens["is_up"]) == (10000, 5, 8, 1)


def test_sysfs_names_the_device_in_the_path() -> None:
    found = by_device(SYSFS)
    assert found["mlx5_2/1"] == {"tx_bytes": 40, "symbol_error": 7, "np_cnp_sent": 8, "is_up": 1}
    assert found["mlx5_3/1"] == {"is_up": 0}
    assert found["eth5"] == {"rx_dropped": 9, "carrier_changes": 3, "is_up": 1}


def test_a_heading_above_a_value_is_its_path() -> None:
    assert by_device(HEADINGS) == {"mlx5_0/1": {"rx_bytes": 100, "link_downed": 1}}


def test_rdma_statistic_and_tcp() -> None:
    assert by_device(RDMA)["mlx5_4/1"]["packet_seq_err"] == 7
    assert by_device(SNMP) == {TCP: {"retrans_segs": 42}}
    assert by_device(NETSTAT) == {TCP: {"retrans_segs": 43}}


def test_a_table_of_ethtool_is_that_of_the_command_above() -> None:
    values = by_device(ETHTOOL)["eth2"]
    assert values == {
        "rx_packets": 12,
        "rx_bytes_phy": 34000,
        "rx_discards_phy": 5,
        "rx_prio3_pause_duration": 600,
    } | {"[0]: rx_ucast_packets": 7}


def test_tables_that_nobody_named_are_different_devices_until_a_time_comes() -> None:
    table = "NIC statistics:\n     rx_discards_phy: {}\n"
    text = "2031-01-01T00:00:00Z\n" + table.format(1) + table.format(500) + "2031-01-01T00:01:00Z\n" + table.format(2)
    assert [(c.device, c.values["rx_discards_phy"]) for c in read(text)[0]] == [("nic", 1), ("nic 2", 500), ("nic", 2)]


def test_the_same_counter_shown_by_two_tools_is_one_reading() -> None:
    text = (
        "2031-01-01T00:00:00Z\n" + PROC + "$ ethtool -S eth0\nNIC statistics:\n     rx_dropped: 2\n     rx_crc_errors_phy: 1\n"
    )
    (eth0,) = [c for c in read(text)[0] if c.device == "eth0"]
    assert (eth0.values["rx_dropped"], eth0.values["rx_crc_errors_phy"]) == (2, 1)


TIMES = [
    "2031-02-03T04:05:06Z",
    "1927857906",
    "Mon Feb  3 04:05:06 UTC 2031",
    "=== 2031-02-03 04:05:06 UTC ===",
    "time: 1927857906.0",
]


@pytest.mark.parametrize("line", [*TIMES, "# 2031-02-03T04:05:06+00:00", "timestamp=2031-02-03T04:05:06Z"])
def test_a_time_alone_on_a_line_opens_the_next_moment(line: str) -> None:
    found, notices = read(f"{line}\n{PORT}2031-02-03T04:06:06Z\n{PORT}")
    assert [c.ts for c in found] == [1927857906.0, 1927857966.0]
    assert [c.source for c in found] == ["net.log:5", "net.log:18"]
    assert notices.items() == []


def test_times_without_zone_are_told() -> None:
    assert texts(read("2031-02-03 04:05:06\n" + PORT)[1]) == {ZONELESS: ("net.log", 1)}


def test_readings_that_come_again_without_a_time_are_the_next_moment() -> None:
    found, _ = read(PROC + PROC)
    assert [(c.ts, c.device) for c in found] == [(None, "lo"), (None, "eth0")] * 2


NAMED = {
    "framed": "=== gpu12 ===\n" + PORT,
    "dashes as of dshbak": "----------------\ngpu12\n----------------\n" + PORT,
    "label": "host: gpu12\n" + PORT,
    "prefix as of pdsh": "".join(f"gpu12: {line}\n" for line in PORT.splitlines()),
    "prompt": "[root@gpu12 ~]# perfquery -x\n" + PORT,
    "name before the time": "gpu12 2031-02-03T04:05:06Z\n" + PORT,
}


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED)
def test_the_node_is_told_in_many_ways(text: str) -> None:
    (found,), notices = read(text)
    assert (found.node, found.device) == ("gpu12", "lid 77/2")
    assert notices.items() == []


@pytest.mark.parametrize("title", ["before", "after", "t0", "counters", "sample 3", "eth0"])
def test_a_title_that_is_no_node_names_none(title: str) -> None:
    (found,), notices = read(f"=== {title} ===\n{PORT}")
    assert found.node is None
    assert notices.items() == []


def test_nodes_that_are_mixed_line_by_line_stay_apart() -> None:
    lines = [f"{node}: {line}" for line in PORT.splitlines() for node in ("a1", "b2")]
    assert [(c.node, len(c.values)) for c in read("\n".join(lines))[0]] == [("a1", 8), ("b2", 8)]


def test_what_cannot_be_used_is_counted_where_it_stands() -> None:
    found, notices = read(PORT.replace("......3\n", "......3x\n") + "something else\nand more\n")
    assert "symbol_error" not in found[0].values
    assert texts(notices) == {DAMAGED: ("net.log:line 6", 1), UNKNOWN: ("net.log:line 13", 2)}


def test_a_number_that_no_counter_holds_is_damage() -> None:
    found, notices = read(PORT.replace("......50\n", "......" + "9" * 20 + "\n"))
    assert "port_xmit_wait" not in found[0].values
    assert DAMAGED in texts(notices)


@given(size=st.integers(1, 400))
def test_chunks_do_not_matter(size: int) -> None:
    assert read(EVERYTHING, size)[0] == read(EVERYTHING)[0]
    assert read(EVERYTHING, size)[1].items() == read(EVERYTHING)[1].items()


@given(cuts=st.lists(st.tuples(st.integers(0, len(EVERYTHING)), st.binary(max_size=8)), max_size=5), size=st.integers(1, 5000))
def test_damage_never_raises(cuts: list[tuple[int, bytes]], size: int) -> None:
    data = EVERYTHING.encode()
    for at, put in cuts:
        data = data[:at] + put + data[at + len(put) :]
    assert read(data, size)[0] == read(data)[0]
    sniff(data)


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_never_raise(data: bytes) -> None:
    sniff(data)
    read(data)


OURS = {"perfquery": PORT, "proc": PROC, "ip": LINK, "ifconfig": IFCONFIG, "ethtool": ETHTOOL, "sysfs": SYSFS}


@pytest.mark.parametrize("text", [*OURS.values(), HEADINGS, RDMA, NAMED["prefix as of pdsh"], EVERYTHING])
def test_files_of_these_tools_are_recognised_even_when_cut(text: str) -> None:
    assert sniff(text.encode())
    assert sniff((text * 3).encode()[:-5])


TRAINING = "".join(f"2031-02-03T04:05:{s:02d}Z INFO [rank=0] step={s} loss=0.5 step_time=0.1\n" for s in range(40))
OTHERS = {
    "training": TRAINING,
    "training that begins with its interfaces": LINK + TRAINING,
    "timeline": '[\n{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad/counters: 3"}},\n',
    "NCCL": "node1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n" * 3,
    "kernel": "[ 12.345678] mlx5_core 0000:3b:00.0 eth0: Link down\n" * 3,
    "samples of GPUs": 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 90\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} 50\n',
    "counters told in prose": "see counters: PortXmitWait and /counters/ of the port\n" * 3,
    "nothing": "",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_files_of_others_are_left_alone(text: str) -> None:
    assert not sniff(text.encode())
