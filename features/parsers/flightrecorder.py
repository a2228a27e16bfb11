"""PyTorch Flight Recorder dumps: how far each rank came in each process group, and what it was waiting in."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from features.notices import Notices
from features.parsers.flightrecorder_plain import NotPlain, load_plain
from features.parsers.protocol import ParserRow
from features.records import Log, Record, RunInfo

KIND: Final = "flightrecorder"
EVENT: Final = "collective_progress"
CAP: Final = 256 << 20
"""Bytes of one dump; 20,000 entries with all their stacks take a fifth of it."""
NS_PER_S: Final = 1e9
NO_RANK: Final = "a dump that does not tell whose it is: give its file a name that ends in the rank"
NO_GROUPS: Final = "a dump without process groups or entries"
UNMATCHED: Final = "progress of process groups that cannot be told apart left out"
_NUMBER: Final = re.compile(r"(\d{1,7})(?:\.(?:pkl|pickle|json|bin|dump))?$")
_PEER: Final = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")
_KEYS: Final = (b"pg_config", b"pg_status", b"entries")


class FlightRecorder:
    """One dump, one rank. Gives a Log for each process group, with what the rank enqueued and completed there.

    Fields of such a Log: group, title, members, enqueued, completed; op, sizes, sequence and since of the oldest collective
    that is open; `pairs` = "true" where only sends and receives are open, each of which has a Log of its own with `peer`.
    Nothing in a dump can run: see flightrecorder_plain.
    """

    absolute = True

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Record]:
        """Take bytes, cut anywhere; a dump means something only as a whole."""
        self._size += len(data)
        if self._size <= CAP:
            self._parts.append(data)
        return []

    def finish(self) -> list[Record]:
        """All records."""
        data, self._parts = b"".join(self._parts), []
        if self._size > CAP:
            self._note("error", f"dump of more than {CAP >> 20} MiB not read")
            return []
        try:
            dump = json.loads(data) if data.lstrip()[:1] == b"{" else load_plain(data)
        except NotPlain as error:
            self._note("error", f"pickle refused: it {error}")
            return []
        except (ValueError, RecursionError) as error:
            self._note("error", f"damaged JSON ({type(error).__name__})")
            return []
        return self._records(dump) if isinstance(dump, dict) else self._nothing()

    def _nothing(self) -> list[Record]:
        self._note("warning", NO_GROUPS)
        return []

    def _note(self, level: Any, text: str) -> None:
        self._notices.add(level, text, file=self._file)

    def _records(self, dump: dict[Any, Any]) -> list[Record]:
        groups = _groups(_table(dump.get("pg_config")))
        entries = [e for e in _list(dump.get("entries")) if isinstance(e, dict)]
        rank = _rank_of(self._file, dump, groups)
        if not groups and not entries:
            return self._nothing()
        if rank is None:
            self._note("error", NO_RANK)
            return []
        newest = max((t for e in entries if (t := _time(e)) is not None), default=None)
        info = self._about(dump, groups, newest)
        progress = dict(self._progress(dump, groups, entries))
        logs = [_log(rank, name, progress[name], groups.get(name), newest, self._file) for name in sorted(progress, key=_order)]
        pairs = [_wait_for_peer(rank, e, groups, newest, self._file) for e in entries]
        return [*info, *logs, *(p for p in pairs if p is not None)]

    def _about(self, dump: dict[Any, Any], groups: Mapping[str, _Group], newest: float | None) -> list[Record]:
        settings = {f"{k}": str(dump[k]) for k in ("nccl_version",) if isinstance(dump.get(k), str)}
        world = max((len(g.members) for g in groups.values()), default=0)
        whole = any(g.members == tuple(range(world)) for g in groups.values())
        if newest is None or not (settings or whole):
            return []
        return [RunInfo(ts=newest, world_size=world if whole else None, settings=settings, source=self._file)]

    def _progress(
        self, dump: dict[Any, Any], groups: Mapping[str, _Group], entries: list[dict[Any, Any]]
    ) -> Iterator[tuple[str, _Progress]]:
        """Group -> progress: from the dump's own summary where it has one, else from the operations it remembers."""
        by_group: dict[str, list[dict[Any, Any]]] = {}
        for e in entries:
            by_group.setdefault(_group_of(e), []).append(e)
        status = _table(dump.get("pg_status"))
        names = _names_of_ids(status, groups, entries)
        if len(names) < len(status):
            self._notices.add("warning", UNMATCHED, file=self._file, count=len(status) - len(names))
        for group_id, name in names.items():
            told = _table(status[group_id])
            enqueued, completed = _whole(told.get("last_enqueued_collective")), _whole(told.get("last_completed_collective"))
            if enqueued is not None and completed is not None:
                yield name, _Progress(enqueued, completed, _open(by_group.get(name, [])))
        if not status:
            for name, own in by_group.items():
                done = [s for e in own if e.get("state") == "completed" and (s := _sequence(e)) is not None]
                numbers = [s for e in own if not e.get("is_p2p") and (s := _sequence(e)) is not None]
                if numbers:
                    yield name, _Progress(max(numbers), max(done, default=min(numbers) - 1), _open(own))


class _Group(msgspec.Struct):
    """A process group as one rank knows it."""

    title: str
    members: tuple[int, ...]


class _Progress(msgspec.Struct):
    """How far a rank came in one group."""

    enqueued: int
    completed: int
    open_entries: list[dict[Any, Any]]


def _table(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _groups(config: dict[Any, Any]) -> dict[str, _Group]:
    """Name -> group; members come as a list or as the text of one."""
    out = {}
    for name, told in config.items():
        ranks = _table(told).get("ranks")
        numbers = (
            re.findall(r"\d{1,7}", ranks) if isinstance(ranks, str) else [r for r in _list(ranks) if _whole(r) is not None]
        )
        out[str(name)] = _Group(str(_table(told).get("desc", "")), tuple(sorted({int(n) for n in numbers})))
    return out


def _rank_of(file: str, dump: dict[Any, Any], groups: Mapping[str, _Group]) -> int | None:
    """The rank as the dump says it, as its file's name ends, or as the only one that all its groups share."""
    told = _whole(dump.get("rank"))
    if told is not None:
        return told
    known = [set(g.members) for g in groups.values() if g.members]
    shared = set.intersection(*known) if known else set()
    found = _NUMBER.search(file)
    if found is not None and (not shared or int(found[1]) in shared):
        return int(found[1])
    return next(iter(shared)) if len(shared) == 1 else None


def _group_of(entry: dict[Any, Any]) -> str:
    named = _list(entry.get("process_group"))
    return str(named[0]) if named else str(entry.get("pg_id", ""))


def _names_of_ids(status: dict[Any, Any], groups: Mapping[str, _Group], entries: list[dict[Any, Any]]) -> dict[Any, str]:
    """Id of a group on this rank -> its name in the job.

    A rank numbers the groups it is a member of as they are made, and so does the job: where there are as many of both, the
    order tells which is which, unless an entry, which names both, contradicts it.
    """
    told = {str(e["pg_id"]): _group_of(e) for e in entries if "pg_id" in e and _list(e.get("process_group"))}
    ids = sorted(status, key=_order)
    names = sorted(groups, key=_order)
    if len(ids) == len(names) and all(n.isdecimal() for n in names):
        in_order = dict(zip(ids, names, strict=True))
        if all(in_order.get(i, name) == name for i, name in told.items()):
            return in_order
    return {i: told[str(i)] for i in ids if str(i) in told}


def _order(name: object) -> tuple[int, str]:
    text = str(name)
    return (int(text), "") if text.isdecimal() else (-1, text)


def _time(entry: dict[Any, Any]) -> float | None:
    ns = entry.get("time_created_ns")
    is_time = isinstance(ns, (int, float)) and not isinstance(ns, bool) and math.isfinite(ns)
    return ns / NS_PER_S if isinstance(ns, (int, float)) and is_time else None


def _sequence(entry: dict[Any, Any]) -> int | None:
    found = _whole(entry.get("collective_seq_id"))
    return found if found is not None else _whole(entry.get("seq_id"))


def _is_open(entry: dict[Any, Any]) -> bool:
    return entry.get("state") in ("scheduled", "started") and not entry.get("retired")


def _open(entries: Iterable[dict[Any, Any]]) -> list[dict[Any, Any]]:
    return [e for e in entries if _is_open(e)]


def _oldest(entries: Iterable[dict[Any, Any]]) -> dict[str, str]:
    """Fields that tell of the oldest collective among these."""
    numbered = [(s, e) for e in entries if not e.get("is_p2p") and (s := _sequence(e)) is not None]
    if not numbered:
        return {}
    sequence, entry = min(numbered, key=lambda pair: pair[0])
    since = _time(entry)
    fields = {"op": str(entry.get("profiling_name", "")).rpartition(":")[2], "sizes": str(entry.get("input_sizes", ""))}
    return {k: v[:80] for k, v in fields.items()} | {"sequence": str(sequence)} | _since(since)


def _since(when: float | None) -> dict[str, str]:
    return {} if when is None else {"since": repr(when)}


def _log(rank: int, name: str, progress: _Progress, group: _Group | None, newest: float | None, file: str) -> Log:
    title = group.title if group is not None else ""
    fields = {"group": name, "title": title, "enqueued": str(progress.enqueued), "completed": str(progress.completed)}
    fields["members"] = " ".join(map(str, group.members)) if group is not None else ""
    if progress.enqueued > progress.completed:
        fields |= _oldest(progress.open_entries)
        if progress.open_entries and all(e.get("is_p2p") for e in progress.open_entries):
            fields["pairs"] = "true"
    text = f"rank {rank} in group {name} {title}: {progress.enqueued} enqueued, {progress.completed} completed"
    return Log(ts=newest, event=EVENT, text=text, rank=rank, fields=fields, source=file)


def _wait_for_peer(
    rank: int, entry: dict[Any, Any], groups: Mapping[str, _Group], newest: float | None, file: str
) -> Log | None:
    """A send or receive that is still open; its peer is a number within the group."""
    found = _PEER.search(str(entry.get("profiling_name", ""))) if entry.get("is_p2p") and _is_open(entry) else None
    group = groups.get(_group_of(entry))
    if found is None or group is None or int(found[3]) >= len(group.members):
        return None
    peer = group.members[int(found[3])]
    fields = {"group": _group_of(entry), "title": group.title, "peer": str(peer), "op": found[1], **_since(_time(entry))}
    text = f"rank {rank} in group {_group_of(entry)} {group.title}: {found[1]} with rank {peer} is open"
    return Log(ts=newest, event=EVENT, text=text, rank=rank, fields=fields, source=file)


def lay_together(dumps: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """The dumps of one hang at one time: the newest that any of them knows.

    All ranks dump together, when the first of them gives up; what a dump holds are times of operations, and a rank that
    completed everything has none at all.
    """
    newest = max((r.ts for records in dumps for r in records if r.ts is not None), default=None)
    if newest is None:
        return [list(records) for records in dumps]
    return [[msgspec.structs.replace(r, ts=newest) for r in records] for records in dumps]


def sniff(head: bytes) -> bool:
    """Whether these first bytes are a dump: a pickle, or JSON, whose keys are those of a dump."""
    is_pickle = head[:1] == b"\x80" and head[1:2] <= b"\x05"
    return (is_pickle or head.lstrip()[:1] == b"{") and any(key in head for key in _KEYS) and b"nccl" in head


FR_ROWS: Final = (ParserRow(KIND, sniff, FlightRecorder),)
