"""The telemetry records: what every parser, agent and topic speaks.

Times are seconds since the Unix epoch (UTC) as float unless the name says otherwise; durations end in `_s`; `None` means
"the source does not say", never zero. `source` is "file:line" or a metric name. Each record is a tagged msgspec struct, so a
batch of them is one JSON array on the wire and decodes without looking anything up.
"""

from __future__ import annotations

import msgspec


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """What is known of the job itself. Several may come (launcher, each rank's log); later ones add to earlier ones."""

    ts: float
    world_size: int | None = None
    nodes: dict[int, str] = {}  # rank -> node name
    settings: dict[str, str] = {}  # HOROVOD_*, NCCL_*, model, batch, ... as the run states them
    source: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """One training step of one rank; `ts` is its end. The phases need not sum to `duration_s`."""

    ts: float
    rank: int
    step: int
    duration_s: float | None = None
    data_s: float | None = None  # waiting for input
    forward_s: float | None = None
    backward_s: float | None = None
    sync_s: float | None = None  # waiting for collectives
    optimizer_s: float | None = None
    epoch: int | None = None
    batch: int | None = None
    loss: float | None = None  # NaN and infinities are values here
    grad_norm: float | None = None
    param_norm: float | None = None
    rss_bytes: float | None = None
    source: str = ""


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag="phase"):
    """Something other than a step that a run does on purpose; `ts` is its end.

    `kind`: start, validation, checkpoint, exhausted (this rank's data ended), join, done.
    """

    ts: float
    kind: str
    rank: int | None = None
    duration_s: float | None = None
    step: int | None = None
    epoch: int | None = None
    source: str = ""


class Ready(msgspec.Struct, frozen=True, array_like=True):
    """A rank announced a tensor `offset_s` after the negotiation opened."""

    rank: int
    offset_s: float


class Collective(msgspec.Struct, frozen=True, kw_only=True, tag="collective"):
    """One collective on one tensor (or one fused group) as the coordinator saw it; `ts` is when its negotiation opened.

    `negotiate_s`: first rank ready until all ranks ready. `execute_s`: the operation itself. Both are None while open.
    `ready`: arrival of each rank, where the source tells it. `fused`: how many tensors shared the same operation.
    """

    ts: float
    tensor: str
    op: str  # allreduce, broadcast, allgather, alltoall, reducescatter, join, barrier
    negotiate_s: float | None = None
    execute_s: float | None = None
    transfer_s: float | None = None  # the part inside NCCL, MPI or Gloo
    end: float | None = None
    bytes: int | None = None
    transport: str | None = None  # gloo, nccl, mpi, ccl: the library inside
    fused: int = 1
    ready: tuple[Ready, ...] = ()
    rank: int | None = None  # whose view, where the trace is one rank's own
    source: str = ""

    def view(self) -> str:
        """The tensor as one observer sees it: traces of several ranks tell of the same collective once each."""
        return self.tensor if self.rank is None else f"{self.rank} {self.tensor}"


class Cycles(msgspec.Struct, frozen=True, kw_only=True, tag="cycles"):
    """Background cycles of the coordinator that began within one second of event time; `ts` is the last one's start.

    `max_gap_s` is the longest time between two cycles whose later one lies in this second, the one before it included.
    """

    ts: float
    count: int
    median_gap_s: float | None = None
    max_gap_s: float | None = None
    source: str = ""


class Host(msgspec.Struct, frozen=True, kw_only=True, tag="host"):
    """State of one node over the `interval_s` before `ts`. Ratios are 0..1 of the whole machine."""

    ts: float
    node: str
    interval_s: float | None = None
    cpus: int | None = None
    cpu_ratio: float | None = None
    system_ratio: float | None = None
    iowait_ratio: float | None = None
    steal_ratio: float | None = None
    load1: float | None = None
    memory_used_bytes: float | None = None
    memory_available_bytes: float | None = None
    swap_used_bytes: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    disk_busy_ratio: float | None = None
    net_tx_bytes_per_s: float | None = None
    net_rx_bytes_per_s: float | None = None
    net_drops_per_s: float | None = None
    source: str = ""


class Process(msgspec.Struct, frozen=True, kw_only=True, tag="process"):
    """State of one rank's process over the `interval_s` before `ts`. CPU is in cores (1.0 = one core busy)."""

    ts: float
    rank: int
    node: str | None = None
    pid: int | None = None
    status: str | None = None  # running, sleeping, disk-sleep, stopped, zombie, gone
    interval_s: float | None = None
    cpu_cores: float | None = None
    rss_bytes: float | None = None
    threads: int | None = None
    switches_voluntary_per_s: float | None = None
    switches_involuntary_per_s: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    workers: int | None = None  # child processes: data-loader workers
    workers_cpu_cores: float | None = None
    workers_rss_bytes: float | None = None
    workers_read_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None  # of the rank's network namespace
    net_rx_bytes_per_s: float | None = None
    net_drops_per_s: float | None = None
    tcp_out_segments_per_s: float | None = None
    tcp_retransmits_per_s: float | None = None
    source: str = ""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, tag="gpu"):
    """One sample of one GPU. `gpu` is its one identity (UUID or PCI id where known)."""

    ts: float
    gpu: str
    node: str | None = None
    rank: int | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    source: str = ""


class Net(msgspec.Struct, frozen=True, kw_only=True, tag="net"):
    """One network device (and port) of one node over the `interval_s` before `ts`; rates are per second.

    `errors`: counters that only faults or congestion move, by their own names (symbol_error, port_xmit_wait, ...), per second.
    """

    ts: float
    node: str
    device: str  # eth0, mlx5_1/1, ...
    interval_s: float | None = None
    rx_bytes_per_s: float | None = None
    tx_bytes_per_s: float | None = None
    drops_per_s: float | None = None
    errors: dict[str, float] = {}
    is_up: bool | None = None
    source: str = ""


class Log(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """One recognised message. `event` is a name from EVENTS in features/events.py; `ranks` are those it speaks about.

    `rank` is who wrote it. `ts` is None where the message carries no time: its neighbours' time is then used on loading.
    """

    ts: float | None
    event: str
    text: str
    rank: int | None = None
    node: str | None = None
    ranks: tuple[int, ...] = ()
    fields: dict[str, str] = {}
    source: str = ""


Record = RunInfo | Step | Phase | Collective | Cycles | Host | Process | Gpu | Net | Log
