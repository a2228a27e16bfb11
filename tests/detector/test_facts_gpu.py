"""Facts of GPUs: what is told, what is not, when, and how surely."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.catalog import load_catalog
from detector.fact import Fact
from detector.facts import FactFinder
from detector.facts_gpu import ENDS, GpuFacts
from detector.gpu_conditions import HOLDS
from features.measures.table import RunMemory
from features.records import Gpu, Log, Record
from features.rundir import load_run
from features.windows import order_key, windows

GIB = 2.0**30
Change = Callable[[int], dict[str, Any]]


def facts(records: Iterable[Record], length_s: float = 5.0) -> list[Fact]:
    """Facts of a whole run, window by window."""
    finder, memory = GpuFacts(), RunMemory()
    return [f for w in windows(sorted(records, key=order_key), length_s) for f in finder.of(w, memory)]


def told(found: list[Fact]) -> list[tuple[str, str, bool]]:
    """Words, roles and whether they are proof, repeats left out."""
    return list(dict.fromkeys((f.name, f.role, f.hard) for f in found))


def hard(found: list[Fact]) -> list[Fact]:
    """Only those that open an incident."""
    return [f for f in found if f.hard]


def node(seconds: int = 40, gpus: int = 4, **changes: Change) -> list[Gpu]:
    """A busy node sampled once a second; `gpu2=...` gives the values of GPU 2 that differ at second t."""
    usual = {"utilization_ratio": 0.99, "power_w": 390.0, "sm_clock_hz": 1980e6, "temperature_c": 60.0, "node": "n1"}
    return [
        Gpu(ts=100.0 + t, gpu=f"n1/{g}", source=f"gpu.csv:{t * gpus + g}", **(usual | change))
        for t in range(seconds)
        for g in range(gpus)
        if (change := changes[f"gpu{g}"](t) if f"gpu{g}" in changes else {}) is not None
    ]


def after(start: int, **values: Any) -> Change:
    """These values from second `start` on."""
    return lambda t: values if t >= start else {}


def test_an_even_node_and_a_hot_but_equally_fast_gpu_are_no_facts() -> None:
    assert facts(node(gpu1=after(5, temperature_c=88.0, power_w=430.0))) == []


def test_the_software_power_cap_at_full_load_is_how_gpus_run() -> None:
    capped: Change = lambda t: {"throttle": ("sw_power_cap",), "sm_clock_hz": 1800e6, "power_limit_w": 400.0}  # noqa: E731
    assert facts(node(gpu0=capped, gpu1=capped, gpu2=capped, gpu3=capped)) == []
    assert facts(node(gpus=1, gpu0=capped)) == []


def test_one_gpu_that_slows_down_at_full_use() -> None:
    found = facts(node(gpu2=after(12, sm_clock_hz=675e6, power_w=118.0, temperature_c=91.0, rank=6)))
    first, *rest = found
    assert (first.name, first.role, first.hard, first.channel, first.kind) == (
        "gpu_throttled",
        "root",
        True,
        "pace",
        "telemetry",
    )
    assert (first.ts, first.ranks, first.node) == (112.0, (6,), "n1")
    assert first.text == "GPU 2 of n1: SM clock 675 MHz beside 1980 MHz of its busy peers, 99% used, 118 W, 91 C"
    assert {(f.name, f.role, f.hard, f.text) for f in rest} == {("gpu_throttled", "context", False, first.text)}
    assert [f.ts for f in rest] == sorted(f.ts for f in rest)
    assert rest[-1].ts >= 135.0  # it is told for as long as it lasts


@pytest.mark.parametrize("length_s", [1.0, 7.0, 300.0])
def test_the_length_of_the_windows_changes_neither_time_nor_number_of_the_proofs(length_s: float) -> None:
    (fact,) = hard(facts(node(gpu2=after(12, sm_clock_hz=675e6)), length_s))
    assert (fact.name, fact.ts) == ("gpu_throttled", 112.0)


def test_a_short_dip_is_nothing_and_a_condition_that_comes_back_is_told_again() -> None:
    dip: Change = lambda t: {"sm_clock_hz": 675e6} if t % 10 < HOLDS - 1 else {}  # noqa: E731
    assert facts(node(gpu2=dip)) == []
    twice: Change = lambda t: {"sm_clock_hz": 675e6} if 5 <= t < 10 or t >= 10 + ENDS else {}  # noqa: E731
    assert [f.ts for f in hard(facts(node(gpu2=twice)))] == [105.0, 110.0 + ENDS]


def test_low_clocks_count_only_at_work() -> None:
    assert facts(node(gpu2=lambda t: {"sm_clock_hz": 210e6, "utilization_ratio": 0.3})) == []


def test_models_are_told_apart_by_their_memory_and_strangers_are_not_accused() -> None:
    small = node(gpu2=lambda t: {"sm_clock_hz": 900e6, "memory_total_bytes": 16 * GIB, "memory_used_bytes": GIB})
    assert facts(small) == []
    unknown = facts(node(gpu2=lambda t: {"sm_clock_hz": 900e6}))
    assert told(unknown) == [("gpu_throttled", "context", False)]  # slow from the start: perhaps another model
    total = {"memory_total_bytes": 80 * GIB, "memory_used_bytes": GIB}
    same = node(
        gpu0=lambda t: total, gpu1=lambda t: total, gpu2=lambda t: total | {"sm_clock_hz": 900e6}, gpu3=lambda t: total
    )  # fmt: skip
    assert [f.ts for f in hard(facts(same))] == [100.0]


def test_a_power_limit_below_the_peers() -> None:
    limit: Change = lambda t: {"power_limit_w": 400.0}  # noqa: E731
    lowered: Change = lambda t: {"power_limit_w": 250.0, "power_w": 249.0} | ({"sm_clock_hz": 1750e6} if t > 10 else {})  # noqa: E731
    (fact,) = hard(facts(node(gpu0=limit, gpu1=limit, gpu2=lowered, gpu3=limit)))
    assert "power limit 250 W, the peers' 400 W" in fact.text


@pytest.mark.parametrize(
    "reason", ["hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown", "hw_power_brake", "thermal_violation"]
)
def test_reasons_speak_for_a_gpu_without_peers(reason: str) -> None:
    slowed = node(gpus=1, gpu0=after(9, throttle=("sw_power_cap", reason), sm_clock_hz=1500e6))
    (fact,) = hard(facts(slowed))
    assert (fact.name, fact.ts) == ("gpu_throttled", 109.0)
    assert f"slowed by {reason}" in fact.text


def test_what_explained_at_first_may_be_proved_later() -> None:
    slow: Change = lambda t: {"sm_clock_hz": 900e6} | ({"throttle": ("hw_power_brake",)} if t > 20 else {"throttle": ()})  # noqa: E731
    slow_and_slower: Change = lambda t: slow(t) | ({"sm_clock_hz": 600e6} if t > 20 else {})  # noqa: E731
    first, *rest = facts(node(gpu2=slow_and_slower))
    assert (first.role, first.ts) == ("context", 100.0)
    assert [(f.role, f.ts) for f in rest if f.hard] == [("root", 100.0)]


def test_a_reason_without_effect_and_one_at_rest_are_not_proof() -> None:
    assert facts(node(gpu1=after(5, throttle=("sw_thermal_slowdown",)))) == []
    assert hard(facts(node(gpus=1, gpu0=after(5, throttle=("sw_thermal_slowdown",))))) == []
    at_rest = node(gpus=1, gpu0=after(5, throttle=("gpu_idle", "hw_slowdown"), utilization_ratio=0.0))
    assert "gpu_throttled" not in {f.name for f in facts(at_rest)}


def test_one_look_is_enough_where_hardware_slows_a_gpu_that_draws_little() -> None:
    sample = Gpu(ts=50.0, gpu="GPU-1", power_w=150.0, power_limit_w=400.0, throttle=("hw_thermal_slowdown", "hw_slowdown"))
    assert told(facts([sample])) == [("gpu_throttled", "root", True)]


def test_kernels_that_wait_use_the_gpu_at_little_power() -> None:
    found = facts(node(gpu0=after(20, power_w=150.0), gpu1=after(20, power_w=150.0)))
    assert told(found) == [("gpu_power_low_util_high", "context", False)]
    assert {f.text.partition(" is")[0] for f in found} == {"GPU 0 of n1", "GPU 1 of n1"}
    everyone = {f"gpu{g}": after(20, power_w=150.0) for g in range(4)}
    assert len({f.text for f in facts(node(**everyone))}) == 4  # all of them, against their own past
    busy_all_along = {f"gpu{g}": (lambda t: {"power_w": 150.0}) for g in range(4)}
    assert facts(node(**busy_all_along)) == []


def test_nearly_full_memory_explains_and_proves_nothing() -> None:
    full = {"memory_used_bytes": 79.5 * GIB, "memory_total_bytes": 80 * GIB}
    found = facts(node(gpu1=after(10, **full)))
    assert told(found) == [("gpu_memory_full", "context", False)]
    assert {f.channel for f in found} == {"memory"}
    assert {f.text for f in found} == {"GPU 1 of n1: 79.5 of 80.0 GiB of its memory are in use"}
    assert facts(node(gpu1=after(10, memory_used_bytes=77 * GIB, memory_total_bytes=80 * GIB))) == []


def test_growing_errors_are_proof_and_old_ones_are_history() -> None:
    grown: Change = lambda t: {"ecc_uncorrected": 3 if t < 20 else 5}  # noqa: E731
    (fact,) = facts(node(gpu3=grown))
    assert (fact.name, fact.role, fact.hard, fact.ts) == ("gpu_ecc", "root", True, 120.0)
    assert fact.text == "GPU 3 of n1: uncorrected memory errors and remapped rows rose from 3 to 5"
    reset: Change = lambda t: {"ecc_uncorrected": 9 if t < 20 else 0}  # noqa: E731
    assert facts(node(gpu3=reset)) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (79, ["log_xid", "log_xid_lost"]),
        (48, ["log_xid", "log_xid_memory"]),
        (31, ["log_xid", "log_xid_application"]),
        (74, ["log_xid", "log_xid_link"]),
        (45, []),
        (38, ["log_xid"]),
    ],
)
def test_an_xid_that_was_not_there_before(code: int, words: list[str]) -> None:
    found = facts(node(gpu1=lambda t: {"xid": 0 if t < 20 else code}))
    assert sorted(f.name for f in found) == words
    assert {(f.role, f.hard, f.ts) for f in found} <= {("root", True, 120.0)}
    late = facts(node(gpu1=after(20, xid=code)))  # the series begins with the first Xid
    assert sorted(f.name for f in late) == words


def test_an_xid_that_stays_is_an_old_one() -> None:
    assert facts(node(gpu1=lambda t: {"xid": 43})) == []
    assert facts([Gpu(ts=1.0, gpu="GPU-1", xid=79)]) == []


def missing(samples: list[Gpu], gpu: str, since: float, until: float = 1e9) -> list[Gpu]:
    """Without the samples of one GPU in a stretch of time."""
    return [s for s in samples if s.gpu != gpu or not since <= s.ts < until]


def test_a_gpu_that_is_not_told_of_any_more_while_others_are() -> None:
    (fact,) = facts(missing(node(), "n1/1", 120.0))
    assert (fact.name, fact.role, fact.hard, fact.ts) == ("gpu_lost", "root", True, 119.0)
    assert "GPU 1 of n1" in fact.text
    twice = missing(missing(node(60), "n1/1", 110.0, 120.0), "n1/1", 140.0)
    assert [f.ts for f in facts(twice)] == [109.0, 139.0]


def test_the_end_of_a_file_and_of_another_source_loses_nobody() -> None:
    cut = node()[:-2]
    assert facts(cut) == []
    other = [Gpu(ts=100.0 + t, gpu="n2/0", node="n2", utilization_ratio=0.99, source=f"other.csv:{t}") for t in range(20)]
    assert facts([*node(), *other]) == []
    assert facts(missing(node(), "n1/1", 100.0, 138.0)) == []  # seldom seen: nothing to miss


def test_a_loss_that_a_message_tells_is_told_once() -> None:
    message = Log(ts=120.0, event="gpu_lost", text="GPU 1 of n1 does not answer any more", fields={"gpu": "n1/1"})
    records = [*missing(node(), "n1/1", 120.0), message]
    assert facts(records) == []
    finder, memory = FactFinder(), RunMemory()
    found = [f for w in windows(sorted(records, key=order_key), 5.0) for f in finder.of(w, memory)]
    assert told(found) == [("gpu_lost", "root", True)]


def test_messages_that_samples_gave_rise_to() -> None:
    def one(event: str, **fields: str) -> Fact:
        (fact,) = facts([Log(ts=5.0, event=event, text="x", rank=3, fields=fields)])
        return fact

    failed = one("gpu_remap_failed", old="false")
    assert (failed.name, failed.role, failed.hard, failed.ranks) == ("gpu_ecc", "root", True, (3,))
    old = one("gpu_remap_failed", old="true")
    assert (old.role, old.hard) == ("context", False)
    shared = one("gpu_contended")
    assert (shared.name, shared.role, shared.hard) == ("gpu_contended", "root", False)


def test_little_use_of_all_and_of_one() -> None:
    everyone = {f"gpu{g}": (lambda t: {"utilization_ratio": 0.1}) for g in range(4)}
    assert told(facts(node(**everyone))) == [("gpu_util_low", "context", False)]
    found = facts(node(gpu2=after(10, utilization_ratio=0.0, power_w=90.0)))
    assert told(found) == [("gpu_util_low_one", "context", False)]
    assert facts(node(gpu2=lambda t: {"utilization_ratio": 0.0})) == []  # never was part of the job


def test_values_that_come_in_parts_are_put_together() -> None:
    parts = []
    for sample in node(gpu2=after(12, sm_clock_hz=675e6)):
        parts.append(Gpu(ts=sample.ts, gpu=sample.gpu, node="n1", utilization_ratio=sample.utilization_ratio, source="a:1"))
        parts.append(Gpu(ts=sample.ts, gpu=sample.gpu, node="n1", sm_clock_hz=sample.sm_clock_hz, source="b:1"))
    assert [f.ts for f in hard(facts(parts))] == [112.0]


def test_another_source_that_says_less_or_counts_otherwise_changes_nothing() -> None:
    slow = node(gpu2=after(12, sm_clock_hz=675e6))
    less = [Gpu(ts=s.ts + 0.4, gpu=s.gpu, utilization_ratio=0.99, source="b.csv:1") for s in slow]
    assert [f.ts for f in hard(facts([*slow, *less]))] == [112.0]
    since_start = [Gpu(ts=s.ts, gpu=s.gpu, ecc_uncorrected=0, xid=0, source="a:1") for s in node()]
    for_ever = [Gpu(ts=s.ts + 0.4, gpu=s.gpu, ecc_uncorrected=7, source="b:1") for s in node()]
    assert facts([*since_start, *for_ever]) == []


def test_every_word_is_in_the_vocabulary() -> None:
    ours = Path(__file__).resolve().parents[2] / "detector"
    source = "".join((ours / name).read_text() for name in ("facts_gpu.py", "gpu_conditions.py", "xids.py"))
    words = set(re.findall(r'"((?:gpu|log)_[a-z0-9_]+)"', source)) - {"gpu_idle"}
    assert len(words) >= 8
    assert words <= set(load_catalog().vocabulary)


def test_files_of_tools_become_facts(tmp_path: Path) -> None:
    rows = ["#Date       Time        gpu    pwr     sm   pclk", "#YYYYMMDD   HH:MM:SS    Idx      W      %    MHz"]
    for t in range(20):
        for g in range(3):
            slow = g == 1 and t >= 8
            rows.append(f" 20260504   12:00:{t:02d}      {g}    {110 if slow else 380}     99   {600 if slow else 1800}")
    (tmp_path / "dmon.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "smi.csv").write_text(
        "timestamp, uuid, utilization.gpu [%]\n"
        + "".join(f"2026/05/04 12:00:{t:02d}.000, GPU-{g}aa, 97 %\n" for t in range(10) for g in range(2))
        + "2026/05/04 12:00:10.000, GPU-1aa, [GPU is lost]\n"
    )
    finder, memory = FactFinder(), RunMemory()
    found = [f for w in windows(load_run(tmp_path).records, 2.0) for f in finder.of(w, memory)]
    assert [(f.name, f.source) for f in hard(found)] == [("gpu_throttled", "dmon.txt:34"), ("gpu_lost", "smi.csv:22")]


VALUE = st.none() | st.floats(0, 1e12) | st.sampled_from([0.0, 1.0, float("nan")])


@given(
    st.lists(
        st.builds(
            Gpu,
            ts=st.integers(0, 30).map(float),
            gpu=st.sampled_from("abc"),
            utilization_ratio=st.none() | st.sampled_from([0.0, 0.95, 1.0]),
            memory_used_bytes=VALUE,
            memory_total_bytes=VALUE,
            power_w=VALUE,
            power_limit_w=VALUE,
            sm_clock_hz=VALUE,
            throttle=st.none() | st.just(()) | st.just(("hw_slowdown",)),
            ecc_uncorrected=st.none() | st.integers(0, 3),
            xid=st.none() | st.integers(0, 99),
            source=st.sampled_from(["x:1", "y:2", ""]),
        ),
        max_size=60,
    ),
    st.randoms(use_true_random=False),
)
def test_any_samples_in_any_order_of_arrival(samples: list[Gpu], chance: Any) -> None:
    shuffled = list(samples)
    chance.shuffle(shuffled)
    assert facts(samples) == facts(shuffled)
