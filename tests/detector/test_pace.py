"""Ranks that go their own pace: who turns slow and when, and what is not called a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from detector.fact import Fact
from detector.pace import PaceWatch, goes_own_pace, median_of_others, own_pace, step_and_usual
from detector.verdicts import ChannelVerdict, WindowVerdict
from features.extract import Extractor, FeatureFrame
from features.measures.table import RunMemory
from features.records import Step
from features.windows import Window, windows

LEVELS = (0.7, 0.85, 0.9, 1.0, 1.05, 1.15)
"""Steady differences between workers of a shared cluster, as shares of the usual step."""


def job(
    slow: Callable[[int, int], float] = lambda rank, k: 1.0, steps: int = 200, sync_s: float | None = 0.0, sway: float = 0.03
) -> Iterator[Step]:
    """Steps of six ranks at their levels; `slow` is a factor for a rank and step."""
    random = np.random.default_rng(3)
    for k in range(steps):
        for rank, level in enumerate(LEVELS):
            lasts = level * random.uniform(1 - sway, 1 + sway) * slow(rank, k)
            yield Step(ts=1.2 * (k + 1), rank=rank, step=k, duration_s=lasts, sync_s=sync_s, source=f"t:{k}")


def facts_of(steps: Iterator[Step]) -> list[Fact]:
    watch = PaceWatch()
    return [f for w in windows(steps, 12.0) for f in watch.of(w, RunMemory())]


def test_steady_differences_are_no_fault() -> None:
    assert facts_of(job()) == []


def test_a_rank_that_turns_slow_is_named_with_its_step_and_its_return() -> None:
    facts = facts_of(job(lambda rank, k: 1.6 if rank == 2 and 100 <= k < 130 else 1.0))
    assert [(f.name, f.ranks, f.role, f.hard) for f in facts] == [
        ("one_rank_slow", (2,), "root", True),
        ("one_rank_slow", (2,), "context", False),
    ]
    assert facts[0].text.startswith("rank 2 turns slow at step 100: 1.6")
    assert facts[0].ts == pytest.approx(1.2 * 101 - 0.9 * 1.6, abs=0.1)
    assert facts[1].text == "rank 2 is back at its usual pace from step 130 on"
    assert facts[0].source == "t:104"


@pytest.mark.parametrize("n", range(3, 9))
def test_the_median_of_the_others_leaves_each_value_out(n: int) -> None:
    values = np.random.default_rng(n).integers(0, 5, n).astype(float)
    expected = [np.median(np.delete(values, i)) for i in range(n)]
    assert median_of_others(values).tolist() == expected


def test_a_few_slow_steps_are_nobodys_fault() -> None:
    assert facts_of(job(lambda rank, k: 3.0 if rank == 2 and 100 <= k < 104 else 1.0)) == []


def test_all_ranks_slower_together_is_not_one_rank() -> None:
    assert facts_of(job(lambda rank, k: 2.0 if k >= 100 else 1.0)) == []


def test_a_rank_becoming_faster_is_no_fault() -> None:
    assert facts_of(job(lambda rank, k: 0.5 if rank == 4 and k >= 100 else 1.0)) == []


def test_a_fault_that_lasts_does_not_become_usual() -> None:
    facts = facts_of(job(lambda rank, k: 1.5 if rank == 0 and k >= 60 else 1.0, steps=600))
    assert [f.ranks for f in facts] == [(0,)]


@pytest.mark.parametrize("sync_s", [None, 0.2])
def test_ranks_that_wait_for_each_other_are_left_to_the_models(sync_s: float | None) -> None:
    assert facts_of(job(lambda rank, k: 1.6 if rank == 2 and k >= 100 else 1.0, sync_s=sync_s)) == []


def test_a_rank_that_ends_early_does_not_hold_up_the_others() -> None:
    steps = (s for s in job(lambda rank, k: 1.6 if rank == 2 and k >= 150 else 1.0, steps=300) if s.rank != 5 or s.step < 100)
    assert [f.ranks for f in facts_of(steps)] == [(2,)]


def frames(steps: Iterator[Step]) -> list[tuple[Window, FeatureFrame]]:
    """Frames of all windows, each learned as healthy while its first step lies before step 90."""
    extractor, out = Extractor(), []
    for w in windows(steps, 12.0):
        frame = extractor.frame(w)
        if frame.first_step is not None and frame.first_step < 90:
            extractor.learn(w, frame)
        out.append((w, frame))
    return out


def healthy(frame: FeatureFrame) -> WindowVerdict:
    return WindowVerdict()


def test_windows_in_which_a_rank_is_slow_are_unusual() -> None:
    judge = own_pace(healthy)
    found = frames(job(lambda rank, k: 1.4 if rank == 4 and 100 <= k < 140 else 1.0))
    unusual = {f.index: judge(f).channels["pace"].ranks for _, f in found if judge(f).is_anomalous}
    assert unusual == {10: (4,), 11: (4,), 12: (4,), 13: (4,)}
    verdict = judge(found[11][1]).channels["pace"]
    assert verdict.score > verdict.limit
    lasts, usual = step_and_usual(found[11][1])
    assert lasts == pytest.approx(1.05 * 1.4, rel=0.05)
    assert usual == pytest.approx(1.15, rel=0.05)


def test_other_jobs_and_what_models_found_are_left_alone() -> None:
    _, waiting = frames(job(sync_s=0.2))[11]
    assert not goes_own_pace(waiting)
    assert own_pace(healthy)(waiting) == WindowVerdict()
    lasts, usual = step_and_usual(waiting)
    assert (lasts, usual) == (waiting.measures.run["step"], waiting.unit_s)
    told = WindowVerdict(channels={"pace": ChannelVerdict(score=9.0, limit=3.0, ranks=(1,), features=())})
    _, slow = frames(job(lambda rank, k: 1.4 if rank == 4 and k >= 100 else 1.0))[11]
    assert own_pace(lambda frame: told)(slow) is told
