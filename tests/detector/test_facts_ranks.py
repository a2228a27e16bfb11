"""Ranks that stopped taking part: who is waited for and waits for nobody."""

from __future__ import annotations

from detector.facts_ranks import StoppedRanks
from features.measures.table import RunMemory
from features.records import Log
from features.windows import Window


def report(rank: int, group: str, enqueued: int, completed: int, members: str, **fields: str) -> Log:
    told = {"group": group, "title": group.upper(), "members": members, "enqueued": str(enqueued), "completed": str(completed)}
    return Log(ts=50.0, event="collective_progress", text="", rank=rank, fields=told | fields, source=f"dump_{rank}")


def pair(rank: int, peer: int, since: float = 40.0) -> Log:
    told = {"group": "pp", "title": "PP", "peer": str(peer), "op": "recv", "since": repr(since)}
    return Log(ts=50.0, event="collective_progress", text="", rank=rank, fields=told, source=f"dump_{rank}")


def window(*logs: Log) -> Window:
    return Window(index=50, start=50.0, end=51.0, until=51.0, logs=list(logs))


def named(*logs: Log) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.name, f.ranks) for f in StoppedRanks().of(window(*logs), RunMemory())]


def test_the_rank_that_came_least_far_is_named() -> None:
    logs = [report(r, "dp", 7, 5, "0 1 2 3", since="41.5") for r in (0, 1, 3)] + [report(2, "dp", 5, 5, "0 1 2 3")]
    facts = StoppedRanks().of(window(*logs), RunMemory())
    assert [(f.name, f.ranks, f.role, f.hard, f.ts) for f in facts] == [
        ("negotiate_open", (2,), "root", True, 41.5),
        ("no_progress", (), "context", False, 41.5),
    ]
    assert facts[0].text == (
        "rank 2 stopped taking part: ranks 0, 1, 3 wait for it in DP, which are up to 2 collectives ahead; "
        "it waits for nobody itself"
    )
    assert facts[0].source == "dump_2"
    assert facts[1].text == "3 of 4 ranks wait in operations that cannot end"


def test_who_waits_itself_is_a_victim() -> None:
    """Rank 1 is behind in the whole job because it waits for rank 2 in its own group."""
    logs = [
        report(0, "all", 9, 8, "0 1 2"),
        report(1, "all", 8, 8, "0 1 2"),
        report(2, "all", 8, 8, "0 1 2"),
        report(1, "tp", 4, 3, "1 2"),
        report(2, "tp", 3, 3, "1 2"),
    ]
    assert named(*logs)[0] == ("negotiate_open", (2,))


def test_a_receive_that_stays_open_points_at_its_peer() -> None:
    logs = [pair(0, 1), report(0, "pp", 9, 8, "0 1", pairs="true"), report(1, "pp", 8, 8, "0 1")]
    assert named(*logs)[0] == ("negotiate_open", (1,))


def test_where_both_sides_are_there_nobody_is_missing() -> None:
    assert named(pair(0, 1), pair(1, 0)) == []
    assert named(*(report(r, "dp", 6, 5, "0 1") for r in (0, 1))) == []


def test_all_done_is_no_finding() -> None:
    assert named(*(report(r, "dp", 5, 5, "0 1") for r in (0, 1))) == []


def test_a_rank_without_a_dump_is_suspected_when_most_have_left_one() -> None:
    logs = [report(r, "dp", 6, 5, "0 1 2 3") for r in (0, 1, 3)]
    facts = StoppedRanks().of(window(*logs), RunMemory())
    assert facts[0].ranks == (2,)
    assert facts[0].text.endswith("it left no dump")
    assert named(report(0, "dp", 6, 5, "0 1 2 3")) == []


def test_a_circle_accuses_nobody() -> None:
    logs = [
        report(0, "a", 2, 1, "0 1"), report(1, "a", 1, 1, "0 1"),
        report(1, "b", 2, 1, "0 1"), report(0, "b", 1, 1, "0 1"),
    ]  # fmt: skip
    facts = StoppedRanks().of(window(*logs), RunMemory())
    assert [(f.name, f.ranks) for f in facts] == [("negotiate_open", ()), ("no_progress", ())]
    assert "in a circle" in facts[0].text


def test_reports_may_come_one_by_one_and_a_rank_is_named_once() -> None:
    watch = StoppedRanks()
    assert watch.of(window(report(0, "dp", 6, 5, "0 1 2")), RunMemory()) == []
    assert [f.ranks for f in watch.of(window(report(2, "dp", 5, 5, "0 1 2")), RunMemory())] == [(2,), ()]
    assert watch.of(window(report(1, "dp", 6, 5, "0 1 2")), RunMemory()) == []
    assert watch.of(window(), RunMemory()) == []


def test_different_collectives_of_one_number_are_a_mismatch() -> None:
    logs = [report(r, "dp", 6, 5, "0 1 2", op="all_reduce", sizes="[[8]]", sequence="6") for r in (0, 1)]
    logs.append(report(2, "dp", 6, 5, "0 1 2", op="broadcast", sizes="[[8]]", sequence="6"))
    (fact,) = StoppedRanks().of(window(*logs), RunMemory())
    assert (fact.name, fact.ranks) == ("log_mismatch", (2,))
    assert (
        fact.text
        == "collective 6 of DP is not the same on all ranks: all_reduce [[8]] on ranks 0, 1; broadcast [[8]] on rank 2"
    )


def test_sizes_of_an_all_to_all_may_differ() -> None:
    logs = [report(r, "ep", 6, 5, "0 1", op="all_to_all", sizes=f"[[{r}]]", sequence="6") for r in (0, 1)]
    assert named(*logs) == []
    logs = [report(r, "ep", 6, 5, "0 1", op="all_reduce", sizes=f"[[{r}]]", sequence="6") for r in (0, 1)]
    assert named(*logs) == [("log_mismatch", ())]


def test_reports_that_make_no_sense_are_passed_over() -> None:
    odd = report(0, "dp", 6, 5, "0 x 1").fields | {"enqueued": "many", "since": "soon"}
    logs = [Log(ts=50.0, event="collective_progress", text="", rank=0, fields=odd)]
    logs += [Log(ts=50.0, event="collective_progress", text="", rank=1, fields={"enqueued": "4", "completed": "3"})]
    assert named(*logs) == []
