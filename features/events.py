"""The known log messages: what each means, whether it can be a cause, and where its wording was read."""

from __future__ import annotations

from typing import Literal, NamedTuple

Role = Literal["root", "cascade", "context"]


class EventKind(NamedTuple):
    """One kind of message.

    `role`: "root" may be the cause, and the earliest one of a run is the first suspect; "cascade" follows from
    something that happened before, mostly on another rank; "context" helps to explain. `hard`: the message is proof by
    itself that something failed, so an incident need not wait for numbers to agree.
    """

    name: str
    meaning: str
    role: Role
    hard: bool
    source: str


HOROVOD = "horovod/common at 0.28.1"
RUNNER = "horovod/runner at 0.28.1"
TORCH = "torch/csrc/distributed/c10d at 2.7"
ELASTIC = "torch/distributed/elastic at 2.7"
NCCL = "NCCL 2.4 to 2.28 logs"
KERNEL = "Linux kernel log"
NVIDIA = "NVIDIA Xid catalogue and kernel module logs"
SLURM = "slurmstepd and srun of Slurm 20 to 24"
OPENMPI = "Open MPI 4 orterun"
PYTHON = "CPython traceback format"
DATALOADER = "torch/utils/data at 2.7"

EVENTS: tuple[EventKind, ...] = (
    # Horovod
    EventKind("stall", "ranks did not submit tensors that others wait for", "root", True, HOROVOD),
    EventKind("stall_shutdown", "a stall exceeded the shutdown time, the job ends", "root", True, HOROVOD),
    EventKind("mismatch", "ranks submitted tensors that do not fit together", "root", True, HOROVOD),
    EventKind("connection_lost", "the connection to another rank broke", "cascade", True, HOROVOD),
    EventKind("horovod_error", "Horovod gave up because of an error elsewhere", "cascade", True, HOROVOD),
    EventKind("cache_evicted", "the response cache is too small for the tensors of a step", "context", False, HOROVOD),
    EventKind("hosts_updated", "an elastic job took hosts in or out", "context", False, RUNNER),
    EventKind("host_lost", "an elastic job gave up a host or a worker on it", "root", True, RUNNER),
    EventKind("unknown_setting", "a setting that nothing reads, perhaps misspelt", "context", False, HOROVOD),
    # processes
    EventKind("exception", "an uncaught Python exception", "root", True, PYTHON),
    EventKind("process_exit", "a process ended with an error or by a signal", "root", True, RUNNER),
    EventKind("process_killed", "a process was killed by signal 9", "root", True, RUNNER),
    EventKind("process_crashed", "a process crashed on a memory access or an abort", "root", True, PYTHON),
    EventKind("process_terminated", "a process was told to end, because another had failed", "cascade", False, RUNNER),
    EventKind("job_aborted", "the launcher ended the job because a process failed", "cascade", True, RUNNER),
    EventKind("death_signal", "the launcher itself was told to end (terminal closed, job cancelled)", "root", True, ELASTIC),
    EventKind(
        "job_cancelled",
        "the batch system ended the job: limit, preemption, request or failed node",
        "root",
        True,
        SLURM,
    ),
    EventKind("worker_restart", "the launcher restarts the group of workers", "context", False, ELASTIC),
    EventKind("rendezvous_failed", "ranks did not find each other at the start", "root", True, ELASTIC),
    # memory
    EventKind("cuda_oom", "a GPU has no memory left", "root", True, "torch and TensorFlow allocators"),
    EventKind("host_oom", "the kernel killed a process for lack of memory", "root", True, KERNEL),
    EventKind("cgroup_oom", "a memory limit of a job or container was exceeded", "root", True, SLURM),
    EventKind("allocation_failed", "a process could not get host memory", "root", True, PYTHON),
    EventKind("shm_exhausted", "data-loader workers ran out of shared memory", "root", True, DATALOADER),
    # input
    EventKind("dataloader_killed", "a data-loader worker was killed", "root", True, DATALOADER),
    EventKind("dataloader_timeout", "a data-loader worker gave no batch in time", "root", True, DATALOADER),
    EventKind("input_error", "data could not be read", "root", False, DATALOADER),
    EventKind("storage_error", "a disk or a file system failed or did not answer", "root", True, KERNEL),
    EventKind("disk_full", "a file system has no space left", "root", True, KERNEL),
    # collectives
    EventKind("collective_timeout", "a collective did not end in time on this rank", "cascade", True, TORCH),
    EventKind("collective_progress", "which collective this rank enqueued and completed last", "context", False, TORCH),
    EventKind("collective_desync", "ranks called different collectives", "root", True, TORCH),
    EventKind("nccl_warn", "a warning of NCCL that no other row knows", "context", False, NCCL),
    EventKind("nccl_error", "NCCL returned an error", "cascade", True, NCCL),
    EventKind("nccl_remote_error", "NCCL lost the connection to another rank", "cascade", True, NCCL),
    EventKind("nccl_connect_failed", "NCCL could not connect to an address", "root", True, NCCL),
    EventKind("nccl_ib_error", "RDMA failed: completion error, adapter event or queue pair", "root", True, NCCL),
    EventKind("nccl_no_rdma", "NCCL could not use an RDMA device that should be there", "context", False, NCCL),
    EventKind("nccl_transport", "the network that NCCL chose", "context", False, NCCL),
    EventKind("nccl_interface", "an interface that NCCL bootstraps over", "context", False, NCCL),
    EventKind("gloo_connect_failed", "Gloo could not connect the ranks", "root", True, TORCH),
    EventKind("loopback_address", "a rank announces the loopback address to the others", "root", False, TORCH),
    # GPU
    EventKind("cuda_error", "a CUDA call failed", "root", True, "torch and CUDA runtime messages"),
    EventKind("cuda_not_ready", "CUDA does not start: fabric manager or driver", "root", True, "CUDA error 802"),
    EventKind("xid", "the GPU or its driver reports a hardware or firmware error", "root", True, NVIDIA),
    EventKind("xid_application", "the GPU stopped a faulty access of the application", "root", True, NVIDIA),
    EventKind("xid_followup", "the GPU driver cleans up or adds detail after another Xid", "context", False, NVIDIA),
    EventKind("sxid", "an NVSwitch reports an error", "root", True, NVIDIA),
    EventKind("gpu_lost", "a GPU does not answer any more", "root", True, NVIDIA),
    # node
    EventKind("link_down", "a network link went down", "root", True, KERNEL),
    EventKind("link_up", "a network link came up", "context", False, KERNEL),
    EventKind("pcie_error", "the PCIe bus reports an error", "root", False, KERNEL),
    EventKind("hardware_error", "the processor or memory reports a hardware error", "root", True, KERNEL),
    EventKind("thermal_throttle", "a processor was slowed because of its temperature", "root", False, KERNEL),
    EventKind("hung_task", "a task did not run for minutes, or a processor is stuck", "root", True, KERNEL),
    # numbers
    EventKind("loss_nonfinite", "a loss or gradient is NaN or infinite", "root", True, "wordings of training scripts"),
    EventKind(
        "loss_scale_overflow",
        "a step was skipped because its gradients overflowed",
        "context",
        False,
        "DeepSpeed and apex",
    ),
    EventKind("loss_scale_exhausted", "the loss scale cannot be lowered further", "root", True, "DeepSpeed and apex"),
)

EVENT_KINDS: dict[str, EventKind] = {kind.name: kind for kind in EVENTS}
