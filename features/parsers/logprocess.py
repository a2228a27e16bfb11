"""Wordings of Horovod, launchers, batch systems, PyTorch and allocators."""

from __future__ import annotations

from features.parsers.wording import Wording, wording

_HOROVOD = (
    wording(
        "mismatch",
        "ismatch",
        r"Mismatched (?P<what>[\w ]+?)[:.] (?P<detail>One rank .*|.*another rank.*)",
    ),
    wording("mismatch", "Duplicate tensor name", r"Duplicate tensor name (?P<tensor>\S+)"),
    wording(
        "mismatch",
        "same name",
        r"(?P<detail>tensor with the same name as another tensor that is currently being processed)",
    ),
    wording("mismatch", "but another rank", r"(?P<detail>One rank .*but another rank.*)"),
    wording(
        "connection_lost",
        "Horovod background loop uncaught exception",
        r"(?:\[(?P<rank>\d+)\]: )?Horovod background loop uncaught exception: (?:\[[^\]]*\] )?(?P<error>.*?)"
        r"(?: \[(?P<peer>[\da-fA-F.:]+)\]:(?P<port>\d+))?: (?P<reason>[^:]+)$",
    ),
    wording("connection_lost", "uncaught exception", r"Horovod background loop uncaught exception: (?P<reason>.*)"),
    wording("horovod_error", "Horovod has been shut down"),
    wording("horovod_error", "HorovodInternalError", r"HorovodInternalError(?:: (?P<reason>.*))?"),
    wording("hosts_updated", "HostsUpdatedInterrupt"),
    wording("host_lost", "blacklist failing host", r"blacklist failing host: ?(?P<node>\S+)"),
    wording("host_lost", "record state", r"record state: (?P<node>[\w.-]+)\[(?P<slot>\d+)\] = (?P<state>FAILURE)"),
    wording("hosts_updated", "reset workers", r"reset workers: (?P<workers>\d+)"),
    wording("hosts_updated", "wait for available slots", r"wait for available slots: (?P<slots>\d+)"),
    wording("cache_disabled", "Stall check is disabled"),
)

_TORCH = (
    wording(
        "collective_timeout",
        "Watchdog caught collective operation timeout",
        r"\[(?:PG [^\]]*?)?Rank (?P<rank>\d+)\].*WorkNCCL\(SeqNum=(?P<sequence>\d+), OpType=(?P<op>\w+),.*?"
        r"Timeout\(ms\)=(?P<timeout_ms>\d+)\) ran for (?P<ran_ms>\d+) milliseconds",
    ),
    wording(
        "collective_progress",
        "last enqueued",
        r"(?:\[(?:PG [^\]]*?)?Rank (?P<rank>\d+)\].*)?last enqueued(?: NCCL)? work: (?P<enqueued>-?\d+), "
        r"last completed(?: NCCL)? work: (?P<completed>-?\d+)",
    ),
    wording("collective_timeout", "ollective operation timeout"),
    wording(
        "collective_desync",
        "Detected mismatch between collectives",
        r"Detected mismatch between collectives(?P<detail>.*)",
    ),
    wording("collective_desync", "collectives are mismatched"),
    wording("connection_lost", "onnection closed by peer", r"Connection closed by peer(?: \[(?P<peer>[^\]]+)\])?"),
    wording("gloo_connect_failed", "connectFullMesh failed", r"Gloo connectFullMesh failed with (?P<reason>.*)"),
    wording("loopback_address", "Using the loopback address as fallback"),
    wording(
        "connection_lost", "Connection reset by peer", r"(?:\[(?P<peer>[\da-fA-F.:]+)\]:\d+: )?Connection reset by peer"
    ),
    wording(
        "connection_lost", "Timed out waiting", r"Timed out waiting (?P<waited_ms>\d+)ms for (?P<what>\w+) operation"
    ),
    wording("cuda_not_ready", "system not yet initialized"),
    wording("gloo_connect_failed", "Gloo", r"(?P<reason>Connect timeout|timed out connecting).*"),
    wording("death_signal", "death signal", r"Received (?P<signal>\d+) death signal"),
    wording("death_signal", "got signal", r"SignalException: Process \d+ got signal: (?P<signal>\d+)"),
    wording("process_terminated", "closing signal", r"Sending process \d+ closing signal (?P<signal>SIG\w+)"),
    wording(
        "process_exit",
        "exitcode",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<ranks>\d+) \(pid: \d+\)",
    ),
    wording("process_exit", "exitcode  :", r"exitcode  : (?P<code>-?\d+)"),
    wording("worker_restart", "Restarting worker group"),
    wording("worker_restart", "restarting worker group"),
    wording("rendezvous_failed", "RendezvousTimeoutError"),
    wording("rendezvous_failed", "RendezvousConnectionError"),
    wording(
        "rendezvous_failed",
        "client socket has timed out",
        r"client socket has timed out .*connect to \((?P<address>[^)]*)\)",
    ),
)

_MEMORY = (
    wording(
        "cuda_oom",
        "CUDA out of memory",
        r"CUDA out of memory\.(?: Tried to allocate (?P<tried>[\d.]+ \w+))?(?:.*?GPU (?P<gpu>\d+))?",
    ),
    wording("cuda_oom", "OutOfMemoryError", r"torch(?:\.cuda)?\.OutOfMemoryError"),
    wording("cuda_oom", "OOM when allocating tensor", r"OOM when allocating tensor with shape(?P<shape>\[[^\]]*\])"),
    wording("cuda_oom", "CUDA_ERROR_OUT_OF_MEMORY"),
    wording("cuda_oom", "CUDA error: out of memory"),
    wording("shm_exhausted", "insufficient shared memory"),
    wording("shm_exhausted", "Bus error", r"DataLoader worker .*Bus error"),
    wording("shm_exhausted", "unable to open shared memory object"),
    wording("shm_exhausted", "unable to write to file </torch_"),
    wording(
        "dataloader_killed",
        "DataLoader worker",
        r"DataLoader worker \(pid\(?s?\)? ?(?P<pid>[\d, ]+)\) (?:is killed by signal: (?P<by>[\w ]+)|exited unexpectedly.*)",
    ),
    wording(
        "dataloader_timeout", "DataLoader timed out after", r"DataLoader timed out after (?P<seconds>[\d.]+) seconds"
    ),
    wording(
        "cgroup_oom",
        "oom-kill event",
        r"(?:slurmstepd(?:-(?P<node>[\w.-]+))?: )?.*?Detected (?P<kills>\d+) oom-kill event",
    ),
    wording(
        "cgroup_oom",
        "oom_kill event",
        r"(?:slurmstepd(?:-(?P<node>[\w.-]+))?: )?.*?Detected (?P<kills>\d+) oom_kill event",
    ),
    wording("cgroup_oom", "Out Of Memory", r"srun: error: (?P<node>[\w.-]+): tasks? (?P<ranks>[\d,-]+): Out Of Memory"),
    wording("cgroup_oom", "OOMKilled"),
    wording("cgroup_oom", "Exceeded job memory limit"),
    wording("allocation_failed", "Cannot allocate memory"),
    wording("allocation_failed", "std::bad_alloc"),
    wording("allocation_failed", "MemoryError", r"(?<!OutOf)MemoryError"),
    wording("disk_full", "No space left on device"),
)

_EXITS = (
    wording("process_exit", "exit with status code", r"Process (?P<ranks>\d+) exit with status code (?P<code>-?\d+)"),
    wording(
        "process_exit",
        "exited on signal",
        r"process rank (?P<ranks>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<signal>\d+)",
    ),
    wording(
        "job_aborted",
        "Terminating remaining workers",
        r"Terminating remaining workers after failure of Process (?P<ranks>\d+)",
    ),
    wording("job_aborted", "the job has been aborted"),
    wording("job_aborted", "one or more processes exited with non-zero"),
    wording("job_aborted", "MPI_ABORT was invoked", r"MPI_ABORT was invoked on rank (?P<ranks>\d+)"),
    wording("process_killed", "Killed", r"^Killed$"),
    wording("process_terminated", "Terminated", r"^Terminated$"),
    wording(
        "process_exit",
        "Exited with exit code",
        r"srun: error: (?P<node>[\w.-]+): tasks? (?P<ranks>[\d,-]+): Exited with exit code (?P<code>\d+)",
    ),
    wording("process_killed", "Killed", r"srun: error: (?P<node>[\w.-]+): tasks? (?P<ranks>[\d,-]+): Killed"),
    wording(
        "process_terminated", "Terminated", r"srun: error: (?P<node>[\w.-]+): tasks? (?P<ranks>[\d,-]+): Terminated"
    ),
    wording(
        "job_cancelled",
        "DUE TO",
        r"\*\*\* (?:STEP|JOB) (?P<job>[\d.+]+) ON (?P<node>\S+) CANCELLED AT \S+ DUE TO (?P<reason>[A-Z ]+)",
    ),
    wording("job_aborted", "CANCELLED AT", r"\*\*\* (?:STEP|JOB) (?P<job>[\d.+]+) ON (?P<node>\S+) CANCELLED AT"),
    wording("process_crashed", "Segmentation fault"),
    wording("process_crashed", "Aborted", r"^Aborted(?: \(core dumped\))?$"),
    wording("process_crashed", "terminate called after throwing"),
)

_NUMBERS = (
    wording("loss_scale_exhausted", "loss scale already at minimum"),
    wording(
        "loss_scale_overflow",
        "OVERFLOW!",
        r"OVERFLOW! (?:Rank (?P<rank>\d+) )?Skipping step\. Attempted loss scale: (?P<scale>[\d.]+)",
    ),
    wording(
        "loss_scale_overflow",
        "Gradient overflow",
        r"Gradient overflow\.\s+Skipping step(?:.* to (?P<scale>[\d.e+-]+))?",
    ),
    wording("loss_nonfinite", "loss is nan", r"[Ll]oss is nan"),
    wording(
        "loss_nonfinite",
        "NaN",
        r"(?i:(?:loss|gradients?) (?:is|are|became|contains?) (?:NaN|inf)|NaN (?:loss|gradient|or Inf found)|found NaN)",
    ),
    wording("loss_nonfinite", "nan", r"returned nan values in its \d+th output"),
)

PROCESS_WORDINGS: tuple[Wording, ...] = _MEMORY + _HOROVOD + _TORCH + _EXITS + _NUMBERS
