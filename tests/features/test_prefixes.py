"""Prefixes of launchers and platforms: who wrote a line, and pieces of lines put together again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.parsers.prefixes import Peeled, Piece, TagJoiner, peel, peel_label, strip_escapes


def join(*lines: str) -> list[Piece]:
    """Logical lines of a file of physical ones, numbered from 1."""
    joiner = TagJoiner()
    pieces = [piece for number, line in enumerate(lines, start=1) for piece in joiner.feed(number, line)]
    return pieces + list(joiner.finish())


@pytest.mark.parametrize(
    ("line", "rank", "stream", "text"),
    [
        ("[3]<stdout>:ready", 3, "stdout", "ready"),
        ("[1,12]<stderr>:  File x", 12, "stderr", "  File x"),
        ("[prterun-alpha-7@1,4]<stdout>: ready", 4, "stdout", "ready"),
        ("Fri Sep 28 11:14:00 2018[1,5]<stderr>:late", 5, "stderr", "late"),
        ("[0]<stdout>:", 0, "stdout", ""),
        ("[0]<stdout>: indented", 0, "stdout", " indented"),
    ],
)
def test_tag_names_rank_and_stream(line: str, rank: int, stream: str, text: str) -> None:
    assert join(line) == [Piece(1, text, rank, stream)]


def test_line_without_tag_is_the_launchers_own() -> None:
    assert join("Process 3 went away") == [Piece(1, "Process 3 went away")]


def test_tag_repeated_at_every_write_is_taken_out() -> None:
    line = "[1,0]<stderr>:[[1,0]<stderr>:2031-04-05 06:07:08[1,0]<stderr>:.[1,0]<stderr>:125: W x.cc:9] slow"
    assert join(line) == [Piece(1, "[2031-04-05 06:07:08.125: W x.cc:9] slow", 0, "stderr")]


def test_pieces_of_two_ranks_in_one_line_are_told_apart() -> None:
    pieces = join(
        "[1,1]<stdout>:alpha [1,0]<stdout>:one [1,1]<stdout>:beta[1,0]<stdout>:two[1,1]<stdout>: gamma",
        "[1,0]<stdout>: three",
    )
    assert pieces == [Piece(1, "alpha beta gamma", 1, "stdout"), Piece(1, "one two three", 0, "stdout")]


def test_streams_of_one_rank_are_told_apart() -> None:
    pieces = join("[1,0]<stdout>:out [1,0]<stderr>:err", "[1,0]<stdout>:put")
    assert pieces == [Piece(1, "err", 0, "stderr"), Piece(1, "out put", 0, "stdout")]


def test_end_of_line_that_comes_with_its_own_tag() -> None:
    assert join("[1,0]<stdout>:almost[1,0]<stdout>:", "[1,0]<stdout>:next") == [
        Piece(1, "almost", 0, "stdout"),
        Piece(2, "next", 0, "stdout"),
    ]


def test_unfinished_pieces_come_at_the_end_in_order() -> None:
    pieces = join("[1,2]<stdout>:b[1,1]<stdout>:a[1,0]<stdout>:done", "[1,1]<stdout>:c[1,0]<stdout>:more")
    assert pieces == [
        Piece(1, "done", 0, "stdout"),
        Piece(2, "more", 0, "stdout"),
        Piece(1, "b", 2, "stdout"),
        Piece(1, "ac", 1, "stdout"),
    ]


def test_what_a_platform_puts_before_the_tag_stays_in_front() -> None:
    line = "2031-04-05T06:07:08Z: [1,7]<stdout>:fine"
    assert join(line) == [Piece(1, "2031-04-05T06:07:08Z: fine", 7, "stdout")]


@pytest.mark.parametrize(
    ("text", "peeled"),
    [
        ("[rank3]: Oh", Peeled(3, None, "Oh")),
        ("[rank3]:     raise", Peeled(3, None, "    raise")),
        ("[default1]:Oh", Peeled(1, None, "Oh")),
        ("[80123] [rank2]: Oh", Peeled(None, None, "[rank2]: Oh")),
        ("(TrainWorker pid=77, ip=10.1.2.3) Oh", Peeled(None, "10.1.2.3", "Oh")),
        ("(TrainWorker pid=77) Oh", Peeled(None, None, "Oh")),
        ("master.0 -- Oh", Peeled(None, None, "Oh")),
        ("train.2.abc@node7    | Oh", Peeled(None, "node7", "Oh")),
        ("worker-1  | Oh", Peeled(None, None, "Oh")),
        ("node7: [2031-04-05 06:07:08] Oh", Peeled(None, "node7", "[2031-04-05 06:07:08] Oh")),
        ("stderr F Oh", Peeled(None, None, "Oh")),
        ("kern  :warn  : Oh", Peeled(None, None, "Oh")),
        ("node7 kernel: Oh", Peeled(None, "node7", "Oh")),
    ],
)
def test_prefixes_of_platforms(text: str, peeled: Peeled) -> None:
    assert peel(text) == peeled


@pytest.mark.parametrize("text", ["", "Oh", "  raise x", "[3] Oh", "a | b", "step 3 | loss 2", "kernel panic", "(see below)"])
def test_ordinary_text_has_no_prefix(text: str) -> None:
    assert peel(text) is None


def test_labels_of_srun() -> None:
    assert peel_label("12: Oh", sure=False) == Peeled(12, None, "Oh")
    assert peel_label(" 3: Oh", sure=False) == Peeled(3, None, "Oh")
    assert peel_label("3 Oh", sure=True) is None


def test_list_of_stalled_ranks_is_no_label_unless_labels_are_known() -> None:
    assert peel_label("3: [grad.a, grad.b ...]", sure=False) is None
    assert peel_label("3: [grad.a]", sure=True) == Peeled(3, None, "[grad.a]")
    assert peel_label("3: [2031-04-05] begin", sure=False) == Peeled(3, None, "[2031-04-05] begin")


def test_colours_and_titles_are_stripped() -> None:
    assert strip_escapes("\x1b[2m\x1b[36m(W pid=1)\x1b[0m ok \x1b]0;title\x07end") == "(W pid=1) ok end"


@given(st.lists(st.tuples(st.integers(0, 3), st.text("abc ", min_size=1, max_size=4)), min_size=1, max_size=30))
def test_every_interleaving_gives_each_rank_its_text(writes: list[tuple[int, str]]) -> None:
    """Ranks write pieces in any order into one line, then each ends its own."""
    line = "".join(f"[1,{rank}]<stdout>:{text}" for rank, text in writes) + "[1,9]<stdout>:."
    ends = [f"[1,{rank}]<stdout>:" for rank in range(4)]
    found = {piece.rank: piece.text for piece in join(line, *ends)}
    for rank in range(4):
        assert found[rank] == "".join(text for r, text in writes if r == rank)


@given(st.lists(st.text("[]<>,:19 stdouerx@.", max_size=40), max_size=6))
def test_any_text_is_survived_and_none_is_lost(lines: list[str]) -> None:
    pieces = join(*lines)
    assert all(0 < piece.number <= len(lines) for piece in pieces)
    if not any("]<std" in line for line in lines):
        assert [piece.text for piece in pieces] == lines
