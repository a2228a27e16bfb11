"""What-if analysis: ideal steps against closed forms, and who is named for the difference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from detector.facts_whatif import whatif_facts
from detector.whatif import MOST_EXACT, what_if
from detector.whatif_graph import Unfit
from features.notices import Notices
from features.optrace import OpTable, optable

Row = tuple[int, int, int, int, str, int, float, float]  # rank, dp, stage, step, kind, seq, start, end
Length = Callable[[int, int], float]  # (replica, stage) -> seconds


def table_of(rows: list[Row]) -> OpTable:
    names = ("rank", "dp", "stage", "step", "kind", "seq", "start_s")
    columns: dict[str, Any] = dict(zip(names, zip(*[r[:7] for r in rows], strict=True), strict=True))
    return optable({**columns, "duration_s": [end - start for *_, start, end in rows]}, "trace", Notices())


def data_parallel(compute: list[float], steps: int = 2, transfer: float = 0.25) -> OpTable:
    """Workers that compute, wait for each other and reduce."""
    rows: list[Row] = []
    for step in range(steps):
        for rank, lasts in enumerate(compute):
            rows.append((rank, rank, 0, step, "forward-compute", 0, 0.0, lasts))
            rows.append((rank, rank, 0, step, "grads-reduce-scatter", 0, lasts, max(compute) + transfer))
    return table_of(rows)


def pipeline(stages: int, micro: int, forward: Length, backward: Length, replicas: int = 2, transfer: float = 0.0) -> OpTable:
    """One step of a pipeline, one forward one backward, with transfers that wait for their counterpart."""
    rows: list[Row] = []
    for dp in range(replicas):
        rows += _replica(dp, stages, micro, lambda s, dp=dp: (forward(dp, s), backward(dp, s)), transfer)  # type: ignore[misc]
    return table_of(rows)


def _replica(dp: int, stages: int, micro: int, lengths: Callable[[int], tuple[float, float]], transfer: float) -> list[Row]:
    plans = [_plan(stage, stages, micro) for stage in range(stages)]
    ends: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    rows: list[Row] = []
    while any(plans):
        for stage, plan in enumerate(plans):
            if not plan:
                continue
            way, k = plan[0]
            source = stage - 1 if way == "forward" else stage + 1
            feeds = 0 <= source < stages
            if feeds and (way, source, k) not in ends:
                continue
            plan.pop(0)
            start, rank = free[stage], 10 * dp + stage
            if feeds:
                arrives = max(free[stage], ends[way, source, k]) + transfer
                rows.append((rank, dp, stage, 0, f"{way}-recv", k, free[stage], arrives))
                rows.append((10 * dp + source, dp, source, 0, f"{way}-send", k, ends[way, source, k], arrives))
                start = arrives
            free[stage] = ends[way, stage, k] = start + lengths(stage)[way == "backward"]
            rows.append((rank, dp, stage, 0, f"{way}-compute", k, start, free[stage]))
    return rows


def _plan(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    ahead = min(stages - stage - 1, micro)
    plan = [("forward", k) for k in range(ahead)]
    for k in range(micro - ahead):
        plan += [("forward", k + ahead), ("backward", k)]
    return plan + [("backward", k) for k in range(micro - ahead, micro)]


def test_a_data_parallel_job_is_as_slow_as_its_slowest_and_ideally_as_its_mean() -> None:
    r = what_if(data_parallel([1.0, 1.0, 1.0, 2.0]))
    assert (r.steps, r.traced_s, r.original_s) == (2, 2.25, 2.25)
    assert r.ideal_s == pytest.approx(1.25 + 0.25)
    assert r.slowdown == pytest.approx(1.5)
    assert r.by_worker == pytest.approx({0: 1.0, 1: 1.0, 2: 1.0, 3: 2.25 / 1.5})
    assert r.by_kind == pytest.approx({"forward-compute": 1.5, "grads-reduce-scatter": 1.0})
    assert r.workers == (3,)
    assert r.ratios[3] == {"forward-compute": 2.0}
    # Without the slow one the others' own second and a quarter of transfer remain: below the ideal of the mean.
    assert r.workers_share == pytest.approx((2.25 - 1.5) / (2.25 - 1.5))


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 8), (3, 1)])
def test_an_even_pipeline_takes_its_fill_and_its_micro_batches(stages: int, micro: int) -> None:
    r = what_if(pipeline(stages, micro, lambda dp, s: 1.0, lambda dp, s: 2.0))
    assert r.original_s == pytest.approx((micro + stages - 1) * 3.0)
    assert r.ideal_s == pytest.approx(r.original_s)
    assert r.workers == ()


def test_simulating_the_lengths_of_the_trace_gives_the_trace() -> None:
    t = pipeline(4, 8, lambda dp, s: 1.0 + 0.1 * s + 0.2 * dp, lambda dp, s: 2.0 + 0.3 * (s == 2))
    assert what_if(t).original_s == pytest.approx(float(t.end_s.max()))


def test_waiting_in_transfers_is_not_their_length() -> None:
    t = pipeline(2, 6, lambda dp, s: 2.0 if s == 0 else 1.0, lambda dp, s: 2.0, transfer=0.125)
    r = what_if(t)
    assert r.by_kind["forward-send"] == pytest.approx(1.0)
    assert 0.95 * t.end_s.max() < r.original_s <= t.end_s.max()


def test_a_slow_worker_of_a_pipeline_explains_it_all() -> None:
    slow = (1, 2)
    t = pipeline(4, 16, lambda dp, s: 2.0 if (dp, s) == slow else 1.0, lambda dp, s: 4.0 if (dp, s) == slow else 2.0)
    r = what_if(t)
    assert r.workers == (12,)
    assert r.workers_share > 0.9
    facts = whatif_facts(t, "trace", Notices())
    assert [f.name for f in facts] == ["one_rank_slow", "one_rank_slow", "local_forward", "local_backward", "wait_on_others"]
    assert facts[0].ranks == (12,)
    assert (facts[0].role, facts[0].hard) == ("root", True)
    assert facts[0].text == (
        f"rank 12 alone explains {min(r.workers_share, 1.0):.0%} of a step that takes {r.slowdown:.2f} times its ideal: "
        "backward-compute 2.00 times, forward-compute 2.00 times the median worker's"
    )
    assert facts[1].text.startswith(f"what-if analysis: a step takes {r.original_s:.2f} s")
    assert [f.text for f in facts[2:4]] == [
        "33% of rank 12's extra time lies in forward-compute",
        "67% of rank 12's extra time lies in backward-compute",
    ]
    assert all(a.ts <= b.ts for a, b in pairwise(facts))


def test_a_heavy_stage_is_the_work_and_no_worker() -> None:
    t = pipeline(4, 16, lambda dp, s: 2.0 if s == 3 else 1.0, lambda dp, s: 4.0 if s == 3 else 2.0, replicas=4)
    r = what_if(t)
    assert (r.workers, r.stage) == ((), 3)
    assert r.stage_share > 0.9
    (fact,) = whatif_facts(t, "trace", Notices())
    assert (fact.name, fact.ranks) == ("slow_rank_rotates", ())
    assert "pipeline stage 3 explains 100% of it" in fact.text


def test_work_that_sways_from_step_to_step_is_laid_on_nobody() -> None:
    rows: list[Row] = []
    for step in range(8):
        for rank in range(8):
            lasts = 2.0 if rank == step else 1.0
            rows.append((rank, rank, 0, step, "forward-compute", 0, 0.0, lasts))
            rows.append((rank, rank, 0, step, "grads-reduce-scatter", 0, lasts, 2.1))
    (fact,) = whatif_facts(table_of(rows), "trace", Notices())
    assert (fact.name, fact.ranks) == ("slow_rank_rotates", ())
    assert "no worker and no stage explains half of it" in fact.text


def test_a_healthy_trace_has_no_facts_and_says_its_figures() -> None:
    notices = Notices()
    assert whatif_facts(data_parallel([1.0, 1.02, 1.0, 0.99]), "trace", notices) == []
    assert "1.01 times slower than ideal" in notices.items()[0].text


def test_steps_of_different_make_are_simulated_each_by_its_own() -> None:
    one, two = data_parallel([1.0, 1.0, 2.0, 1.0], steps=1), data_parallel([1.0, 1.0, 2.0], steps=2)
    both = {
        name: [*getattr(one, field).tolist(), *(getattr(two, field) + (10 if field == "step" else 0)).tolist()]
        for name, field in [(n, n) for n in ("rank", "dp", "stage", "step", "seq", "start_s", "duration_s")]
    }
    kinds = [one.kinds[k] for k in one.kind] + [two.kinds[k] for k in two.kind]
    r = what_if(optable({**both, "kind": kinds}, "trace", Notices()))
    assert (r.steps, r.original_s, r.workers) == (3, 2.25, (2,))


def test_large_jobs_are_estimated_by_replica_and_stage() -> None:
    many = [1.0] * (MOST_EXACT + 1)
    many[5] = 2.0
    r = what_if(data_parallel(many, steps=1))
    assert r.workers == (5,)
    assert max(r.by_worker, key=lambda w: r.by_worker[w]) == 5


def test_order_of_rows_does_not_matter() -> None:
    t = pipeline(3, 5, lambda dp, s: 1.0 + 0.1 * s, lambda dp, s: 2.0)
    back = {f: getattr(t, f)[::-1].tolist() for f in ("rank", "dp", "stage", "step", "seq", "start_s", "duration_s")}
    turned = optable({**back, "kind": [t.kinds[k] for k in t.kind[::-1]]}, "trace", Notices())
    assert what_if(turned) == what_if(t)


def test_a_trace_that_cannot_be_simulated_says_why() -> None:
    t = table_of([(0, 0, 0, 0, "forward-compute", 0, 0.0, 1.0), (0, 0, 0, 0, "forward-send", 0, 1.0, 1.5)])
    with pytest.raises(Unfit, match="without its counterpart"):
        what_if(t)
    notices = Notices()
    assert whatif_facts(t, "trace", notices) == []
    assert notices.items()[0].text.startswith("no what-if analysis: forward-send without its counterpart")


def test_operations_of_no_length_cannot_be_judged() -> None:
    with pytest.raises(Unfit, match="no time"):
        what_if(table_of([(0, 0, 0, 0, "gc", 0, 1.0, 1.0)]))
    with pytest.raises(Unfit, match="no operations"):
        what_if(optable({f: [] for f in ("rank", "step", "kind", "start_s", "duration_s")}, "trace", Notices()))
