"""Facts: hard evidence that never waits for a model or a gate, such as a rank's exit, an exception or a loss of NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from features.events import EVENT_KINDS
from features.measures.machines import GONE, STOPPED
from features.measures.table import RunMemory
from features.records import Log
from features.vocabulary import Channel
from features.windows import Window

Role = Literal["root", "cascade", "context"]

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

ALONE_S = 1.0
"""A process must be gone this long while others live: ranks of a finished job leave within a fraction of it."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, at a time, known for certain; `ranks` are those it points at."""

    ts: float
    name: str  # a word of the catalog's evidence vocabulary
    role: Role
    channel: Channel
    text: str
    hard: bool = True  # opens an incident by itself
    ranks: tuple[int, ...] = ()
    source: str = ""
    kind: Literal["log", "telemetry", "timeline", "rule"] = "log"


class FactFinder:
    """Finds the facts of each window; remembers what one window alone cannot tell."""

    def __init__(self) -> None:
        self._nonfinite: set[int] = set()
        self._told_gone: set[int] = set()

    def of(self, window: Window, memory: RunMemory) -> list[Fact]:
        """Facts of this window, earliest first."""
        found = [*self._logs(window), *self._numbers(window), *self._gone(window, memory), *_ends(window)]
        return sorted(found, key=lambda f: (f.ts, f.name, f.ranks, f.text))

    def _logs(self, window: Window) -> Iterator[Fact]:
        for log in window.logs:
            kind, meaning = EVENT_KINDS.get(log.event), EVIDENCE_OF_EVENT.get(log.event)
            if kind is None or meaning is None:
                continue
            for name in _names(log, meaning[0]):
                yield Fact(
                    ts=log.ts if log.ts is not None else window.start,
                    name=name,
                    role="cascade" if name == "log_cascade_exception" else kind.role,
                    hard=kind.hard,
                    channel=meaning[1],
                    text=log.text,
                    ranks=_ranks_of(log),
                    source=log.source,
                )

    def _numbers(self, window: Window) -> Iterator[Fact]:
        """The first non-finite loss of each rank; the lowest step is the root, the others got it by averaging."""
        for s in sorted(window.steps, key=lambda s: (s.step, s.ts, s.rank)):
            if s.loss is None or math.isfinite(s.loss) or s.rank in self._nonfinite:
                continue
            role: Role = "cascade" if self._nonfinite else "root"
            self._nonfinite.add(s.rank)
            text = f"rank {s.rank}: loss is {s.loss} in step {s.step}"
            yield Fact(
                ts=s.ts, name="loss_nan", role=role, channel="numbers", text=text, ranks=(s.rank,), source=s.source
            )

    def _gone(self, window: Window, memory: RunMemory) -> Iterator[Fact]:
        """A process that is gone while others of the job live on."""
        self._told_gone &= set(memory.gone)  # a rank that was restarted may die again
        alive = {p.rank: p.ts for p in window.processes if p.status is not None and p.status not in GONE}
        for rank, since in sorted(memory.gone.items()):
            if rank in self._told_gone or rank in memory.finished:
                continue
            if any(ts >= since + ALONE_S for r, ts in alive.items() if r != rank):
                role: Role = "cascade" if self._told_gone else "root"
                self._told_gone.add(rank)
                text = f"the process of rank {rank} is gone while others of the job live on"
                yield Fact(
                    ts=since, name="process_gone", role=role, channel="pace", text=text, ranks=(rank,), kind="telemetry"
                )


def _ends(window: Window) -> Iterator[Fact]:
    for p in window.phases:
        if p.kind == "exhausted" and p.rank is not None:
            text = f"rank {p.rank} has no more data at step {p.step}"
            yield Fact(
                ts=p.ts, name="log_exhausted", role="root", channel="pace", text=text, ranks=(p.rank,), source=p.source
            )


def stopped_ranks(window: Window) -> set[int]:
    """Ranks that were seen stopped in this window."""
    return {p.rank for p in window.processes if p.status in STOPPED}


def _names(log: Log, usual: str) -> list[str]:
    """The words a message stands for: an exception that tells of a dead worker is both."""
    if log.fields.get("cascade") == "true":
        return ["log_cascade_exception"]
    if usual == "log_exit_other" and log.fields.get("signal", log.fields.get("code")) in KILLED:
        return ["log_exit_killed"]
    if usual == "log_dataloader_death" and "type" in log.fields:
        return [usual, "log_exception"]
    return [usual]


def _ranks_of(log: Log) -> tuple[int, ...]:
    if log.ranks:
        return log.ranks
    return () if log.rank is None else (log.rank,)
