"""Notices: counted, located by their first place, and in the order in which they first came."""

from __future__ import annotations

from features.notices import Notice, Notices


def test_the_same_about_the_same_file_is_counted_and_its_first_place_kept() -> None:
    notices = Notices()
    notices.add("warning", "damaged line", file="a.log", place="line 3")
    notices.add("warning", "damaged line", file="a.log", place="line 9")
    notices.add("warning", "damaged line", file="a.log", place="line 1", count=5)
    assert notices.items() == [Notice("warning", "damaged line", "a.log:line 3", 7)]


def test_another_file_level_or_text_is_another_notice() -> None:
    notices = Notices()
    notices.add("warning", "damaged line", file="a.log", place="line 3")
    notices.add("warning", "damaged line", file="b.log", place="line 4")
    notices.add("error", "damaged line", file="a.log", place="line 5")
    notices.add("warning", "no time", file="a.log", place="line 6")
    assert [(n.level, n.text, n.source, n.count) for n in notices.items()] == [
        ("warning", "damaged line", "a.log:line 3", 1),
        ("warning", "damaged line", "b.log:line 4", 1),
        ("error", "damaged line", "a.log:line 5", 1),
        ("warning", "no time", "a.log:line 6", 1),
    ]


def test_they_come_in_the_order_of_their_first_time() -> None:
    notices = Notices()
    for text in ("b", "a", "c", "a", "b"):
        notices.add("info", text, file="f")
    assert [(n.text, n.count) for n in notices.items()] == [("b", 2), ("a", 2), ("c", 1)]


def test_a_notice_about_a_file_as_a_whole_has_no_place() -> None:
    notices = Notices()
    notices.add("info", "no clock", file="timeline.json")
    notices.add("info", "no clock", file="timeline.json", place="line 2")
    assert notices.items() == [Notice("info", "no clock", "timeline.json", 2)]


def test_asking_changes_nothing_and_later_ones_are_added() -> None:
    notices = Notices()
    assert notices.items() == []
    notices.add("info", "x", file="f")
    before = notices.items()
    notices.add("info", "x", file="f")
    assert [n.count for n in before] == [1]
    assert [n.count for n in notices.items()] == [2]
    assert Notices().items() == []
    assert Notice("info", "x", "f") == Notice("info", "x", "f", 1)
