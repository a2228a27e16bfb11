"""Wordings of NCCL and CUDA: errors, the network that NCCL chose, and the interfaces that it tried."""

from __future__ import annotations

import re

from features.parsers.logwording import Wording, wording

# What NCCL puts before each of its lines: host, process, thread, and the CUDA device within the process.
NCCL_HEAD = re.compile(r"(?<![\w.-])(?P<node>[\w.-]{1,80}):\d+:\d+ \[(?P<device>\d+)\] ")

_REASON = (
    r"(?P<reason>Connection refused|Connection timed out|No route to host|Network is unreachable|"
    r"Software caused connection abort)"
)


NCCL_WORDINGS: tuple[Wording, ...] = (
    wording("nccl_ib_error", "Got completion with error", r"Got completion with error (?P<error>\d+)"),
    wording(
        "nccl_ib_error",
        "Got completion from peer",
        r"Got completion from peer (?P<peer>\S+) with (?:status=|error )(?P<error>\d+)",
    ),
    wording("nccl_ib_error", "Got async", r"NET/IB ?: (?:\S+ )?Got async (?:error |fatal )?event ?: (?P<error>.*)"),
    wording("nccl_ib_error", "ibv_modify_qp failed", r"ibv_modify_qp failed(?: with (?P<error>\d+)(?P<detail>.*))?"),
    wording("nccl_no_rdma", "ibv_open_device failed"),
    wording("nccl_no_rdma", "Unable to open device", r"Unable to open device (?P<nic>\S+)"),
    wording("nccl_no_rdma", "NET/IB : No device found"),
    wording("nccl_no_rdma", "Failed to open libibverbs"),
    wording("nccl_connect_failed", "Call to connect", r"NCCL WARN .*Call to connect .*?" + _REASON),
    wording(
        "nccl_connect_failed",
        "onnect to",
        r"NCCL WARN .*?[Cc]onnect to (?P<address>\S+) (?:failed|returned) ?:? ?(?P<reason>[\w ]+)",
    ),
    wording("nccl_remote_error", "onnection closed by remote peer", r"[Cc]onnection closed by remote peer (?P<peer>\S+)"),
    wording("nccl_remote_error", "remote process exited or there was a network error"),
    wording("nccl_remote_error", "ncclRemoteError"),
    wording("nccl_error", "communicator was aborted", r"NCCL communicator was aborted on rank (?P<rank>\d+)"),
    wording("nccl_error", "Some NCCL operations have failed or timed out"),
    wording("nccl_error", "nccl", r"(?P<reason>nccl(?:UnhandledCuda|System|Internal)Error|ncclInvalid(?:Usage|Argument)): "),
    wording("cuda_oom", "NCCL WARN", r"NCCL WARN .*Cuda failure (?:\d+ )?'out of memory'"),
    wording("cuda_not_ready", "NCCL WARN", r"NCCL WARN .*Cuda failure (?:\d+ )?'system not yet initialized'"),
    wording("cuda_error", "NCCL WARN", r"NCCL WARN .*Cuda failure (?P<reason>.*)"),
    wording("nccl_transport", "NCCL INFO Using network", r"NCCL INFO Using network (?P<network>\S.*)"),
    wording("nccl_interface", "NET/Socket : Using", r"NCCL INFO NET/Socket : Using (?P<interfaces>.+)"),
    wording("nccl_interface", "Bootstrap : Using", r"NCCL INFO Bootstrap : Using (?P<interfaces>.+)"),
    wording("nccl_interface", "NET : Using interface", r"NCCL INFO NET : Using interface (?P<interfaces>.+)"),
    wording("nccl_error", "NCCL failure", r"NCCL failure .*'(?P<reason>[^']*)'"),
    wording("nccl_error", "NCCL Error", r"NCCL Error (?P<result>\d+): (?P<reason>.*)"),
    wording("nccl_error", "NCCL error", r"NCCL error.*?(?P<reason>unhandled \w+ error|internal error|invalid \w+)"),
    wording("nccl_remote_error", "-> 6", r"NCCL INFO (?P<place>\S+:\d+) -> (?P<result>6)\b"),
    wording("nccl_error", "-> ", r"NCCL INFO (?P<place>\S+:\d+) -> (?P<result>[1-8])\b"),
    wording("nccl_warn", "NCCL WARN", r"NCCL WARN (?P<reason>.*)"),
    wording("nccl_warn", "Call to connect returned", r"Call to connect returned (?P<reason>.*?), retrying"),
    wording("cuda_not_ready", "system not yet initialized"),
    wording("cuda_error", "CUDA error", r"CUDA error: (?P<reason>(?!out of memory).*)"),
)
