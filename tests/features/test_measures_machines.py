"""Measures from processes and hosts: means, states, memory, and which ranks a host's numbers belong to."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from features.measures.machines import GONE, STOPPED, measure_machines
from features.measures.table import Measures, RunMemory
from features.records import Host, Process, Step
from features.windows import Window

Cut = Callable[..., Window]
Remember = Callable[..., RunMemory]
Sample = Callable[..., Process]
Look = Callable[..., Host]

MEANS = {
    "cpu": "cpu_cores",
    "sleeps": "switches_voluntary_per_s",
    "preempted": "switches_involuntary_per_s",
    "workers_cpu": "workers_cpu_cores",
    "workers_read": "workers_read_bytes_per_s",
    "net_tx": "net_tx_bytes_per_s",
    "net_rx": "net_rx_bytes_per_s",
    "drops": "net_drops_per_s",
    "retransmits": "tcp_retransmits_per_s",
}
"""Measure -> the field of a process sample that it is the mean of."""
HOST_MEANS = {
    "host_cpu": "cpu_ratio",
    "steal": "steal_ratio",
    "iowait": "iowait_ratio",
    "load": "load1",
    "disk_busy": "disk_busy_ratio",
}


def measured(window: Window, memory: RunMemory) -> Measures:
    into = Measures(ranks=list(memory.ranks))
    measure_machines(window, memory, into)
    return into


def column(m: Measures, name: str) -> list[float]:
    return [float(v) for v in m.per_rank[name]]


def is_unknown(m: Measures, name: str) -> bool:
    return name not in m.per_rank or bool(np.isnan(m.per_rank[name]).all())


# --- processes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEANS)
def test_a_measure_of_a_process_is_a_mean(process: Sample, window: Cut, memory: Remember, name: str) -> None:
    said = [process(0, 0.1 * k, **{MEANS[name]: v}) for k, v in enumerate((1.0, None, 1.0, 4.0))]
    m = measured(window(*said, process(1, 0.1, **{MEANS[name]: 0.0})), memory(3))
    assert column(m, name) == pytest.approx([2.0, 0.0, math.nan], nan_ok=True)
    assert all(is_unknown(m, other) for other in MEANS if other != name)


@pytest.mark.parametrize("status", sorted(STOPPED))
def test_share_of_samples_that_saw_a_process_stopped(process: Sample, window: Cut, memory: Remember, status: str) -> None:
    said = [process(0, 0.1 * k, status=s) for k, s in enumerate((status, "running", None, status, "sleeping"))]
    m = measured(window(*said, process(1, 0.1, status="disk-sleep"), process(2, 0.1)), memory(4))
    assert column(m, "stopped") == pytest.approx([0.5, 0.0, math.nan, math.nan], nan_ok=True)
    assert column(m, "gone")[:2] == [0.0, 0.0]


@pytest.mark.parametrize("status", sorted(GONE))
def test_a_process_that_is_gone_is_remembered_until_it_lives_again(
    process: Sample, window: Cut, memory: Remember, status: str, t0: float
) -> None:
    run = memory(2)
    m = measured(window(process(0, 0.1, status="running"), process(0, 0.5, status=status), process(0, 0.8, status=status)), run)
    assert column(m, "gone") == pytest.approx([2 / 3, math.nan], nan_ok=True)
    assert run.gone == {0: t0 + 0.5}
    measured(window(start=1.0), run)
    assert run.gone == {0: t0 + 0.5}
    measured(window(process(0, 2.5, status="sleeping"), start=2.0), run)
    assert run.gone == {}


def test_a_stopped_process_is_not_gone(process: Sample, window: Cut, memory: Remember) -> None:
    run = memory(1)
    m = measured(window(process(0, 0.5, status="stopped")), run)
    assert (column(m, "stopped"), column(m, "gone"), run.gone) == ([1.0], [0.0], {})


# --- memory of the ranks ------------------------------------------------------------------------------------------------------


def test_resident_memory_is_the_newest_sample_and_grows_from_the_window_before(
    process: Sample, window: Cut, memory: Remember
) -> None:
    run = memory(2)
    first = measured(window(process(0, 0.1, rss_bytes=100.0), process(0, 0.9, rss_bytes=200.0)), run)
    assert column(first, "rss") == pytest.approx([200.0, math.nan], nan_ok=True)
    assert column(first, "rss_growth") == pytest.approx([1.0, math.nan], nan_ok=True)
    second = measured(window(process(0, 1.1, rss_bytes=300.0), process(0, 1.9, rss_bytes=800.0), start=1.0), run)
    assert column(second, "rss_growth")[0] == 2.0
    silent = measured(window(start=2.0), run)
    assert is_unknown(silent, "rss")
    assert is_unknown(silent, "rss_growth")
    back = measured(window(process(0, 3.5, rss_bytes=400.0), start=3.0), run)
    assert column(back, "rss_growth")[0] == -1.0


def test_the_script_is_believed_where_nobody_sampled(
    process: Sample, step: Callable[..., Step], window: Cut, memory: Remember
) -> None:
    said = [step(r, k, 0.1 * k, rss_bytes=100.0 * 2**k) for k in range(3) for r in (0, 1)]
    m = measured(window(*said, step(2, 0, 0.1), process(0, 0.5, rss_bytes=7.0), process(1, 0.5)), memory(4))
    assert column(m, "rss") == pytest.approx([7.0, 400.0, math.nan, math.nan], nan_ok=True)
    assert column(m, "rss_growth") == pytest.approx([0.0, 2.0, math.nan, math.nan], nan_ok=True)


def test_a_process_that_holds_nothing_is_not_measured(process: Sample, window: Cut, memory: Remember) -> None:
    """A zombie holds no memory: that is not a rank whose memory shrank to nothing."""
    run = memory(1)
    measured(window(process(0, 0.5, rss_bytes=100.0)), run)
    assert is_unknown(measured(window(process(0, 1.5, rss_bytes=0.0), start=1.0), run), "rss_growth")
    assert run.rss == {0: 100.0}


def test_memory_that_grows_from_nothing_has_no_ratio(process: Sample, window: Cut, memory: Remember) -> None:
    m = measured(window(process(0, 0.1, rss_bytes=0.0), process(0, 0.2, rss_bytes=50.0)), memory(1))
    assert column(m, "rss") == [50.0]
    assert is_unknown(m, "rss_growth")


# --- hosts --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOST_MEANS)
def test_a_measure_of_a_host_is_a_mean_and_belongs_to_its_ranks(host: Look, window: Cut, memory: Remember, name: str) -> None:
    run = memory(4, nodes={0: "alpha", 1: "beta", 2: "alpha"})
    said = [host(0.1 * k, "alpha", **{HOST_MEANS[name]: v}) for k, v in enumerate((0.1, None, 0.3))]
    m = measured(window(*said, host(0.1, "beta", **{HOST_MEANS[name]: 0.0})), run)
    assert column(m, name) == pytest.approx([0.2, 0.0, 0.2, math.nan], nan_ok=True)
    others = [other for other in (*HOST_MEANS, "available", "swap", "foreign_cpu") if other != name]
    assert all(is_unknown(m, other) for other in others)


def test_the_one_host_of_a_run_is_that_of_all_ranks(host: Look, window: Cut, memory: Remember) -> None:
    """Whatever the ranks call it: containers have names of their own."""
    run = memory(3, nodes={0: "container-7", 1: "localhost"})
    assert column(measured(window(host(0.5, "alpha", load1=2.0)), run), "load") == [2.0, 2.0, 2.0]


def test_a_host_whose_samples_stop_is_not_that_of_the_other_hosts(host: Look, window: Cut, memory: Remember) -> None:
    """Its agent died; the samples of the host that is left are still those of its own ranks only."""
    run = memory(2, nodes={0: "alpha", 1: "beta"})
    measured(window(host(0.1, "alpha", load1=1.0), host(0.2, "beta", load1=2.0)), run)
    m = measured(window(host(1.1, "beta", load1=8.0), start=1.0), run)
    assert column(m, "load") == pytest.approx([math.nan, 8.0], nan_ok=True)


def test_available_memory_is_the_lowest_share_and_swap_the_highest(host: Look, window: Cut, memory: Remember) -> None:
    said = [(10.0, 30.0, 0.0), (30.0, 10.0, 4.0), (20.0, 20.0, 2.0)]
    m = measured(
        window(*(host(0.1, memory_used_bytes=u, memory_available_bytes=a, swap_used_bytes=s) for u, a, s in said)), memory(1)
    )
    assert column(m, "available") == [0.25]
    assert column(m, "swap") == [0.1]


@pytest.mark.parametrize(
    "said",
    [
        {"memory_used_bytes": 1.0, "swap_used_bytes": 1.0},
        {"memory_available_bytes": 1.0, "swap_used_bytes": 1.0},
        {"memory_used_bytes": 0.0, "memory_available_bytes": 0.0, "swap_used_bytes": 0.0},
    ],
)
def test_memory_of_which_the_whole_is_unknown_has_no_shares(
    host: Look, window: Cut, memory: Remember, said: dict[str, float]
) -> None:
    m = measured(window(host(0.1, **said)), memory(1))
    assert is_unknown(m, "available")
    assert is_unknown(m, "swap")


def test_foreign_cpu_is_what_the_job_does_not_use(host: Look, process: Sample, window: Cut, memory: Remember) -> None:
    run = memory(3, nodes={0: "alpha", 1: "alpha", 2: "beta"})
    samples = [
        process(0, 0.1, cpu_cores=1.0, workers_cpu_cores=0.5),
        process(1, 0.1, cpu_cores=0.5),
        process(2, 0.1, cpu_cores=2.0),
    ]
    hosts = [host(0.1, "alpha", cpus=8, cpu_ratio=0.5), host(0.1, "beta", cpus=2, cpu_ratio=0.9)]
    m = measured(window(*samples, *hosts), run)
    assert column(m, "foreign_cpu") == pytest.approx([0.5 - 2.0 / 8, 0.5 - 2.0 / 8, 0.0])


@pytest.mark.parametrize("missing", ["cpus", "cpu_ratio", "process"])
def test_foreign_cpu_is_unknown_without_any_of_its_parts(
    host: Look, process: Sample, window: Cut, memory: Remember, missing: str
) -> None:
    said = {name: value for name, value in {"cpus": 4, "cpu_ratio": 0.5}.items() if name != missing}
    samples = [] if missing == "process" else [process(0, 0.1, cpu_cores=1.0)]
    m = measured(window(host(0.1, **said), *samples), memory(1))
    assert is_unknown(m, "foreign_cpu")


def test_a_window_without_samples_knows_nothing(window: Cut, memory: Remember) -> None:
    m = measured(window(), memory(2))
    assert all(np.isnan(v).all() for v in m.per_rank.values())
    assert not set(m.per_rank) & {*HOST_MEANS, "available", "swap", "foreign_cpu"}
