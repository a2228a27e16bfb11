"""`rankwatch evaluate`: how well detection works on labelled runs, measured honestly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detector.commands.options import format_option, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from detector.evaluation import GradedRun

    Row = dict[str, object]


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@format_option
@click.option("--seed", default=7, show_default=True, help="Seed of everything random.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option(
    "--keep", type=click.Path(path_type=Path), default=None, help="Write each bundle here, for `score --unseen-bundle`."
)
def command(runs: tuple[Path, ...], form: str, seed: int, jobs: int, keep: Path | None) -> None:
    """Judge each labelled run below RUNS by a bundle trained on all the others; then again with each source left out.

    A fault counts as found when an incident above "info" starts within it (5 s early and 10 s late are allowed); rank and
    category are those of the first such incident. In healthy runs every incident above "info" is a false alarm.
    """
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


def _show(graded: Sequence[GradedRun], faults: Sequence[Row], totals: Sequence[Row]) -> None:
    from detector.render import stdout_console

    console = stdout_console()
    console.print(_run_table(graded))
    heads = {"fault": "fault", **{n: n for n in ("runs", "found", "rank", "category", "cause")}}
    console.print(_table("by fault, all sources", {**heads, "median_delay_s": "median delay s"}, faults))
    heads = {n: n for n in ("faulty", "found", "rank", "category", "cause")} | {"median_delay_s": "median delay s"}
    heads |= {"false_alarms_faulty": "false in faulty", "healthy": "healthy", "false_alarms_healthy": "false in healthy"}
    named = [{**row, "without": row["without"] or "nothing"} for row in totals]
    heads = {"without": "left out", **heads, "healthy_hours": "healthy hours", "extra": "extra"}
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
