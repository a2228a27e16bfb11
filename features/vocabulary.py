"""The vocabulary of features: every number a model may see, with its unit, kind, meaning and family.

All features are built so that 0 means "as usual": log-ratios to the run's own past, differences to peers in units of a step,
shares, and rates that are zero in health. A feature that cannot be computed is NaN, never 0.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

Channel = Literal["pace", "numbers", "memory"]
"""What an anomaly of the feature is about: how fast the run goes, what it computes, or what it holds in memory."""


Side = Literal["high", "low", "both"]
"""Which deviations can mean trouble. A step that became faster is no fault, so its feature only counts when it is high."""


class Feature(NamedTuple):
    """One column. `floor` is the smallest spread that counts as noise: differences below it are never unusual."""

    name: str
    unit: str
    family: str
    channel: Channel
    floor: float
    side: Side
    meaning: str


def _f(name: str, unit: str, family: str, floor: float, meaning: str, channel: Channel = "pace") -> Feature:
    side: Side = "low" if name in _LOW else "both" if name in _BOTH else "high"
    return Feature(name, unit, family, channel, floor, side, meaning)


_LOW = frozenset({"sleeps_vs_peers", "workers_read_vs_past", "workers_cpu_vs_past", "net_vs_past"})
_BOTH = frozenset(
    {"sync_vs_peers", "batch_vs_peers", "cpu_vs_past", "cpu_vs_peers", "preempted_vs_peers", "host_cpu_vs_past"}
    | {"loss_vs_peers"}
)


_PHASES = (
    ("data", "waiting for input"),
    ("forward", "the forward pass"),
    ("backward", "the backward pass"),
    ("sync", "waiting for collectives"),
    ("optimizer", "the optimizer"),
)

FEATURES: tuple[Feature, ...] = (
    # steps, from logs
    _f("step_vs_past", "log2 ratio", "step", 0.1, "median step time against the run's own healthy past"),
    _f("step_max_vs_past", "log2 ratio", "step", 0.3, "longest step of the window against the usual step time"),
    *(
        _f(f"{p}_vs_past", "steps", "step", 0.05, f"change of mean time in {m}, as a share of the usual step")
        for p, m in _PHASES
    ),
    *(_f(f"{p}_vs_peers", "steps", "step", 0.05, f"{m}: this rank less the median rank, in usual steps") for p, m in _PHASES),
    _f("local_vs_past", "steps", "step", 0.05, "change of all time outside collectives, as a share of the usual step"),
    _f(
        "local_vs_peers",
        "steps",
        "step",
        0.05,
        "time outside collectives: this rank less the median rank, in usual steps",
    ),
    _f("local_vs_usual", "deviations", "step", 1.0, "distance to the peers beyond this rank's usual one, in its own spreads"),
    _f("step_vs_usual", "deviations", "step", 1.0, "step time beyond the run's usual one, in the run's own spreads"),
    _f(
        "finish_vs_past",
        "steps",
        "step",
        0.05,
        "when this rank leaves the collectives, against the median rank and its past",
    ),
    _f("batch_vs_peers", "log2 ratio", "step", 0.05, "batch size against the median rank"),
    _f("silence", "log2 steps", "progress", 0.5, "time since any rank finished a step, beyond the usual step"),
    _f("silence_vs_peers", "log2 steps", "progress", 0.5, "this rank has not finished a step while others have"),
    _f(
        "pause_share",
        "ratio",
        "progress",
        0.02,
        "share of the time since the last pause spent in validation or checkpoint",
    ),
    # the coordinator's timeline
    _f("period_vs_past", "log2 ratio", "timeline", 0.1, "time between two uses of one tensor against the past"),
    _f(
        "negotiate_vs_past",
        "steps",
        "timeline",
        0.05,
        "median wait for the last rank, change as a share of the usual step",
    ),
    _f("negotiate_max_vs_past", "log2 steps", "timeline", 0.3, "longest wait for the last rank, in usual steps"),
    _f("transfer_vs_past", "log2 ratio", "timeline", 0.2, "time of a collective of the same size against the past"),
    _f(
        "transfer_max_vs_past",
        "log2 ratio",
        "timeline",
        0.5,
        "slowest collective of the window against the same size's past",
    ),
    _f("cycle_gap", "log2 ratio", "timeline", 0.5, "longest pause of the background cycle against the usual cycle"),
    _f(
        "cycle_vs_past",
        "log2 ratio",
        "timeline",
        0.2,
        "median background cycle, a round trip to all ranks, against the past",
    ),
    _f(
        "cycle_share",
        "ratio",
        "timeline",
        0.05,
        "background cycle time as a share of the step: near 1 the step sits on the cycle",
    ),
    _f("unfused_share", "ratio", "timeline", 0.1, "share of small tensors (below 64 KiB) that travelled alone"),
    _f("quiet", "log2 steps", "timeline", 0.5, "time since a collective ended, beyond the usual step"),
    _f("last_share", "ratio", "ticks", 0.1, "how often this rank was the last to be ready, beyond its fair share"),
    _f("lateness", "steps", "ticks", 0.05, "how long after the median rank this one was ready, in usual steps"),
    # processes of the ranks
    _f("cpu_vs_past", "cores", "process", 0.05, "CPU of the rank's process, change against the past"),
    _f("cpu_vs_peers", "cores", "process", 0.05, "CPU of the rank's process less the median rank's"),
    _f("sleeps_vs_peers", "log2 ratio", "process", 0.3, "voluntary context switches against the median rank"),
    _f("preempted_vs_peers", "log2 ratio", "process", 0.3, "involuntary context switches against the median rank"),
    _f("stopped", "ratio", "process", 0.05, "share of samples in which the process was stopped or traced"),
    _f("gone", "ratio", "process", 0.05, "share of samples in which the process was gone"),
    _f("workers_cpu_vs_past", "log2 ratio", "process", 0.3, "CPU of the data-loader workers against the past"),
    _f("workers_read_vs_past", "log2 ratio", "process", 0.3, "bytes read by the data-loader workers against the past"),
    # network
    _f("net_vs_past", "log2 ratio", "net", 0.3, "bytes sent by the rank's host against the past"),
    _f("retransmits_vs_past", "log2 ratio", "net", 1.0, "TCP segments sent again per second against the past"),
    _f("retransmits_vs_peers", "log2 ratio", "net", 1.0, "TCP segments sent again per second against the median rank"),
    _f(
        "received_surplus",
        "ratio",
        "net",
        0.005,
        "bytes received beyond the median rank: lost and repeated at this host",
    ),
    _f("drops", "log2(1+rate)", "net", 0.2, "packets dropped per second at the rank's interfaces"),
    # host
    _f("host_cpu_vs_past", "ratio", "host", 0.05, "busy share of the host's CPUs, change against the past"),
    _f("foreign_cpu", "ratio", "host", 0.05, "share of the host's CPUs used by others than this job"),
    _f("steal", "ratio", "host", 0.02, "CPU time taken by the hypervisor"),
    _f("iowait", "ratio", "host", 0.03, "CPU time idle while waiting for a disk"),
    _f("load_vs_past", "log2 ratio", "host", 0.3, "run queue against the past"),
    _f("disk_busy_vs_past", "ratio", "host", 0.1, "share of time the disk was busy, change against the past"),
    # what the ranks compute
    _f("loss_vs_peers", "log2 ratio", "numbers", 0.15, "loss against the median rank", "numbers"),
    _f("loss_vs_past", "log2 ratio", "numbers", 0.3, "loss against the run's best healthy level", "numbers"),
    _f("grad_vs_past", "log2 ratio", "numbers", 1.0, "gradient norm against the healthy past", "numbers"),
    _f("nonfinite", "ratio", "numbers", 0.01, "share of steps whose loss is NaN or infinite", "numbers"),
    _f(
        "param_desync",
        "log10 ratio",
        "numbers",
        0.2,
        "weights: relative distance from the median rank above 1e-6",
        "numbers",
    ),
    _f(
        "grad_desync",
        "log10 ratio",
        "numbers",
        0.2,
        "gradients: relative distance from the median rank above 1e-4",
        "numbers",
    ),
    # memory
    _f(
        "rss_vs_past",
        "log2 ratio",
        "memory",
        0.03,
        "resident memory of the rank against its early healthy level",
        "memory",
    ),
    _f("rss_vs_peers", "log2 ratio", "memory", 0.05, "resident memory growth against the median rank's", "memory"),
    _f("rss_growth", "log2 ratio", "memory", 0.02, "growth of resident memory within the window", "memory"),
    _f(
        "memory_low",
        "ratio",
        "memory",
        0.05,
        "how much less of the host's memory is available than in the past",
        "memory",
    ),
    _f("swap_vs_past", "ratio", "memory", 0.01, "swap in use, change as a share of memory", "memory"),
)

NAMES: tuple[str, ...] = tuple(f.name for f in FEATURES)
INDEX: dict[str, int] = {name: i for i, name in enumerate(NAMES)}


def schema_id() -> str:
    """Identity of the vocabulary: a bundle trained on another one is refused."""
    text = "\n".join(f"{f.name}\t{f.unit}\t{f.side}" for f in FEATURES)
    return "features-" + hashlib.sha256(text.encode()).hexdigest()[:16]
