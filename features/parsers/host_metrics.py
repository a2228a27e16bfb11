"""The metrics of Prometheus exporters that speak of hosts and their network, under the names that counters have here."""

from __future__ import annotations

import re
from typing import NamedTuple

from features.counters import MACHINE, TCP
from features.parsers.hostcounters import VIRTUAL_INTERFACES


class Meaning(NamedTuple):
    """Where a sample belongs: device and name of the counter; `add`: all its series make one sum."""

    device: str
    name: str
    factor: float = 1.0
    add: bool = False


Labels = dict[str, str]

MEMORY = {
    "MemTotal": "memory_total_bytes",
    "MemAvailable": "memory_available_bytes",
    "MemFree": "memory_free_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
}
DISK = {
    "read_bytes": ("disk_read_bytes", 1.0),
    "bytes_read": ("disk_read_bytes", 1.0),
    "written_bytes": ("disk_write_bytes", 1.0),
    "bytes_written": ("disk_write_bytes", 1.0),
    "io_time_seconds": ("disk_busy_s", 1.0),
    "io_time_ms": ("disk_busy_s", 0.001),
}
NETWORK = {
    "bytes": "bytes",
    "errs": "errors",
    "drop": "dropped",
    "fifo": "fifo_errors",
    "frame": "frame_errors",
    "carrier": "carrier_errors",
}
"""Words of node_exporter for /proc/net/dev -> names of the kernel, less the direction."""

INFINIBAND = {
    "port_data_transmitted_bytes": "tx_bytes",
    "port_data_received_bytes": "rx_bytes",
    "legacy_data_transmitted_bytes": "tx_bytes",
    "legacy_data_received_bytes": "rx_bytes",
    "port_transmit_data_bytes": "tx_bytes",
    "port_receive_data_bytes": "rx_bytes",
    "symbol_error": "symbol_error",
    "port_symbol_error": "symbol_error",
    "link_downed": "link_downed",
    "port_link_downed": "link_downed",
    "link_error_recovery": "link_error_recovery",
    "port_link_error_recovery": "link_error_recovery",
    "port_errors_received": "port_rcv_errors",
    "port_receive_errors": "port_rcv_errors",
    "port_receive_remote_physical_errors": "port_rcv_remote_physical_errors",
    "port_discards_transmitted": "port_xmit_discards",
    "port_transmit_discards": "port_xmit_discards",
    "port_discards_received": "port_rcv_discards",
    "port_transmit_wait": "port_xmit_wait",
    "local_link_integrity_errors": "local_link_integrity_errors",
    "port_local_link_integrity_errors": "local_link_integrity_errors",
    "excessive_buffer_overrun_errors": "excessive_buffer_overrun_errors",
    "port_excessive_buffer_overrun_errors": "excessive_buffer_overrun_errors",
    "np_cnp_packets_sent": "np_cnp_sent",
    "np_ecn_marked_roce_packets_received": "np_ecn_marked_roce_packets",
    "rp_cnp_packets_handled": "rp_cnp_handled",
    "local_ack_timeout_errors": "local_ack_timeout_err",
    "packet_sequence_errors": "packet_seq_err",
    "rnr_nak_retry_packets_received": "rnr_nak_retry_err",
    "out_of_sequence_packets_received": "out_of_sequence",
    "out_of_buffer_drops": "out_of_buffer",
    "roce_adp_retransmits": "roce_adp_retrans",
    "roce_adp_retransmits_timeout": "roce_adp_retrans_to",
    "roce_slow_restart_used": "roce_slow_restart",
    "state_id": "is_up",  # see ACTIVE
}
"""Words of node_exporter and infiniband_exporter -> names of the kernel's files. Their data is in bytes, not words."""
ACTIVE = 4
"""Value of the metric `state_id` of a port that carries data."""

_NAME = re.compile(
    r"node_(?:(?P<memory>memory)_|(?P<disk>disk)_|(?P<network>network)_(?P<side>receive|transmit)_|(?P<ethtool>ethtool)_"
    r"|(?P<pressure>pressure)_)(?P<rest>\w+)$"
)
_INFINIBAND = re.compile(r"(?:node_infiniband|infiniband_hca|infiniband_switch|infiniband)_(?P<rest>\w+)$")
_SIMPLE = {
    "node_load1": Meaning(MACHINE, "load1"),
    "node_vmstat_oom_kill": Meaning(MACHINE, "oom_kill"),
    "node_netstat_Tcp_RetransSegs": Meaning(TCP, "retrans_segs"),
}
_OF_INTERFACE = {
    "node_network_up": "is_up",
    "node_network_carrier_changes": "carrier_changes",
    "node_network_carrier_down_changes": "carrier_down_changes",
}
CLOCKS = frozenset({"node_time_seconds", "node_time"})
"""When the exporter was asked, by the node's own clock."""
NAMES_NODE = "node_uname_info"


def meanings(metric: str, labels: Labels) -> list[Meaning]:
    """What a sample stands for; nothing for a metric that is not used here."""
    metric = metric.removesuffix("_total")
    if metric in _SIMPLE:
        return [_SIMPLE[metric]]
    if metric in {"node_cpu_seconds", "node_cpu"} and "mode" in labels:
        return [Meaning(MACHINE, f"cpu.{labels['mode']}", add=True)]
    if metric in _OF_INTERFACE:
        return [Meaning(labels["device"], _OF_INTERFACE[metric])] if "device" in labels else []
    if infiniband := _INFINIBAND.match(metric):
        return _infiniband(infiniband["rest"], labels)
    family = _NAME.match(metric)
    return _family(family, labels) if family is not None else []


def _infiniband(word: str, labels: Labels) -> list[Meaning]:
    device = next((labels[label] for label in ("device", "hca", "switch", "guid") if labels.get(label)), None)
    if device is None or word not in INFINIBAND:
        return []
    port = labels.get("port")
    return [Meaning(f"{device}/{port}" if port else device, INFINIBAND[word])]


def _family(family: re.Match[str], labels: Labels) -> list[Meaning]:
    word = family["rest"]
    if family["memory"]:
        word = word.removesuffix("_bytes")
        return [Meaning(MACHINE, MEMORY[word])] if word in MEMORY else []
    if family["pressure"]:
        return [Meaning(MACHINE, f"pressure.{word.removesuffix('_seconds')}")]
    device = labels.get("device")
    if not device:
        return []
    if family["disk"]:
        name, factor = DISK.get(word, ("", 1.0))
        return [Meaning(MACHINE, f"{name}.{device}", factor)] if name else []
    if family["ethtool"]:
        return [Meaning(device, word)]
    return _interface("rx" if family["side"] == "receive" else "tx", word, device)


def _interface(side: str, word: str, device: str) -> list[Meaning]:
    """An interface's own counter, and its part of its node's traffic where it does not repeat another one's."""
    kind = NETWORK.get(word)
    if kind is None:
        return []
    found = [Meaning(device, f"{side}_{kind}")]
    if kind == "bytes" and not device.startswith(VIRTUAL_INTERFACES):
        found.append(Meaning(MACHINE, f"net_{side}_bytes.{device}"))
    if kind == "dropped" and not device.startswith(VIRTUAL_INTERFACES):
        found.append(Meaning(MACHINE, f"net_drops.{side}.{device}"))
    return found
