"""Features worked out by hand from measures, a past and a rhythm; and what becomes of them when one of these is missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from features.baseline import Baseline
from features.compare import Comparison, features_of, less_median, log2_ratio
from features.measures.steps import PHASES
from features.measures.table import Measures, RunMemory, Vector
from features.vocabulary import FEATURES, NAMES

RANKS = [0, 1, 2]
SAME = [1.0, 1.0, 1.0]
NAN = math.nan

PAST_RUN = {"step": 0.2, "step_max": 0.3, "period": 0.25, "negotiate": 0.02, "cycle": 0.005, "cycle_max": 0.01, "loss": 1.0,
            "grad": 2.0}  # fmt: skip
PAST_RANKS = {
    **{name: [0.01, 0.01, 0.01] for name in (*PHASES, "local")},
    "finish": [0.0, -0.01, 0.01], "cpu": [0.5, 0.5, 0.5], "workers_cpu": [0.02, 0.02, 0.02],
    "workers_read": [1e5, 1e5, 1e5], "net_tx": [3e5, 3e5, 3e5], "retransmits": [50.0, 0.0, 0.0],
    "host_cpu": [0.25, 0.25, 0.5], "load": [0.5, 0.5, 0.5], "disk_busy": [0.1, 0.1, 0.1],
    "rss": [96e6, 96e6, 96e6], "available": [0.8, 0.8, 0.8], "swap": [0.0, 0.0, 0.25],
    "param_desync": [0.0, 0.0, 0.0], "grad_desync": [0.0, 0.0, 0.0],
}  # fmt: skip
"""What every healthy window of the past was like. The usual step takes 0.2 s."""

NOW_RUN = {"step": 0.4, "step_max": 1.2, "period": 0.5, "pause_share": 0.25, "since_step": 1.6, "since_collective": 3.2,
           "negotiate": 0.06, "negotiate_max": 0.8, "transfer": 1.5, "transfer_max": 3.5, "cycle": 0.02, "cycle_max": 0.08,
           "unfused_share": 0.75, "loss": 4.0, "grad": 1.0}  # fmt: skip
NOW_RANKS = {
    **{name: [0.03, 0.01, 0.0] for name in (*PHASES, "local")},
    "finish": [-0.02, 0.0, 0.11], "batch": [64.0, 64.0, 256.0], "behind": [0.0, 0.2, 0.8],
    "last_share": [0.5, -0.25, -0.25], "late": [0.1, 0.0, -0.02],
    "cpu": [0.75, 0.5, 0.25], "sleeps": [20.0, 60.0, 300.0], "preempted": [0.0, 20.0, 620.0],
    "stopped": [0.5, 0.0, 0.0], "gone": [0.0, 0.0, 1.0], "workers_cpu": [0.14, 0.02, 0.0], "workers_read": [3e5, 1e5, 0.0],
    "net_tx": [0.0, 3e5, 1.5e6], "net_rx": [35e6, 15e6, 5e6], "retransmits": [350.0, 0.0, 50.0], "drops": [7.0, 0.0, 1.0],
    "host_cpu": [0.75, 0.25, 0.5], "foreign_cpu": [0.5, 0.0, 0.0], "steal": [0.1, 0.0, 0.0], "iowait": [0.2, 0.0, 0.0],
    "load": [3.5, 0.5, 0.0], "disk_busy": [0.9, 0.1, 0.0],
    "loss_ratio": [2.0, 0.0, 0.0], "nonfinite": [0.5, 0.0, 0.0], "param_desync": [3.0, 0.0, 0.0],
    "grad_desync": [2.0, 0.0, 0.0], "rss": [224e6, 96e6, 32e6], "rss_growth": [0.5, 0.0, -0.1],
    "available": [0.5, 0.8, 0.9], "swap": [0.25, 0.0, 0.0],
}  # fmt: skip

EXPECTED: dict[str, list[float]] = {
    "step_vs_past": SAME,
    "step_max_vs_past": [2.0, 2.0, 2.0],
    **{f"{name}_vs_past": [0.1, 0.0, -0.05] for name in (*PHASES, "local")},
    **{f"{name}_vs_peers": [0.1, 0.0, -0.05] for name in (*PHASES, "local")},
    "finish_vs_past": [-0.1, 0.05, 0.5],
    "batch_vs_peers": [0.0, 0.0, 2.0],
    "silence": [2.0, 2.0, 2.0],  # 8 steps, of which 2 are nothing
    "silence_vs_peers": [0.0, 0.0, 2.0],
    "pause_share": [0.25, 0.25, 0.25],
    "period_vs_past": SAME,
    "negotiate_vs_past": [0.2, 0.2, 0.2],
    "negotiate_max_vs_past": SAME,  # 4 steps
    "transfer_vs_past": [1.5, 1.5, 1.5],
    "transfer_max_vs_past": [3.5, 3.5, 3.5],
    "cycle_gap": [3.0, 3.0, 3.0],
    "cycle_vs_past": [2.0, 2.0, 2.0],
    "cycle_share": [0.05, 0.05, 0.05],
    "unfused_share": [0.75, 0.75, 0.75],
    "quiet": [3.0, 3.0, 3.0],  # 16 steps
    "last_share": [0.5, -0.25, -0.25],
    "lateness": [0.5, 0.0, -0.1],
    "cpu_vs_past": [0.25, 0.0, -0.25],
    "cpu_vs_peers": [0.25, 0.0, -0.25],
    "sleeps_vs_peers": [-1.0, 0.0, 2.0],  # 40, 80, 320 with the floor
    "preempted_vs_peers": [-1.0, 0.0, 4.0],  # 20, 40, 640
    "stopped": [0.5, 0.0, 0.0],
    "gone": [0.0, 0.0, 1.0],
    "workers_cpu_vs_past": [2.0, 0.0, -1.0],  # 0.16, 0.04, 0.02 against 0.04
    "workers_read_vs_past": [1.0, 0.0, -1.0],  # 4e5, 2e5, 1e5 against 2e5
    "net_vs_past": [-2.0, 0.0, 2.0],  # 1e5, 4e5, 16e5 against 4e5
    "retransmits_vs_past": [2.0, 0.0, 1.0],  # 400 against 100, 50 against 50, 100 against 50
    "retransmits_vs_peers": [2.0, -1.0, 0.0],  # 400, 50, 100
    "received_surplus": [1.0, 0.0, -0.5],  # of 15e6 + 5e6
    "drops": [3.0, 0.0, 1.0],
    "host_cpu_vs_past": [0.5, 0.0, 0.0],
    "foreign_cpu": [0.5, 0.0, 0.0],
    "steal": [0.1, 0.0, 0.0],
    "iowait": [0.2, 0.0, 0.0],
    "load_vs_past": [2.0, 0.0, -1.0],  # 4, 1, 0.5 against 1
    "disk_busy_vs_past": [0.8, 0.0, -0.1],
    "loss_vs_peers": [2.0, 0.0, 0.0],
    "loss_vs_past": [2.0, 2.0, 2.0],
    "grad_vs_past": [-1.0, -1.0, -1.0],
    "nonfinite": [0.5, 0.0, 0.0],
    "param_desync": [3.0, 0.0, 0.0],
    "grad_desync": [2.0, 0.0, 0.0],
    "rss_vs_past": [1.0, 0.0, -1.0],  # 256e6, 128e6, 64e6 against 128e6
    "rss_vs_peers": [1.0, 0.0, -1.0],
    "rss_growth": [0.5, 0.0, -0.1],
    "memory_low": [0.3, 0.0, -0.1],
    "swap_vs_past": [0.25, 0.0, -0.25],
}
FALLS_BACK = {"cycle_share"}
"""Features that make do with another measure of the same thing."""


def measures(run: dict[str, float], per_rank: dict[str, list[float]], ranks: list[int] | None = None) -> Measures:
    at = RANKS if ranks is None else ranks
    return Measures(ranks=at, per_rank={name: np.array(v) for name, v in per_rank.items()}, run=dict(run))


def past(run: dict[str, float] | None = None, per_rank: dict[str, list[float]] | None = None, windows: int = 5) -> Baseline:
    out = Baseline()
    for _ in range(windows):
        out.add(measures(PAST_RUN if run is None else run, PAST_RANKS if per_rank is None else per_rank))
    return out


def features(now: Measures, before: Baseline, **memory: Any) -> dict[str, Vector]:
    return features_of(Comparison(now, before, RunMemory(ranks=now.ranks, **memory)))


def row(vector: Vector) -> list[float]:
    return [float(v) for v in vector]


def differs(a: Vector, b: Vector) -> bool:
    return not np.allclose(a, b, equal_nan=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_value_worked_out_by_hand(name: str) -> None:
    out = features(measures(NOW_RUN, NOW_RANKS), past())
    assert row(out[name]) == pytest.approx(EXPECTED[name], abs=1e-9)


def test_every_feature_of_the_vocabulary_is_made_and_no_other() -> None:
    for n in (0, 1, 3):
        out = features(Measures(ranks=list(range(n))), Baseline())
        assert set(out) == set(NAMES)
        assert {vector.shape for vector in out.values()} == {(n,)}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_which_nothing_is_known_has_no_features(name: str) -> None:
    """Not known is not zero: neither in a run that never had the source nor in one whose source fell silent."""
    for before in (Baseline(), past()):
        assert np.isnan(features(measures({}, {}), before)[name]).all()


@pytest.mark.parametrize("measure", [*NOW_RUN, *NOW_RANKS])
def test_without_a_measure_its_features_are_missing_and_never_zero(measure: str) -> None:
    whole = features(measures(NOW_RUN, NOW_RANKS), past())
    run = {k: v for k, v in NOW_RUN.items() if k != measure}
    ranks = {k: v for k, v in NOW_RANKS.items() if k != measure}
    part = features(measures(run, ranks), past())
    changed = {name for name in NAMES if differs(whole[name], part[name])}
    assert changed, "a measure that nobody uses"
    assert all(np.isnan(part[name]).all() for name in changed - FALLS_BACK)


@pytest.mark.parametrize("measure", NOW_RANKS)
def test_a_rank_without_a_measure_has_no_such_feature(measure: str) -> None:
    """The other ranks still have theirs; their median may move, as one rank less takes part."""
    ranks = {**NOW_RANKS, measure: [NAN, *NOW_RANKS[measure][1:]]}
    whole, part = (features(measures(NOW_RUN, r), past()) for r in (NOW_RANKS, ranks))
    changed = {name for name in NAMES if differs(whole[name], part[name])}
    assert changed
    for name in changed:
        assert math.isnan(part[name][0]), name
        assert np.isfinite(part[name][1:]).all(), name


@pytest.mark.parametrize("measure", [*PAST_RUN, *PAST_RANKS])
def test_without_a_past_there_is_no_change(measure: str) -> None:
    whole = features(measures(NOW_RUN, NOW_RANKS), past())
    run = {k: v for k, v in PAST_RUN.items() if k != measure}
    ranks = {k: v for k, v in PAST_RANKS.items() if k != measure}
    part = features(measures(NOW_RUN, NOW_RANKS), past(run, ranks))
    changed = {name for name in NAMES if differs(whole[name], part[name])}
    if measure == "step":  # the unit is then another, and all that is counted in steps with it
        assert np.isnan(part["step_vs_past"]).all()
    else:
        assert all(np.isnan(part[name]).all() for name in changed)


def test_without_any_past_only_comparisons_with_peers_and_absolutes_are_left() -> None:
    out = features(measures(NOW_RUN, NOW_RANKS), Baseline(), recent_step_s=0.2)
    missing = {name for name in NAMES if np.isnan(out[name]).any()}
    told_by_the_past = {f.name for f in FEATURES if f.name.endswith("_vs_past")}
    # These two hold their past in the memory, or count in steps alone.
    told_by_the_past -= {"transfer_vs_past", "transfer_max_vs_past", "negotiate_max_vs_past"}
    assert missing >= told_by_the_past | {"cycle_gap", "memory_low", "rss_vs_peers"}
    assert missing.isdisjoint({name for name in EXPECTED if name.endswith("_vs_peers")} - {"rss_vs_peers"})
    known = set(EXPECTED) - missing
    assert all(row(out[name]) == pytest.approx(EXPECTED[name], abs=1e-9) for name in known)


# --- the unit -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "recent", "unit_s"),
    [
        ({"step": 0.2, "period": 0.25}, {"step": 9.0, "period": 9.0}, 9.0, 0.2),
        ({"period": 0.25}, {"step": 9.0, "period": 9.0}, 9.0, 0.25),
        ({}, {"period": 9.0}, 0.3, 0.3),
        ({}, {"period": 0.35}, None, 0.35),
        ({}, {"period": 0.35}, 0.0, 0.35),
        ({}, {}, None, NAN),
        ({"step": 0.0, "period": 0.25}, {}, None, 0.25),
        ({"step": 0.0}, {"step": 0.0}, 0.0, NAN),
        ({"step": 0.0}, {"period": 0.0}, 0.5, 0.5),
        ({}, {"period": 0.0}, None, NAN),
    ],
)
def test_unit_is_the_usual_step_or_the_best_that_is_known(
    before: dict[str, float], now: dict[str, float], recent: float | None, unit_s: float
) -> None:
    c = Comparison(measures(now, {}), past(before, {}), RunMemory(ranks=RANKS, recent_step_s=recent))
    assert c.unit_s == pytest.approx(unit_s, nan_ok=True)


@pytest.mark.parametrize("past_s", [0.0, 0.2])
def test_steps_that_take_no_time_are_no_unit_and_no_fault(past_s: float) -> None:
    """A log that rounds its step times to zero."""
    now = {**NOW_RUN, "step": 0.0, "step_max": 0.0, "period": 0.0}
    out = features(measures(now, NOW_RANKS), past({**PAST_RUN, "step": past_s, "period": past_s}), recent_step_s=0.0)
    for name in ("step_vs_past", "step_max_vs_past", "cycle_share", "period_vs_past"):
        assert np.isnan(out[name]).all(), name
    if past_s == 0.0:
        assert np.isnan(out["silence"]).all()
    assert row(out["stopped"]) == EXPECTED["stopped"]


def test_share_of_the_cycle_is_of_the_period_where_no_steps_are_told() -> None:
    now = {k: v for k, v in NOW_RUN.items() if k != "step"}
    assert row(features(measures(now, {}), past())["cycle_share"]) == pytest.approx([0.04] * 3)


# --- progress ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("since", "silence"), [(0.0, 0.0), (0.2, 0.0), (0.4, 0.0), (0.8, 1.0), (12.8, 5.0)])
@pytest.mark.parametrize(("measure", "name"), [("since_step", "silence"), ("since_collective", "quiet")])
def test_silence_counts_from_two_usual_steps_on(measure: str, name: str, since: float, silence: float) -> None:
    assert row(features(measures({measure: since}, {}), past())[name]) == pytest.approx([silence] * 3)


@pytest.mark.parametrize(("gap_s", "silence", "behind"), [(0.1, 2.0, 2.0), (0.4, 1.0, 1.0), (1.6, 0.0, 0.0)])
def test_silence_of_a_log_counts_in_lines_where_it_prints_only_some_steps(gap_s: float, silence: float, behind: float) -> None:
    """1.6 s without a step, one rank 0.8 s behind; the usual step takes 0.2 s."""
    out = features(measures(NOW_RUN, NOW_RANKS), past(), line_gaps_s=[gap_s] * 4)
    assert row(out["silence"]) == pytest.approx([silence] * 3)
    assert row(out["silence_vs_peers"]) == pytest.approx([0.0, 0.0, behind])
    assert row(out["quiet"]) == EXPECTED["quiet"]


def test_a_run_that_is_over_is_not_silent() -> None:
    out = features(measures(NOW_RUN, NOW_RANKS), past(), finished={0: 1.0, 1: 1.0}, gone={2: 1.0})
    for name in ("silence", "quiet"):
        assert np.isnan(out[name]).all()
    still = features(measures(NOW_RUN, NOW_RANKS), past(), finished={0: 1.0, 1: 1.0})
    assert row(still["silence"]) == EXPECTED["silence"]


def test_a_rank_a_step_behind_is_not_silent() -> None:
    """Ranks of a synchronous job are apart by less than a step."""
    out = features(measures({}, {"behind": [0.0, 0.1, 0.2]}), past())
    assert row(out["silence_vs_peers"]) == [0.0, 0.0, 0.0]


# --- peers ------------------------------------------------------------------------------------------------------------------


def test_a_rank_alone_has_no_peers() -> None:
    now = measures(NOW_RUN, {name: values[:1] for name, values in NOW_RANKS.items()}, ranks=[0])
    out = features(now, past())
    by_peers = [name for name in NAMES if name.endswith("_vs_peers") and name not in ("loss_vs_peers", "silence_vs_peers")]
    assert len(by_peers) > 8
    assert all(np.isnan(out[name]).all() for name in [*by_peers, "received_surplus"])


def test_less_median_looks_only_at_what_is_known() -> None:
    assert row(less_median(np.array([1.0, 5.0, 3.0]))) == [-2.0, 2.0, 0.0]
    assert row(less_median(np.array([1.0, NAN, 4.0]))) == pytest.approx([-1.5, NAN, 1.5], nan_ok=True)
    assert np.isnan(less_median(np.array([1.0, NAN]))).all()
    assert less_median(np.array([])).shape == (0,)


@pytest.mark.parametrize(
    ("a", "b", "ratio"),
    [(8.0, 2.0, 2.0), (2.0, 8.0, -2.0), (0.0, 1.0, NAN), (1.0, 0.0, NAN), (-1.0, -1.0, NAN), (NAN, 1.0, NAN), (1.0, NAN, NAN)],
)
def test_log2_ratio(a: float, b: float, ratio: float) -> None:
    assert log2_ratio(a, b) == pytest.approx(ratio, nan_ok=True)


def test_an_empty_batch_does_not_take_the_others_with_it() -> None:
    """A rank out of data may report a batch of no samples."""
    out = features(measures({}, {"batch": [64.0, 64.0, 0.0]}), past())
    assert row(out["batch_vs_peers"])[:2] == [0.0, 0.0]
    assert out["batch_vs_peers"][2] == -math.inf
