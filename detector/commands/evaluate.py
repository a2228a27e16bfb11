"""`rankwatch evaluate`: how well detection works on labelled runs, measured honestly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detector.commands.options import format_option, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from detector.evaluation import FaultSummary, GradedRun, Summary


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
    from detector.evaluation import by_fault, evaluate, summaries
    from detector.learning import gather

    found = gather(runs=runs)
    with progress_bar("judging", len(found)) as done:
        graded = evaluate(found, seed=seed, jobs=jobs, keep=keep, progress=done)
    totals = list(summaries(graded))
    if form == "table":
        _tables(graded, totals)
        return
    import msgspec

    if form == "jsonl":
        for row in graded:
            click.echo(msgspec.json.encode(row).decode())
    else:
        document = {"runs": graded, "faults": by_fault(graded), "summary": totals}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _tables(graded: Sequence[GradedRun], totals: Sequence[Summary]) -> None:
    from rich.table import Table

    from detector.evaluation import by_fault
    from detector.render import stdout_console

    console = stdout_console()
    table = Table(title="each run by a bundle that has not seen it, all sources", title_justify="left")
    for column in ("run", "fault", "found", "rank", "category", "delay s", "false", "said", "sure"):
        table.add_column(column, justify="right" if column in ("delay s", "false", "sure") else "left")
    for row in (r for r in graded if r.without is None):
        g = row.grade
        sure = "" if g.confidence is None else f"{g.confidence:.2f}"
        delay = "" if g.delay_s is None else f"{g.delay_s:.1f}"
        marks = [_mark(g.found), _mark(g.rank), _mark(g.category)]
        table.add_row(row.name, row.fault, *marks, delay, str(g.false_alarms or ""), g.said, sure)
    console.print(table)
    console.print(_fault_table(by_fault(graded)))
    console.print(_summary_table(totals))


def _fault_table(faults: Sequence[FaultSummary]) -> Table:
    from rich.table import Table

    table = Table(title="by fault, all sources", title_justify="left")
    for column in ("fault", "runs", "found", "rank", "category", "cause", "median delay s"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    for f in faults:
        delay = "-" if f.median_delay_s is None else f"{f.median_delay_s:.1f}"
        table.add_row(f.fault, *(str(n) for n in (f.runs, f.found, f.rank, f.category, f.cause)), delay)
    return table


def _summary_table(totals: Sequence[Summary]) -> Table:
    from rich.table import Table

    table = Table(title="summary", title_justify="left")
    columns = ("left out", "faulty", "found", "rank", "category", "cause", "median delay s", "false (faulty runs)")
    for column in (*columns, "false (healthy runs)", "per hour", "extra"):
        table.add_column(column, justify="left" if column == "left out" else "right")
    for s in totals:
        share = [f"{v}/{s.faulty}" for v in (s.found, s.rank, s.category, s.cause)]
        delay = "-" if s.median_delay_s is None else f"{s.median_delay_s:.1f}"
        per_hour = f"{s.false_alarms_healthy / s.healthy_hours:.1f}" if s.healthy_hours else "-"
        row = [
            str(s.faulty),
            *share,
            delay,
            str(s.false_alarms_faulty),
            f"{s.false_alarms_healthy} in {s.healthy}",
            per_hour,
        ]
        table.add_row(s.without or "nothing", *row, str(s.extra))
    return table


def _mark(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "NO"
