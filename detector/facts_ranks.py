"""Ranks that stopped taking part: found from how far each rank came in its process groups, never from who complains."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from detector.fact import Fact
from features.measures.table import RunMemory
from features.records import Log
from features.windows import Window

EVENT = "collective_progress"
TELLING = 0.5
"""Share of the ranks that must have reported in one window before a rank without a report is suspected for its silence:
all ranks of a job dump together, and a handful of files that somebody sent says nothing about the others."""
EQUAL_SIZES = ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast", "allreduce")
"""Operations whose sizes must agree on all ranks; of an all-to-all, every rank has its own."""
MOST_NAMED = 4
"""Ranks or groups listed in one sentence."""


class Progress(msgspec.Struct):
    """What one rank last said of one of its groups."""

    enqueued: int
    completed: int
    pairs: bool = False  # only sends and receives are open: their peers are known one by one
    op: str = ""
    sizes: str = ""
    sequence: int | None = None
    since: float | None = None


class Wait(msgspec.Struct, frozen=True):
    """Ranks wait for `rank` in a group, the first of them since `since`."""

    rank: int
    title: str
    waiting: tuple[int, ...]
    since: float | None
    behind: int | None  # collectives that the others are ahead


class StoppedRanks:
    """Keeps the progress of all ranks. Who is waited for and waits for nobody has stopped taking part."""

    def __init__(self) -> None:
        self._progress: dict[str, dict[int, Progress]] = defaultdict(dict)  # group -> rank -> progress
        self._members: dict[str, set[int]] = defaultdict(set)
        self._titles: dict[str, str] = {}
        self._peers: dict[tuple[int, int], tuple[str, float | None]] = {}  # (waiting rank, peer) -> group's title, since
        self._sources: dict[int, str] = {}
        self._told: set[int] = set()
        self._differing: set[str] = set()

    def of(self, window: Window, memory: RunMemory) -> list[Fact]:
        """Facts that the reports of this window bring to light; each rank is named once."""
        reports = [log for log in window.logs if log.event == EVENT and log.rank is not None and "group" in log.fields]
        for log in reports:
            self._take(log)
        if not reports:
            return []
        fresh = {log.rank for log in reports if log.rank is not None}
        return [*self._stopped(window, fresh), *self._mismatches(window)]

    def _take(self, log: Log) -> None:
        if log.rank is None:
            return
        f, group = log.fields, log.fields["group"]
        self._sources[log.rank] = log.source
        self._titles[group] = f.get("title") or f"group {group}"
        peer, enqueued, completed = _whole(f, "peer"), _whole(f, "enqueued"), _whole(f, "completed")
        if peer is not None:
            before = self._peers.get((log.rank, peer), ("", None))[1]
            since = min((t for t in (_seconds(f), before) if t is not None), default=None)
            self._peers[log.rank, peer] = (self._titles[group], since)
        elif enqueued is not None and completed is not None:
            self._members[group] |= {int(r) for r in f.get("members", "").split() if r.isdecimal()} | {log.rank}
            self._progress[group][log.rank] = Progress(
                enqueued=enqueued,
                completed=completed,
                pairs="pairs" in f,
                op=f.get("op", ""),
                sizes=f.get("sizes", ""),
                sequence=_whole(f, "sequence"),
                since=_seconds(f),
            )

    def _stopped(self, window: Window, fresh: set[int]) -> Iterator[Fact]:
        waits = [*self._waits_in_groups(), *self._waits_for_peers()]
        waiting = {rank for w in waits for rank in w.waiting}
        reported = {rank for by_rank in self._progress.values() for rank in by_rank}
        everyone = set().union(*self._members.values()) | reported
        stopped = {w.rank for w in waits} - waiting
        suspects = stopped & reported
        if not suspects and len(fresh) >= TELLING * len(everyone):
            suspects = stopped - reported
        named = [
            _fact("negotiate_open", _text(r, own, r in reported), _since(own, window), (r,), self._source(r, own))
            for r in sorted(suspects - self._told)
            for own in [[w for w in waits if w.rank == r]]
        ]
        if waits and not stopped and not self._told:
            text = "every rank that is waited for waits itself: they wait for one another in a circle"
            named.append(_fact("negotiate_open", text, _since(waits, window), (), self._source(None, waits)))
        self._told |= suspects
        yield from named
        if named:  # not before them: it explains, and opens no incident
            text = f"{len(waiting)} of {len(everyone)} ranks wait in operations that cannot end"
            yield _fact("no_progress", text, max(f.ts for f in named), (), named[0].source)

    def _waits_in_groups(self) -> Iterator[Wait]:
        """A rank waits in a group for all who have not enqueued the collective that it has to complete next."""
        for group in sorted(self._progress):
            by_rank = self._progress[group]
            waiting = {r: p for r, p in by_rank.items() if p.enqueued > p.completed and not p.pairs}
            for rank in sorted(self._members[group]):
                mine = by_rank.get(rank)
                for_it = {r: p for r, p in waiting.items() if r != rank and (mine is None or mine.enqueued <= p.completed)}
                if not for_it:
                    continue
                since = min((p.since for p in for_it.values() if p.since is not None), default=None)
                ahead = None if mine is None else max(p.enqueued for p in for_it.values()) - mine.enqueued
                yield Wait(rank, self._titles[group], tuple(sorted(for_it)), since, ahead)

    def _waits_for_peers(self) -> Iterator[Wait]:
        """Open sends and receives; where both sides are there, it is the connection that does not move."""
        for (rank, peer), (title, since) in sorted(self._peers.items()):
            if (peer, rank) not in self._peers:
                yield Wait(peer, title, (rank,), since, None)

    def _mismatches(self, window: Window) -> Iterator[Fact]:
        """Ranks whose next collective of the same number in the same group is another one."""
        for group in sorted(self._progress.keys() - self._differing):
            by_sequence: dict[int, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
            for rank, p in sorted(self._progress[group].items()):
                if p.sequence is not None and p.op:
                    by_sequence[p.sequence][p.op, p.sizes if p.op in EQUAL_SIZES else ""].append(rank)
            for sequence, kinds in sorted(by_sequence.items()):
                if len(kinds) < 2:
                    continue
                self._differing.add(group)
                odd = min(kinds.items(), key=lambda item: (len(item[1]), item[1]))[1]
                told = "; ".join(f"{op} {sizes}".strip() + f" on {_few(ranks)}" for (op, sizes), ranks in kinds.items())
                text = f"collective {sequence} of {self._titles[group]} is not the same on all ranks: {told}"
                ranks = tuple(odd) if 2 * len(odd) < sum(map(len, kinds.values())) else ()
                yield _fact("log_mismatch", text, window.start, ranks, self._sources.get(odd[0], ""))

    def _source(self, rank: int | None, waits: list[Wait]) -> str:
        """Its own report, else that of the first rank that waits."""
        if rank in self._sources:
            return self._sources[rank]
        return next((self._sources[r] for w in waits for r in w.waiting if r in self._sources), "")


def _since(waits: Iterable[Wait], window: Window) -> float:
    return min((w.since for w in waits if w.since is not None), default=window.start)


def _fact(name: str, text: str, ts: float, ranks: tuple[int, ...], source: str) -> Fact:
    is_proof = name != "no_progress"
    return Fact(
        ts=ts,
        name=name,
        role="root" if is_proof else "context",
        hard=is_proof,
        channel="pace",
        text=text,
        ranks=ranks,
        source=source,
        kind="telemetry",
    )


def _text(rank: int, waits: list[Wait], has_reported: bool) -> str:
    waiting = sorted({r for w in waits for r in w.waiting})
    groups = list(dict.fromkeys(w.title for w in sorted(waits, key=lambda w: (-len(w.waiting), w.title))))
    behind = max((w.behind for w in waits if w.behind is not None), default=None)
    where = ", ".join(groups[:MOST_NAMED]) + (f" and {len(groups) - MOST_NAMED} more" if len(groups) > MOST_NAMED else "")
    lag = f", which are up to {behind} collectives ahead" if behind is not None and behind > 0 else ""
    mark = "waits for nobody itself" if has_reported else "left no dump"
    return f"rank {rank} stopped taking part: {_few(waiting)} wait for it in {where}{lag}; it {mark}"


def _few(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:MOST_NAMED]))
    if len(ranks) == 1:
        return f"rank {shown}"
    return f"ranks {shown}" + (f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else "")


def _whole(fields: dict[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


def _seconds(fields: dict[str, str]) -> float | None:
    text = fields.get("since", "")
    return float(text) if re.fullmatch(r"\d{1,12}(?:\.\d{1,20})?", text) else None
