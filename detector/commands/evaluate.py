"""`rankwatch evaluate`: how well detection works on labelled runs, measured honestly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detector.commands.options import bundle_option, format_option, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from detector.evaluation import GradedRun

    Row = dict[str, object]


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@format_option
@click.option("--seed", default=7, show_default=True, help="Seed of everything random.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option(
    "--keep", type=click.Path(path_type=Path), default=None, help="Write each bundle here, for `score --unseen-bundle`."
)
@click.option(
    "--cases",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Judge cases with sidecars instead.",
)
@bundle_option
def command(
    runs: tuple[Path, ...], form: str, seed: int, jobs: int, keep: Path | None, cases: Path | None, bundle: Path | None
) -> None:
    """Judge each labelled run below RUNS by a bundle trained on all the others; then again with each source left out.

    A fault counts as found when an incident above "info" starts within it (5 s early and 10 s late are allowed); rank and
    category are those of the first such incident. In healthy runs every incident above "info" is a false alarm.

    With --cases, score single inputs that come with a sidecar instead: category and culprit of the first incident.
    """
    if bool(runs) == (cases is not None):
        raise click.UsageError("name directories of labelled runs, or --cases DIR")
    if cases is not None:
        _cases(cases, bundle, form)
        return
    from detector.evaluation import by_fault, evaluate, graded_table, records_of, summary
    from detector.learning import gather

    found = gather(runs=runs)
    with progress_bar("judging", len(found)) as done:
        graded = evaluate(found, seed=seed, jobs=jobs, keep=keep, progress=done)
    table = graded_table(graded)
    if form == "table":
        _show(graded, records_of(by_fault(table)), records_of(summary(table)))
        return
    import msgspec

    if form == "jsonl":
        for row in graded:
            click.echo(msgspec.json.encode(row).decode())
    else:
        document = {"runs": graded, "faults": records_of(by_fault(table)), "summary": records_of(summary(table))}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _cases(place: Path, bundle: Path | None, form: str) -> None:
    import msgspec

    from detector.render import stdout_console
    from detector.sidecars import judge_cases, read_sidecars
    from detector.wiring import score

    sidecars = read_sidecars(place)
    with progress_bar("judging", len(sidecars)) as done:
        judged = []
        for case in judge_cases(sidecars, lambda path: score(path, bundle=bundle)):
            judged.append(case)
            done(case.name)
    rows: list[Row] = [msgspec.structs.asdict(case) for case in judged]
    if form == "jsonl":
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
        return
    totals = _case_totals(rows)
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode({"cases": rows, "summary": totals}), indent=2).decode())
        return
    shown = [{**row, **{name: _mark(row[name]) for name in ("is_confirmed", "category", "culprit")}} for row in rows]  # type: ignore[arg-type]
    heads = {"name": "case", "expected": "expected", "is_confirmed": "confirmed", "said": "said", "category": "category"}
    console = stdout_console()
    console.print(_table("each case", {**heads, "culprit": "culprit"}, shown))
    console.print(_table("summary", {"what": "what", "right": "right", "of": "of"}, totals))


def _case_totals(rows: Sequence[Row]) -> list[Row]:
    faulty = [r for r in rows if r["expected"] != "healthy"]
    groups = {
        "category, cause confirmed": [r["category"] for r in faulty if r["is_confirmed"]],
        "category, cause not confirmed": [r["category"] for r in faulty if not r["is_confirmed"]],
        "healthy, no incident": [r["category"] for r in rows if r["expected"] == "healthy"],
        "culprit named": [r["culprit"] for r in rows if r["culprit"] is not None],
    }
    return [{"what": what, "right": sum(map(bool, values)), "of": len(values)} for what, values in groups.items()]


def _show(graded: Sequence[GradedRun], faults: Sequence[Row], totals: Sequence[Row]) -> None:
    from detector.render import stdout_console

    console = stdout_console()
    console.print(_run_table(graded))
    heads = {"fault": "fault", **{n: n for n in ("runs", "found", "rank", "category", "cause")}}
    console.print(_table("by fault, all sources", {**heads, "median_delay_s": "median delay s"}, faults))
    heads = {n: n for n in ("faulty", "found", "rank", "category", "cause")} | {"median_delay_s": "median delay s"}
    heads |= {"false_alarms_faulty": "false in faulty", "healthy": "healthy", "false_alarms_healthy": "false in healthy"}
    named = [{**row, "without": row["without"] or "nothing"} for row in totals]
    heads = {
        "without": "left out",
        **heads,
        "healthy_hours": "healthy hours",
        "false_alarms_per_hour": "false per hour",
        "extra": "extra",
    }
    console.print(_table("summary, by what was left out", heads, named))


def _run_table(graded: Sequence[GradedRun]) -> Table:
    from rich.table import Table

    table = Table(title="each run by a bundle that has not seen it, all sources", title_justify="left")
    for column in ("run", "fault", "found", "rank", "category", "delay s", "false", "said", "sure"):
        table.add_column(column, justify="right" if column in ("delay s", "false", "sure") else "left")
    for row in (r for r in graded if r.without is None):
        g = row.grade
        sure = "" if g.confidence is None else f"{g.confidence:.2f}"
        delay = "" if g.delay_s is None else f"{g.delay_s:.1f}"
        marks = [_mark(g.found), _mark(g.rank), _mark(g.category)]
        table.add_row(row.name, row.fault, *marks, delay, str(g.false_alarms or ""), g.said, sure)
    return table


def _table(title: str, heads: dict[str, str], rows: Sequence[Row]) -> Table:
    """A table of these columns; the first holds names."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, head in enumerate(heads.values()):
        table.add_column(head, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*("-" if row[name] is None else str(row[name]) for name in heads))
    return table


def _mark(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "NO"
