"""Facts from the what-if analysis of a trace: a slow worker with the figures, or work that is spread unevenly."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from detector.fact import Fact, Role
from detector.whatif import SLOW, WhatIf, by_rank, what_if
from detector.whatif_graph import MEETINGS, Unfit
from features.notices import Notices
from features.optrace import OpTable, spans

EXPLAINS: Final = 0.5
"""Share of the slowdown that one cause must explain to be named."""
NOTABLE: Final = 0.3
"""Share of a slow worker's extra time that a phase must hold to be named."""
PHASE_WORDS: Final = {"forward-compute": "local_forward", "backward-compute": "local_backward", "optimizer": "local_optimizer"}


def whatif_facts(table: OpTable, source: str, notices: Notices) -> list[Fact]:
    """Facts of a trace for the report: none where the steps take about as long as they must."""
    try:
        result = what_if(table)
    except Unfit as error:
        notices.add("info", f"no what-if analysis: {error}", file=source)
        return []
    notices.add("info", "what-if analysis: " + summary(result), file=source)
    if not result.slowdown >= SLOW:
        return []
    at = spans(table)[0].end_s
    if result.workers and result.workers_share >= EXPLAINS:
        return [*_worker_facts(table, result, at, source)]
    fact = _fact("slow_rank_rotates", f"{summary(result)}; {_uneven(result)}", at, source, hard=True)
    return [_lasting(fact, table, result)]


def summary(r: WhatIf) -> str:
    """The figures in one sentence."""
    return (
        f"a step takes {r.original_s:.2f} s ({r.traced_s:.2f} s with launch delays; {r.steps} traced steps), and "
        f"{r.ideal_s:.2f} s with all operations at the usual length of their kind: {r.slowdown:.2f} times slower than ideal"
    )


def _worker_facts(table: OpTable, r: WhatIf, at: float, source: str) -> Iterable[Fact]:
    who = "rank " + str(r.workers[0]) if len(r.workers) == 1 else "ranks " + ", ".join(map(str, r.workers))
    ratios = {k: v for k, v in r.ratios[r.workers[0]].items() if k in PHASE_WORDS and v >= SLOW}
    longer = ", ".join(f"{k} {v:.2f} times" for k, v in sorted(ratios.items(), key=lambda kv: (-kv[1], kv[0])))
    text = f"{who} alone explains {min(r.workers_share, 1.0):.0%} of a step that takes {r.slowdown:.2f} times its ideal"
    text += f": {longer} the median worker's" if longer else ""
    yield _lasting(_fact("one_rank_slow", text, at, source, hard=True, ranks=r.workers), table, r)
    after = math.nextafter(at, math.inf)  # what explains a fact is taken after it
    yield _fact("one_rank_slow", f"what-if analysis: {summary(r)}", after, source)
    extra = _extra(table, r.workers[0])
    for kind, word in PHASE_WORDS.items():
        if extra.get(kind, 0.0) >= NOTABLE:
            text = f"{extra[kind]:.0%} of rank {r.workers[0]}'s extra time lies in {kind}"
            yield _fact(word, text, after, source)
    busy = _busy_shares(table)
    others = [share for rank, share in busy.items() if rank not in r.workers]
    if others and max(others) < busy[r.workers[0]]:
        text = f"rank {r.workers[0]} computes {busy[r.workers[0]]:.0%} of the time, its peers {np.median(others):.0%}"
        yield _fact("wait_on_others", f"{text}: they wait for it", after, source)


def _busy_shares(table: OpTable) -> dict[int, float]:
    """Worker -> share of the traced steps in which it computes."""
    whole = sum(s.end_s - s.start_s for s in spans(table))
    alone = np.isin(table.kind, [i for i, k in enumerate(table.kinds) if k not in MEETINGS])
    return {r: float(table.duration_s[(table.rank == r) & alone].sum()) / whole for r in np.unique(table.rank).tolist()}


def _extra(table: OpTable, worker: int) -> dict[str, float]:
    """Kind -> its share of the time by which the worker's computations exceed the median worker's."""
    extra = {}
    for code, kind in enumerate(table.kinds):
        totals = {r: float(table.duration_s[rows].sum()) for r, rows in by_rank(table, code)} if kind not in MEETINGS else {}
        if worker in totals:
            extra[kind] = max(0.0, totals[worker] - float(np.median(list(totals.values()))))
    whole = sum(extra.values())
    return {kind: e / whole for kind, e in extra.items()} if whole > 0 else {}


def _uneven(r: WhatIf) -> str:
    if r.stage is not None and r.stage_share >= EXPLAINS:
        share = min(r.stage_share, 1.0)
        return f"pipeline stage {r.stage} explains {share:.0%} of it: work is spread unevenly, no single worker is slow"
    worst = max(r.by_kind, key=lambda k: (r.by_kind[k], k))
    return f"no worker and no stage explains half of it; most lies in {worst}, whose length varies over the ranks"


def _lasting(fact: Fact, table: OpTable, r: WhatIf) -> Fact:
    """It holds over the whole trace, and cost what the ideal would have saved."""
    lost_s = (r.original_s - r.ideal_s) * r.steps
    return msgspec.structs.replace(fact, until=spans(table)[-1].end_s, lost_s=lost_s, slowdown=r.slowdown)


def _fact(name: str, text: str, at: float, source: str, *, hard: bool = False, ranks: tuple[int, ...] = ()) -> Fact:
    role: Role = "root" if hard else "context"
    return Fact(ts=at, name=name, role=role, channel="pace", text=text, hard=hard, ranks=ranks, source=source, kind="rule")
