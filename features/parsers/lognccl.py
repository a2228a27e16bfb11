"""Wordings of NCCL: errors, the network it chose, and the interfaces it tried."""

from __future__ import annotations

from features.parsers.wording import Wording, wording

_HEAD = r"(?:(?P<node>[\w.-]+):\d+:\d+ \[(?P<device>\d+)\] )?"

NCCL_WORDINGS: tuple[Wording, ...] = (
    wording("nccl_ib_error", "Got completion with error", _HEAD + r".*Got completion .*?with error (?P<error>\d+)"),
    wording("nccl_ib_error", "Got completion from peer", _HEAD + r".*Got completion from peer (?P<peer>\S+) with status=(?P<error>\d+)"),
    wording("nccl_ib_error", "Got async event", _HEAD + r".*NET/IB : (?:\S+ )?Got async (?:error )?event ?: (?P<error>.*)"),
    wording("nccl_ib_error", "ibv_modify_qp failed", _HEAD + r".*ibv_modify_qp failed(?: with (?P<error>\d+)(?P<detail>.*))?"),
    wording("nccl_no_rdma", "ibv_open_device failed", _HEAD + r".*ibv_open_device failed"),
    wording("nccl_no_rdma", "Unable to open device", _HEAD + r".*Unable to open device (?P<nic>\S+)"),
    wording("nccl_no_rdma", "NET/IB : No device found", _HEAD + r".*NET/IB : No device found"),
    wording("nccl_no_rdma", "Failed to open libibverbs", _HEAD + r".*Failed to open libibverbs"),
    wording("nccl_connect_failed", "Call to connect", _HEAD + r".*NCCL WARN .*Call to connect .*?(?P<reason>Connection refused|Connection timed out|No route to host|Network is unreachable)"),
    wording("nccl_connect_failed", "NCCL WARN Connect to", _HEAD + r".*NCCL WARN Connect to (?P<address>\S+) failed : (?P<reason>.*)"),
    wording("nccl_remote_error", "remote process exited or there was a network error"),
    wording("nccl_remote_error", "ncclRemoteError"),
    wording("nccl_remote_error", "Net : Connection closed by remote peer", _HEAD + r".*Connection closed by remote peer (?P<peer>\S+)"),
    wording("nccl_transport", "NCCL INFO Using network", _HEAD + r"NCCL INFO Using network (?P<network>.+)"),
    wording("nccl_interface", "NET/Socket : Using", _HEAD + r"NCCL INFO NET/Socket : Using (?P<interfaces>.+)"),
    wording("nccl_interface", "Bootstrap : Using", _HEAD + r"NCCL INFO Bootstrap : Using (?P<interfaces>.+)"),
    wording("nccl_interface", "NET : Using interface", _HEAD + r"NCCL INFO NET : Using interface (?P<interfaces>.+)"),
    wording("nccl_error", "NCCL failure", r"NCCL failure .*'(?P<reason>[^']*)'"),
    wording("nccl_error", "NCCL Error", r"NCCL Error (?P<result>\d+): (?P<reason>.*)"),
    wording("nccl_error", "NCCL error", r"NCCL error.*?(?P<reason>unhandled \w+ error|internal error|invalid \w+).*"),
    wording("nccl_error", "-> ", _HEAD + r"NCCL INFO (?P<place>\S+:\d+) -> (?P<result>[1-8])\b"),
    wording("nccl_warn", "NCCL WARN", _HEAD + r".*NCCL WARN (?P<reason>.*)"),
)  # fmt: skip
