"""Grading: incidents above info that start within the fault are hits, the first one is judged, all others are noise."""

from __future__ import annotations

import math

import pytest

from detector.grading import EARLY_S, LATE_S, Grade, grade, seconds
from detector.labels import Label
from detector.report import Impact, Incident, ModelSummary, Report, RunSummary, Severity, WindowSummary, iso

T0 = 1_772_000_000.0
FAULT = Label(
    fault="slow_rank_compute",
    accept=("compute", "resource"),
    ranks=(2,),
    world_size=4,
    start=T0 + 100,
    end=T0 + 160,
    launch=T0,
    exit=T0 + 1800,
)
HEALTHY = Label(fault="healthy", accept=("healthy",), ranks=(), world_size=4, launch=T0, exit=T0 + 900)


def said(
    at: float,
    cause: str = "compute/slow-rank",
    ranks: tuple[int, ...] = (2,),
    severity: Severity = "warning",
    confidence: float = 0.9,
) -> Incident:
    category, name = cause.split("/")
    return Incident(
        id="i-0",
        category=category,
        cause=name,
        title="",
        confidence=confidence,
        severity=severity,
        ranks=list(ranks),
        nodes=[],
        start=iso(T0 + at) or "",
        end=None,
        first_step=None,
        last_step=None,
        score=None,
        limit=None,
        impact=Impact(lost_s=None, slowdown=None),
        evidence=[],
        fixes=[],
    )


def report(*incidents: Incident) -> Report:
    return Report(
        run=RunSummary(id="r", path="r", world_size=4, nodes=[], start=None, end=None, steps=None, sources=[]),
        model=ModelSummary(id="m", features=1),
        windows=WindowSummary(count=1, length_s=1.0, anomalous=0),
        incidents=list(incidents),
        notices=[],
    )


def with_(**changes: object) -> Label:
    return Label(**{name: changes.get(name, getattr(FAULT, name)) for name in FAULT.__struct_fields__})  # type: ignore[arg-type]


def test_all_right() -> None:
    assert grade(FAULT, report(said(103.26))) == Grade(
        found=True,
        rank=True,
        category=True,
        cause=True,
        delay_s=3.3,
        false_alarms=0,
        extra=0,
        said="compute/slow-rank [2]",
        confidence=0.9,
        hours=0.5,
    )


def test_nothing_said() -> None:
    missed = Grade(found=False, rank=False, category=False, cause=False, hours=0.5)
    assert grade(FAULT, report()) == missed
    assert grade(FAULT, report(said(110, severity="info"))) == missed


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (100 - EARLY_S, True),
        (100 - EARLY_S - 0.1, False),
        (160 + LATE_S, True),
        (160 + LATE_S + 0.1, False),
    ],
)
def test_the_edges_of_a_fault(at: float, found: bool) -> None:
    result = grade(FAULT, report(said(at)))
    assert (result.found, result.false_alarms) == (found, int(not found))


def test_too_early_is_no_negative_delay() -> None:
    assert grade(FAULT, report(said(97))).delay_s == 0.0


def test_a_fault_that_stays_has_no_end() -> None:
    assert grade(with_(end=math.inf), report(said(1700))).found


def test_a_fault_from_the_first_step_may_be_seen_from_the_launch_on() -> None:
    early = report(said(2))
    assert not grade(FAULT, early).found
    assert grade(with_(from_first_step=True), early).found


def test_a_delay_is_unknown_where_the_beginning_is() -> None:
    assert grade(with_(start=-math.inf), report(said(110))).delay_s is None


def test_the_first_in_the_order_of_the_report_is_judged() -> None:
    """The report puts the most serious first; a later warning that is right does not help."""
    wrong, right = said(120, "memory/leak", (0,), "critical"), said(101)
    result = grade(FAULT, report(wrong, right))

    assert (result.found, result.rank, result.category, result.cause, result.extra) == (True, False, False, False, 0)
    assert (result.said, result.delay_s) == ("memory/leak [0]", 20.0)
    assert grade(FAULT, report(right, wrong)).extra == 1


def test_an_accepted_category_is_right_though_the_cause_is_not() -> None:
    result = grade(FAULT, report(said(110, "resource/cpu-quota"), said(120, "compute/all-ranks-slow")))
    assert (result.category, result.cause, result.extra) == (True, False, 0)


def test_hits_are_judged_and_the_rest_are_false_alarms() -> None:
    result = grade(FAULT, report(said(10), said(110), said(500, "memory/leak"), said(600, severity="info")))
    assert (result.found, result.false_alarms, result.extra) == (True, 2, 0)


@pytest.mark.parametrize(
    ("at_fault", "ranks", "right"),
    [
        ((2,), (2,), True),
        ((2,), (2, 0, 1), True),
        ((2,), (0, 2), False),
        ((2,), (), False),
        ((1, 2), (2,), True),
        ((), (), True),
        ((), (0, 1, 2, 3), True),
        ((), (1,), False),
        ((0, 1, 2, 3), (), True),
        ((0, 1, 2, 3), (3,), False),
    ],
)
def test_ranks(at_fault: tuple[int, ...], ranks: tuple[int, ...], right: bool) -> None:
    """The first suspect has to be at fault; a fault of the host or of all ranks names nobody, or everybody."""
    assert grade(with_(ranks=at_fault), report(said(110, ranks=ranks))).rank is right


def test_every_incident_of_a_healthy_run_above_info_is_a_false_alarm() -> None:
    result = grade(HEALTHY, report(said(10), said(20, severity="info"), said(30, "memory/leak", ())))
    assert result == Grade(false_alarms=2, hours=0.25, said="compute/slow-rank [2]; memory/leak []")
    assert grade(HEALTHY, report()) == Grade(hours=0.25)


def test_hours_are_zero_where_nobody_noted_them() -> None:
    assert grade(with_(launch=-math.inf), report()).hours == 0.0
    assert grade(with_(exit=math.inf), report()).hours == 0.0


def test_times_of_reports() -> None:
    assert seconds("1970-01-01T00:00:01.500Z") == 1.5
    assert seconds(iso(T0 + 0.123) or "") == pytest.approx(T0 + 0.123)
