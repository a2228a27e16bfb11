"""Evidence: words of the catalog as numbers in [-1, 1], 0 for what is not seen, from the unusual windows of a case."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.cases import Case
from detector.catalog import Catalog
from detector.diagnosis import numbers_of
from detector.evidence import CaseNumbers, evidence_of, phase_shares, rise, squash
from detector.fact import Fact
from features.extract import FeatureFrame
from features.measures.table import RunMemory
from features.records import Collective, Phase
from features.vocabulary import NAMES

Frame = Callable[..., FeatureFrame]
Weigh = Callable[..., dict[str, float]]
T0 = 1_772_000_000.0
EVERYONE = range(4)


@pytest.fixture
def weigh(frame: Frame) -> Weigh:
    """The evidence of three alike windows; a feature is given as `{rank: value}` or as one value for all ranks."""

    def run(
        channel: str = "pace",
        memory: RunMemory | None = None,
        facts: tuple[Fact, ...] = (),
        is_open: bool = True,
        recurs: int = 0,
        window: dict[str, object] | None = None,
        **features: float | dict[int, float],
    ) -> dict[str, float]:
        known = {n: dict.fromkeys(EVERYONE, v) if isinstance(v, float) else v for n, v in features.items()}
        frames = [frame(i, per_rank=known, **(window or {})) for i in range(3)]
        case = Case(channel=channel, frames=frames, facts=list(facts), is_open=is_open, recurs=recurs)  # type: ignore[arg-type]
        numbers, _ = numbers_of(case, RunMemory(ranks=list(EVERYONE)) if memory is None else memory)
        return evidence_of(numbers)

    return run


def test_squash_is_odd_bounded_and_unmoved_by_the_unknown() -> None:
    assert squash(0.0, 2.0) == squash(math.nan, 2.0) == 0.0
    assert (round(squash(2.0, 2.0), 2), round(squash(4.0, 2.0), 2)) == (0.76, 0.96)
    assert squash(-3.0, 2.0) == -squash(3.0, 2.0)
    assert squash(math.inf, 1.0) == 1.0
    assert rise(-3.0, 2.0) == rise(math.nan, 2.0) == 0.0
    assert rise(3.0, 2.0) == squash(3.0, 2.0)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["pace", "numbers", "memory"]))
def test_all_evidence_is_of_the_vocabulary_and_within_bounds(frame: Frame, catalog: Catalog, seed: int, channel: str) -> None:
    """Whatever the features are: unknown, zero, or far beyond anything seen."""
    random = np.random.default_rng(seed)
    frames = []
    for i in range(int(random.integers(1, 5))):
        values = random.normal(0, 10.0 ** random.integers(-2, 4), (4, len(NAMES)))
        values[random.random(values.shape) < random.random()] = np.nan
        named = {name: dict(enumerate(values[:, k].tolist())) for k, name in enumerate(NAMES)}
        frames.append(frame(i, per_rank=named, steps=(i, i + 1)))
    case = Case(channel=channel, frames=frames)  # type: ignore[arg-type]
    evidence = evidence_of(numbers_of(case, RunMemory(ranks=[0, 1, 2, 3], origin_step=0))[0])

    assert set(evidence) <= set(catalog.vocabulary)
    signed = {name for name, word in catalog.vocabulary.items() if word.signed}
    assert all(-1.0 <= value <= 1.0 for value in evidence.values())
    assert {name for name, value in evidence.items() if value < 0.0} <= signed


def test_nothing_known_is_no_evidence(weigh: Weigh) -> None:
    assert weigh() == {}


def test_a_slow_rank_whose_forward_pass_grew(weigh: Weigh) -> None:
    found = weigh(
        local_vs_peers={0: 0.0, 1: 0.0, 2: 0.8, 3: 0.0},
        local_vs_past={0: 0.0, 1: 0.0, 2: 0.8, 3: 0.0},
        forward_vs_past={0: 0.0, 1: 0.0, 2: 0.8, 3: 0.0},
        sync_vs_past={0: 0.8, 1: 0.8, 2: 0.0, 3: 0.8},
    )
    assert found["one_rank_slow"] == pytest.approx(math.tanh(2.0))
    assert found["local_forward"] == 1.0
    assert found["wait_on_others"] == pytest.approx(math.tanh(1.6))
    assert "all_ranks_slow" not in found
    assert "local_data" not in found


def test_where_all_became_slower_nobody_is_slow_alone(weigh: Weigh) -> None:
    found = weigh(local_vs_peers={0: 0.0, 1: 0.0, 2: 0.2, 3: 0.0}, local_vs_past=0.8, data_vs_past=0.8)

    assert found["all_ranks_slow"] == pytest.approx(math.tanh(2.0))
    assert found["one_rank_slow"] == pytest.approx(math.tanh(0.5) * 0.2)
    assert found["local_data"] == 1.0


def test_who_waits_less_than_before_is_evidence_against_waiting(weigh: Weigh) -> None:
    against = weigh(local_vs_peers={2: 0.5}, sync_vs_past={0: 0.0, 1: 0.0, 2: 0.5, 3: 0.0})
    assert against["wait_on_others"] == pytest.approx(-math.tanh(1.0))


def test_shares_of_the_extra_time(frame: Frame) -> None:
    def shares(**extra: float) -> dict[str, float]:
        values = {f"{phase}_vs_past": {1: value} for phase, value in extra.items()}
        numbers = CaseNumbers(Case(channel="pace", frames=[frame(0, per_rank=values)]), RunMemory(ranks=[0, 1, 2, 3]))
        numbers.suspects = [1]
        return phase_shares(numbers, everyone=False)

    assert shares(data=0.3, forward=0.1, backward=-5.0) == pytest.approx(
        {"data": 0.75, "forward": 0.25, "backward": 0.0, "optimizer": 0.0}
    )
    assert set(shares(data=0.05, forward=0.04).values()) == {0.0}, "noise has no shares"
    assert set(shares().values()) == {0.0}


def test_shares_compare_with_peers_where_there_is_no_past(frame: Frame) -> None:
    values = {"data_vs_peers": {1: 0.6}, "forward_vs_past": {1: 0.2}}
    numbers = CaseNumbers(Case(channel="pace", frames=[frame(0, per_rank=values)]), RunMemory(ranks=[0, 1, 2, 3]))
    numbers.suspects = [1]
    assert phase_shares(numbers, everyone=False)["data"] == pytest.approx(0.75)


def test_times_are_typical_and_moments_extreme(frame: Frame) -> None:
    """A silence counts where it was longest, a step time as it usually was: one odd window among five changes nothing."""
    frames = [
        frame(i, per_rank={"silence": {0: 6.0 if i == 4 else 0.0}, "negotiate_vs_past": {0: 9.0 if i == 4 else 0.1}})
        for i in range(5)
    ]
    numbers = CaseNumbers(Case(channel="pace", frames=frames), RunMemory(ranks=[0, 1, 2, 3]))

    assert numbers.top("negotiate_vs_past") == pytest.approx(0.1)
    assert numbers.top("silence", extreme=True) == 6.0
    assert evidence_of(numbers)["no_progress"] == pytest.approx(math.tanh(2.5))


def test_ranks_that_were_seen_later_are_unknown_before(frame: Frame) -> None:
    frames = [frame(0, 2, per_rank={"drops": {0: 1.0, 1: 2.0}}), frame(1, 3, per_rank={"drops": {2: 4.0}})]
    numbers = CaseNumbers(Case(channel="pace", frames=frames), RunMemory(ranks=[0, 1, 2]))
    np.testing.assert_array_equal(numbers.of("drops", extreme=True), [1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("word", "features"),
    [
        ("negotiate_long", {"negotiate_vs_past": 0.5}),
        ("transfer_long", {"transfer_vs_past": 1.0}),
        ("small_collectives", {"unfused_share": 0.6}),
        ("sync_all", {"sync_vs_past": 0.5}),
        ("iowait", {"iowait": 0.2}),
        ("disk_busy", {"disk_busy_vs_past": 0.4}),
        ("net_retransmits", {"retransmits_vs_past": {1: 2.0}}),
        ("net_drops", {"drops": {3: 1.0}}),
        ("net_throughput_low", {"net_vs_past": -1.5}),
        ("swap_use", {"swap_vs_past": 0.05}),
        ("param_norm_desync", {"param_desync": {2: 1.5}}),
    ],
)
def test_a_feature_at_its_scale_is_three_quarters_of_a_word(
    weigh: Weigh, word: str, features: dict[str, float | dict[int, float]]
) -> None:
    assert weigh(**features)[word] == pytest.approx(math.tanh(1.0))
    assert word not in weigh(**{n: -v if isinstance(v, float) else {r: -x for r, x in v.items()} for n, v in features.items()})


def test_an_open_collective_is_seen_as_it_is(weigh: Weigh) -> None:
    waiting = Collective(ts=T0, tensor="w", op="allreduce")
    assert weigh(window={"open_collectives": [waiting]})["negotiate_open"] == 1.0
    assert weigh(window={"open_collectives": [Collective(ts=T0, tensor="j", op="join")]})["join_seen"] == 1.0


def test_pauses_count_by_their_share(weigh: Weigh) -> None:
    long = weigh(window={"pauses": [Phase(ts=T0, kind="checkpoint")]}, pause_share=0.3)
    assert (long["at_checkpoint"], long["checkpoint_long"]) == (1.0, pytest.approx(math.tanh(2.0)))
    assert "at_checkpoint" not in weigh(window={"pauses": [Phase(ts=T0, kind="checkpoint")]}, pause_share=0.04)
    validation = weigh(window={"pauses": [Phase(ts=T0, kind="validation")]}, pause_share=0.3)
    assert validation["validation_long"] == pytest.approx(math.tanh(1.0))
    assert "checkpoint_long" not in validation


def test_a_case_that_was_there_from_the_start(weigh: Weigh) -> None:
    memory = RunMemory(ranks=list(EVERYONE), origin_step=1000)
    assert weigh(memory=memory, window={"steps": (1030, 1040)})["whole_run"] == 1.0
    assert "whole_run" not in weigh(memory=memory, window={"steps": (1041, 1050)})
    assert weigh(memory=memory, window={"steps": (1010, 1040)}, param_desync=3.0)["param_desync_from_start"] > 0.9


def test_an_end_without_progress_needs_an_open_case(weigh: Weigh) -> None:
    assert weigh(silence=6.0)["progress_ended"] == 1.0
    assert "progress_ended" not in weigh(silence=6.0, is_open=False)
    assert "progress_ended" not in weigh(
        silence=6.0, memory=RunMemory(ranks=list(EVERYONE), finished=dict.fromkeys(EVERYONE, T0))
    )
    assert weigh(recurs=3)["periodic"] == 1.0


def test_each_fact_is_a_word(weigh: Weigh, fact: Callable[..., Fact]) -> None:
    found = weigh(facts=(fact(1.0, "log_exit_killed"), fact(2.0, "log_cascade_exception", "cascade")))
    assert found == {"log_exit_killed": 1.0, "log_cascade_exception": 1.0}
