"""Facts from log messages: which word of the evidence vocabulary each known message stands for."""

from __future__ import annotations

from collections.abc import Iterator

from detector.fact import Fact
from detector.xids import xid_words
from features.events import EVENT_KINDS
from features.measures.table import RunMemory
from features.records import Log
from features.vocabulary import Channel
from features.windows import Window

EVIDENCE_OF_EVENT: dict[str, tuple[str, Channel]] = {
    "stall": ("log_stall_warning", "pace"),
    "stall_shutdown": ("log_stall_warning", "pace"),
    "mismatch": ("log_mismatch", "pace"),
    "connection_lost": ("log_connection_reset", "pace"),
    "horovod_error": ("log_cascade_exception", "pace"),
    "host_lost": ("node_silent", "pace"),
    "unknown_setting": ("setting_unknown", "pace"),
    "exception": ("log_exception", "pace"),
    "cuda_error": ("log_exception", "pace"),
    "process_exit": ("log_exit_other", "pace"),
    "process_killed": ("log_exit_killed", "pace"),
    "process_crashed": ("log_exit_other", "pace"),
    "job_aborted": ("log_cascade_exception", "pace"),
    "death_signal": ("log_terminated", "pace"),
    "job_cancelled": ("log_terminated", "pace"),
    "rendezvous_failed": ("log_rendezvous_failed", "pace"),
    "cuda_oom": ("log_oom_cuda", "memory"),
    "host_oom": ("log_oom_host", "memory"),
    "cgroup_oom": ("log_oom_host", "memory"),
    "allocation_failed": ("log_oom_host", "memory"),
    "shm_exhausted": ("log_shm_exhausted", "memory"),
    "dataloader_killed": ("log_dataloader_death", "pace"),
    "dataloader_timeout": ("log_dataloader_death", "pace"),
    "collective_timeout": ("log_watchdog_timeout", "pace"),
    "collective_desync": ("log_mismatch", "pace"),
    "nccl_error": ("log_nccl_error", "pace"),
    "nccl_remote_error": ("log_nccl_remote", "pace"),
    "nccl_connect_failed": ("log_wrong_interface", "pace"),
    "nccl_ib_error": ("log_nccl_error", "pace"),
    "gloo_connect_failed": ("log_wrong_interface", "pace"),
    "loopback_address": ("log_wrong_interface", "pace"),
    "xid": ("log_xid", "pace"),
    "xid_application": ("log_xid_application", "pace"),
    "sxid": ("log_xid_link", "pace"),
    "gpu_lost": ("gpu_lost", "pace"),
    "thermal_throttle": ("log_throttle", "pace"),
    "loss_nonfinite": ("log_nan", "numbers"),
    "loss_scale_exhausted": ("log_loss_scale_low", "numbers"),
    "disk_full": ("log_disk_full", "pace"),
    "storage_error": ("log_storage_error", "pace"),
    "hardware_error": ("log_hardware_error", "pace"),
    "pcie_error": ("log_hardware_error", "pace"),
    "nccl_no_rdma": ("log_rdma_missing", "pace"),
    "cuda_not_ready": ("log_fabric_manager", "pace"),
    "link_down": ("net_link_errors", "pace"),
}
"""Which word of the evidence vocabulary each known message stands for, and the channel it speaks about."""

KILLED = frozenset({"9", "SIGKILL", "137", "-9"})
"""How launchers write that a process was killed by signal 9."""

GIVEN_UP_BY_RDMA = ("error 12", "ibv_modify_qp")
"""Retries exhausted, or a queue pair that never comes up: before the first step it is the settings, later the link."""
SHOULD_BE_THERE = ("unable to open", "failed")
"""An RDMA device that is there but cannot be opened; "No device found" alone is how every Ethernet cluster starts."""


class LogFacts:
    """Turns recognised messages into facts."""

    def of(self, window: Window, memory: RunMemory) -> Iterator[Fact]:
        """Facts of the messages in this window."""
        for log in window.logs:
            kind, meaning = EVENT_KINDS.get(log.event), EVIDENCE_OF_EVENT.get(log.event)
            if kind is None or meaning is None:
                continue
            names = _names(log, meaning[0], has_stepped=bool(memory.last_step))
            cannot_open = names == ["log_rdma_missing"] and any(t in log.text.lower() for t in SHOULD_BE_THERE)
            for name in names:
                yield Fact(
                    ts=log.ts if log.ts is not None else window.start,
                    name=name,
                    role="cascade" if name == "log_cascade_exception" else "root" if cannot_open else kind.role,
                    hard=kind.hard or cannot_open,
                    channel=meaning[1],
                    text=log.text,
                    ranks=_ranks_of(log),
                    node=log.node,
                    source=log.source,
                )


def _names(log: Log, usual: str, *, has_stepped: bool) -> list[str]:
    """The words a message stands for; some depend on what it says besides, or on when it comes."""
    if log.fields.get("cascade") == "true":
        return ["log_cascade_exception"]
    if usual == "log_exit_other" and log.fields.get("signal", log.fields.get("code")) in KILLED:
        return ["log_exit_killed"]
    if usual == "log_dataloader_death" and "type" in log.fields:
        return [usual, "log_exception"]  # an exception that tells of a dead worker is both
    if usual == "log_stall_warning" and "per_rank" in log.fields:
        return [usual, "log_mismatch"]  # ranks wait for each other in different collectives
    if log.event in ("xid", "xid_application", "sxid") and "xid" in log.fields:
        return list(xid_words(log.fields["xid"])) or [usual]
    if log.event == "nccl_ib_error" and not has_stepped and any(t in log.text for t in GIVEN_UP_BY_RDMA):
        return ["log_rdma_settings"]
    return [usual]


def _ranks_of(log: Log) -> tuple[int, ...]:
    if log.ranks:
        return log.ranks
    return () if log.rank is None else (log.rank,)
