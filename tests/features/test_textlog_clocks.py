"""Times of text lines: every form in which training, launcher and kernel logs write them."""

from __future__ import annotations

import pytest

from features.notices import Notices
from features.parsers.clocks import Clock
from features.parsers.textlog import FROM_BOOT, NO_DATE, NO_YEAR, NO_ZONE, TextLog

T0 = 1933135628.0  # 2031-04-05 06:07:08 UTC


@pytest.mark.parametrize(
    ("text", "ts", "missing"),
    [
        ("2031-04-05T06:07:08.125000+00:00 x", T0 + 0.125, ""),
        ("2031-04-05T06:07:08Z x", T0, ""),
        ("2031-04-05T06:07:08,283302+00:00 x", T0 + 0.283302, ""),
        ("2031-04-05T08:07:08.5+02:00 x", T0 + 0.5, ""),
        ("2031-04-05 00:37:08 -0530 x", T0, ""),
        ("2031-04-05 06:07:08 UTC master.0 -- x", T0, ""),
        ("2031-04-05T06:07:08.123456789Z x", T0 + 0.123456789, ""),
        ("2031-04-05 06:07:08,125 - x", T0 + 0.125, "zone"),
        ("[2031-04-05 06:07:08.125456: W a/b.cc:7] x", T0 + 0.125456, "zone"),
        ("[2031-04-05 06:07:08. 89665: W a/b.cc:7] x", T0 + 0.089665, "zone"),
        ("[2031-04-05 06:07:08.     5: W a/b.cc:7] x", T0 + 0.000005, "zone"),
        ("2031-04-05,06:07:08 | INFO | x", T0, "zone"),
        ("2031/04/05 06:07:08.780 x", T0 + 0.78, "zone"),
        ("04/05/2031 06:07:08 - INFO - x", T0, "zone"),
        ("13/05/2031 06:07:08 x", T0 + 38 * 86400, "zone"),
        ("INFO 2031-04-05 06:07:08,125 x", T0 + 0.125, "zone"),
        ("[Sat Apr  5 06:07:08 2031] NVRM: x", T0, "zone"),
        ("Sat Apr 05 06:07:08 2031 x", T0, "zone"),
        ("[Sa 5. April 06:07:08 2031] x", T0, "zone"),
        ("[sáb abr  5 06:07:08 2031] x", T0, "zone"),
        ("[六 4月  5 06:07:08 2031] x", T0, "zone"),
        ("I20310405 06:07:08.125 77 a.py:1] x", T0 + 0.125, "zone"),
        ("1933135628 x", T0, ""),
        ("1933135628.25 x", T0 + 0.25, ""),
        ("1933135628250: x", T0 + 0.25, ""),
        ("1933135628250000 x", T0 + 0.25, ""),
        ("I0405 06:07:08.125 77 a.py:1] x", 71302028.125, "year"),
        ("[E405 06:07:08.125456789 P.cpp:1] x", 71302028.125456789, "year"),
        ("Apr  5 06:07:08 alpha kernel: x", 71302028.0, "year"),
        ("[ 1843.308145] x", 1843.308145, "boot"),
        ("[131453.740743] x", 131453.740743, "boot"),
        ("06:07:08,125 INFO x", 22028.125, "date"),
        ("[06:07:08] x", 22028.0, "date"),
    ],
)
def test_form(text: str, ts: float, missing: str) -> None:
    stamp = Clock().read(text)
    assert stamp is not None
    assert stamp.ts == pytest.approx(ts, abs=1e-9)
    assert stamp.missing == missing


@pytest.mark.parametrize(
    "text",
    [
        "",
        "step 3 of 5",
        "2031-13-05 06:07:08 x",
        "2031-04-05 26:07:08 x",
        "[Sat Foo  5 06:07:08 2031] x",
        "99:07:08 x",
        "1933135628",
        "I0231 06:07:08.1 x",
        "x" * 500 + " 2031-04-05 06:07:08",
    ],
)
def test_no_time(text: str) -> None:
    assert Clock().read(text) is None


def test_time_within_a_message_counts_as_its_own() -> None:
    stamp = Clock().read("slurmstepd: error: *** STEP 9.0 ON beta CANCELLED AT 2031-04-05T06:07:08 ***")
    assert stamp is not None
    assert stamp.ts == T0


def test_year_comes_from_an_earlier_time_and_grows_over_new_year() -> None:
    clock = Clock()
    clock.read("2031-12-31 23:59:58 x")
    before, after = clock.read("I1231 23:59:59.5 x"), clock.read("I0101 00:00:01.5 x")
    assert before is not None
    assert after is not None
    assert after.ts - before.ts == 2.0
    assert before.missing == "zone"


def test_date_comes_from_an_earlier_time_and_grows_over_midnight() -> None:
    clock = Clock()
    clock.read("2031-04-05 23:59:58 x")
    before, after = clock.read("23:59:59 x"), clock.read("00:00:01 x")
    assert before is not None
    assert after is not None
    assert after.ts - before.ts == 2.0


def test_leap_day_without_year_exists() -> None:
    assert Clock().read("I0229 06:07:08.125 x") is not None


def parse(text: str) -> tuple[TextLog, list[float | None], list[str]]:
    """Parser, times of the records, and texts of the notices."""
    notices = Notices()
    parser = TextLog("run.log", notices)
    records = parser.feed(text.encode()) + parser.finish()
    return parser, [record.ts for record in records], [notice.text for notice in notices.items()]


@pytest.mark.parametrize(
    ("line", "zoned", "absolute", "notices"),
    [
        ("2031-04-05T06:07:08Z Killed", True, True, []),
        ("2031-04-05 06:07:08 CUDA out of memory.", False, True, [NO_ZONE]),
        ("I0405 06:07:08.125 77 a.py:1] CUDA out of memory.", False, False, [NO_YEAR]),
        ("[06:07:08] CUDA out of memory.", False, False, [NO_DATE]),
        ("[ 1843.308145] Out of memory: Killed process 7 (python)", False, False, [FROM_BOOT]),
        ("CUDA out of memory.", True, False, []),
    ],
)
def test_what_a_form_does_not_say_is_told(line: str, zoned: bool, absolute: bool, notices: list[str]) -> None:
    parser, times, texts = parse(line + "\n")
    assert len(times) == 1
    assert (parser.zoned, parser.absolute, texts) == (zoned, absolute, notices)


def test_platform_and_program_time_of_the_same_moment_give_the_finer_one() -> None:
    _, times, texts = parse("2031-04-05T06:07:08Z [2031-04-05 06:07:08.250000: W a.cc:1] CUDA out of memory.\n")
    assert times == [T0 + 0.25]
    assert texts == []  # the zone is known from the platform


def test_zone_of_the_platform_wins_over_a_local_time() -> None:
    _, times, _ = parse("2031-04-05T06:07:08Z [2031-04-05 08:07:08.250000: W a.cc:1] CUDA out of memory.\n")
    assert times == [T0]


def test_seconds_since_boot_do_not_mix_with_dates() -> None:
    text = "2031-04-05T06:07:08Z hello\n[ 1843.308145] Out of memory: Killed process 7 (python)\n"
    _, times, _ = parse(text)
    assert times == [T0]
