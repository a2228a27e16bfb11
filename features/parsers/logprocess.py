"""Wordings of Horovod, PyTorch, launchers and batch systems, and of failing allocations and numbers."""

from __future__ import annotations

from features.parsers.logwording import Wording, wording

_HOROVOD = (
    wording("mismatch", "ismatch", r"Mismatched (?P<what>[\w /]+?)[:.] (?P<detail>One rank .*|.*another rank.*)"),
    wording("mismatch", "same name", r"(?P<detail>tensor with the same name as another tensor that is currently being)"),
    wording("mismatch", "but another rank", r"(?P<detail>One rank .*but another rank.*)"),
    wording(
        "connection_lost",
        "Horovod background loop uncaught exception",
        r"(?:\[(?P<rank>\d{1,7})\]: )?Horovod background loop uncaught exception: (?:\[[^\]]*\] )?(?P<error>.*?)"
        r"(?: \[(?P<peer>[\da-fA-F.:]+)\]:(?P<port>\d+))?: (?P<reason>[^:]+)$",
    ),
    wording("connection_lost", "background loop", r"Horovod background loop uncaught exception: (?P<reason>.*)"),
    wording("horovod_error", "Horovod has been shut down"),
    wording("horovod_error", "HorovodInternalError", r"HorovodInternalError(?:: (?P<reason>.*))?"),
    wording("hosts_updated", "HostsUpdatedInterrupt"),
    wording("host_lost", "blacklist failing host", r"blacklist failing host: ?(?P<node>\S+)"),
    wording("host_lost", "record state", r"record state: (?P<node>[\w.-]+)\[(?P<slot>\d+)\] = (?P<state>FAILURE)"),
    wording("hosts_updated", "reset workers", r"reset workers: (?P<workers>\d+)"),
    wording("hosts_updated", "available slots", r"wait for available slots: (?P<slots>\d+)"),
    wording("cache_evicted", "evicted from cache", r"A response has been evicted from cache"),
    wording("unknown_setting", "HOROVOD_TIMELINE_MARKERS", r"(?P<setting>HOROVOD_TIMELINE_MARKERS)\b"),
    wording("unknown_setting", "NCCL_MIN_NCOLS", r"(?P<setting>NCCL_MIN_NCOLS)\b"),
    wording("unknown_setting", "NCCL_TIMEOUT", r"(?<![A-Z_])(?P<setting>NCCL_TIMEOUT)="),
)

_WATCHED = r"(?:\[(?:PG [^\]]*?)?Rank (?P<rank>\d{1,7})\].*?)?"
_TORCH = (
    wording(
        "collective_timeout",
        "Watchdog caught collective operation timeout",
        _WATCHED + r"WorkNCCL\(SeqNum=(?P<sequence>\d+), OpType=(?P<op>\w+),.*?"
        r"Timeout\(ms\)=(?P<timeout_ms>\d+)\) ran for (?P<ran_ms>\d+) milliseconds",
    ),
    wording(
        "collective_progress",
        "last enqueued",
        _WATCHED + r"last enqueued(?: NCCL)? work: (?P<enqueued>-?\d+), "
        r"last completed(?: NCCL)? work: (?P<completed>-?\d+)",
    ),
    wording("collective_timeout", "ollective operation timeout"),
    wording("collective_timeout", "Heartbeat monitor timed out"),
    wording(
        "collective_progress",
        "dump signal",
        r"dump signal due to a collective timeout from (?:local |global )?rank (?P<first>\d+)",
    ),
    wording("collective_desync", "mismatch between collectives", r"Detected mismatch between collectives(?P<detail>.*)"),
    wording("gloo_connect_failed", "connectFullMesh failed", r"Gloo connectFullMesh failed with (?P<reason>.*)"),
    wording("loopback_address", "Using the loopback address as fallback"),
    wording(
        "connection_lost",
        "onnection reset by peer",
        r"(?:\[(?P<peer>[\da-fA-F.:]+)\]:(?P<port>\d+): )?[Cc]onnection reset by peer",
    ),
    wording(
        "connection_lost",
        "onnection closed by peer",
        r"[Cc]onnection closed by peer(?: \[(?P<peer>[\da-fA-F.:]+)\](?::(?P<port>\d+))?)?",
    ),
    wording(
        "connection_lost",
        "Timed out waiting",
        r"Timed out waiting (?P<waited_ms>\d+)ms for (?P<what>\w+) operation",
    ),
    wording("connection_lost", "Application timeout caused pair closure"),
    wording("gloo_connect_failed", "onnect", r"(?i:gloo).*(?P<reason>[Cc]onnect timeout|timed out connecting)"),
    wording("rendezvous_failed", "RendezvousTimeoutError"),
    wording("rendezvous_failed", "RendezvousConnectionError"),
    wording("rendezvous_failed", "client socket has timed out", r"connect to \((?P<address>[^)]*)\)"),
    wording(
        "rendezvous_failed",
        "waiting for clients",
        r"Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+) clients",
    ),
    wording("rendezvous_failed", "ddress already in use", r"(?P<reason>[Aa]ddress already in use)"),
    wording("death_signal", "death signal", r"Received (?P<signal>\d+) death signal"),
    wording("death_signal", "got signal", r"SignalException: Process \d+ got signal: (?P<signal>\d+)"),
    wording("process_terminated", "closing signal", r"Sending process \d+ closing signal (?P<signal>SIG\w+)"),
    wording("process_exit", "(exitcode:", r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local_rank>\d+)"),
    wording("worker_restart", "estarting worker group"),
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
    wording("shm_exhausted", "DataLoader worker", r"DataLoader worker .*Bus error"),
    wording("shm_exhausted", "unable to open shared memory object"),
    wording("shm_exhausted", "unable to write to file </torch_"),
    wording(
        "dataloader_killed",
        "DataLoader worker",
        r"DataLoader worker \(pid(?:\(s\))? ?(?P<pid>[\d, ]+)\) "
        r"(?:is killed by signal: (?P<by>[\w ]+)|exited unexpectedly.*)",
    ),
    wording("input_error", "in DataLoader worker process", r"Caught (?P<type>\w+) in DataLoader worker process"),
    wording("dataloader_timeout", "DataLoader timed out", r"DataLoader timed out after (?P<seconds>[\d.]+) seconds"),
    wording("input_error", "oo many open files"),
    wording(
        "cgroup_oom",
        "Detected",
        r"(?:slurmstepd(?:-(?P<node>[\w.-]+))?: )?(?:error: )?Detected (?P<kills>\d+) oom[-_]kill event",
    ),
    wording("cgroup_oom", "Out Of Memory", r"srun: error: (?P<node>\S+): tasks? (?P<ranks>[\d,-]+): Out Of Memory"),
    wording("cgroup_oom", "OOMKilled"),
    wording("cgroup_oom", "Exceeded job memory limit"),
    wording("allocation_failed", "annot allocate memory"),
    wording("allocation_failed", "std::bad_alloc"),
    wording("allocation_failed", "MemoryError", r"(?<![A-Za-z])MemoryError"),
    wording("disk_full", "No space left on device"),
)

_TASKS = r"srun: error: (?P<node>\S+): tasks? (?P<ranks>[\d,-]+): "
_STEP = r"\*\*\* (?:STEP|JOB) (?P<job>[\d.+]+) ON (?P<node>\S+) CANCELLED AT \S+"
_EXITS = (
    wording("process_exit", "exit with status code", r"Process (?P<ranks>\d+) exit with status code (?P<code>-?\d+)"),
    wording(
        "process_exit",
        "exited on signal",
        r"process rank (?P<ranks>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<signal>\d+)",
    ),
    wording("job_aborted", "Terminating remaining workers", r"after failure of Process (?P<ranks>\d+)"),
    wording("job_aborted", "the job has been aborted"),
    wording("job_aborted", "one or more processes exited with non-zero"),
    wording("job_aborted", "MPI_ABORT was invoked", r"MPI_ABORT was invoked on rank (?P<ranks>\d+)"),
    wording("job_aborted", "Job step aborted"),
    wording("host_lost", "lost communication with a remote daemon"),
    wording("host_lost", "Node failure on", r"Node failure on (?P<node>[\w.-]+)"),
    wording("connection_lost", "peer process has unexpectedly disconnected"),
    wording("process_killed", "Killed", r"^Killed$|^\S+: line \d+: +\d+ Killed\b|" + _TASKS + "Killed"),
    wording("process_terminated", "Terminated", r"^Terminated$|" + _TASKS + "Terminated"),
    wording("process_exit", "Exited with exit code", _TASKS + r"Exited with exit code (?P<code>\d+)"),
    wording("job_cancelled", "DUE TO", _STEP + r" DUE TO (?P<reason>[A-Z ]+)"),
    wording("job_cancelled", "*** JOB", _STEP),
    wording("job_aborted", "CANCELLED AT", _STEP),
    wording("job_cancelled", "node was low on resource", r"The node was low on resource: (?P<reason>[\w-]+)"),
    wording("process_crashed", "Segmentation fault", r"(?:" + _TASKS + ")?Segmentation fault"),
    wording("process_crashed", "Bus error", r"^Bus error|Fatal Python error: Bus error|" + _TASKS + "Bus error"),
    wording("process_crashed", "Aborted", r"^Aborted(?: \(core dumped\))?$|" + _TASKS + "Aborted"),
    wording("process_crashed", "terminate called after throwing", r"an instance of '(?P<type>[^']*)'"),
)

_NUMBERS = (
    wording("loss_scale_exhausted", "loss scale already at minimum"),
    wording("loss_scale_exhausted", "Minimum loss scale reached"),
    wording(
        "loss_scale_overflow",
        "OVERFLOW!",
        r"OVERFLOW! (?:Rank (?P<rank>\d{1,7}) )?Skipping step\. Attempted loss scale: (?P<scale>[\d.]+)",
    ),
    wording("loss_scale_overflow", "Gradient overflow", r"Skipping step(?:.* to (?P<scale>[\d.e+-]+))?"),
    wording(
        "loss_nonfinite",
        "NaN",
        r"(?:[Ll]oss|[Gg]radients?|[Gg]rads?) (?:is|are|became|contains?) NaN|NaN (?:[Ll]oss|[Gg]radient|or Inf found)"
        r"|found NaN",
    ),
    wording("loss_nonfinite", "nan", r"[Ll]oss (?:is|became) nan|returned nan values in its \d+th output"),
)

PROCESS_WORDINGS: tuple[Wording, ...] = _MEMORY + _HOROVOD + _TORCH + _EXITS + _NUMBERS
