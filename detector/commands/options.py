"""Options that several commands share, and how reports are written to stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from detector.report import Report

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("table", "json", "jsonl")

format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to write to stdout."
)
bundle_option = click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    default=None,
    help="Model bundle to judge with.  [default: the shipped one]",
)


def write_reports(reports: Sequence[Report], form: str) -> None:
    """Write reports: tables, one JSON document (an object for one run, a list for several), or one object a line."""
    if form == "table":
        from detector.render import render_report

        def draw(console: Console) -> None:
            for report in reports:
                render_report(report, console)

        show(draw)
    elif form == "jsonl":
        for report in reports:
            click.echo(report.to_json(indent=None))
    elif len(reports) == 1:
        click.echo(reports[0].to_json())
    else:
        inner = ",\n".join(report.to_json() for report in reports)
        click.echo(f"[\n{inner}\n]" if reports else "[]")


def show(draw: Callable[[Console], object]) -> None:
    """Write what `draw` prints to stdout, without the blanks with which rich fills lines."""
    from detector.render import stdout_console

    console = stdout_console()
    with console.capture() as captured:
        draw(console)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[str], None]]:
    """A bar on stderr while a terminal watches; silent otherwise. Call the yielded function with what was just done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def done(what: str) -> None:
            bar.update(task, advance=1, description=f"{label} {what}")

        yield done
