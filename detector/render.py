"""Reports as text for people: a verdict, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from detector.report import Incident, NoticeItem, Report

COLOURS = {"critical": "bold red", "warning": "bold yellow", "info": "cyan", "error": "red"}
WIDEST = 120
"""Columns; longer lines are hard to read on any terminal."""
EVIDENCE_SHOWN, FIXES_SHOWN = 6, 3


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """Let the command line decide what a reader that has gone means; rich would exit with 1."""
        raise


def stdout_console() -> Console:
    """A console on stdout that wraps at a readable width, and at 120 where nobody watches."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        return _Stdout(highlight=False, width=WIDEST, no_color=True)
    return _Stdout(highlight=False, width=min(console.width, WIDEST))


def render_report(report: Report, console: Console) -> None:
    """Everything about one run, most serious first."""
    run = report.run
    ranks = "?" if run.world_size is None else run.world_size
    steps = "no steps seen" if run.steps is None else f"{run.steps} steps"
    console.print(f"[bold]{escape(run.id)}[/]  {ranks} ranks, {steps}, {run.start or '?'} to {run.end or '?'}")
    console.print(
        f"sources: {', '.join(run.sources)}; {report.windows.anomalous} of {report.windows.count} windows of "
        f"{report.windows.length_s:g} s unusual; bundle {report.model.id[:19]}"
    )
    if not report.incidents:
        console.print("[bold green]no incident[/]")
    for incident in report.incidents:
        console.print()
        render_incident(incident, console)
    _notices(report.notices, console)
    console.print()


def render_incident(i: Incident, console: Console, *, everything: bool = False) -> None:
    """One incident: what, where, since when, how sure, cost, evidence, fixes."""
    colour = COLOURS[i.severity]
    console.print(f"[{colour}]{i.severity.upper()}[/] [bold]{i.category}/{i.cause}[/] {escape(i.title)}  ({i.id})")
    table = Table.grid(padding=(0, 2))
    for name, value in _facts(i):
        table.add_row(Text(name, style="dim"), Text(value))
    console.print(Padding(table, (0, 0, 0, 2)))
    shown = i.evidence if everything else i.evidence[:EVIDENCE_SHOWN]
    if shown:
        console.print("  [dim]why[/]")
    for item in shown:
        where = f" [{item.source}]" if item.source else ""
        console.print(Padding(Text(f"- {item.text}{where}"), (0, 0, 0, 4)))
    _fixes(i, console, everything=everything)


def _facts(i: Incident) -> Iterable[tuple[str, str]]:
    whose = f"rank {', '.join(map(str, i.ranks))}" if i.ranks else "the whole run or its host"
    yield "at fault", whose + (f" on {', '.join(i.nodes)}" if i.nodes else "")
    steps = "" if i.first_step is None else f", steps {i.first_step} to {i.last_step}"
    yield "when", f"{i.start} to {i.end or 'the end of the records'}{steps}"
    others = "; otherwise " + ", ".join(f"{k} {v:.0%}" for k, v in i.alternatives.items()) if i.alternatives else ""
    yield "how sure", f"{i.confidence:.0%}{others}"
    if i.impact.lost_s is not None:
        slower = "" if i.impact.slowdown is None else f", steps {i.impact.slowdown:.2f} times as long"
        yield "cost", f"{i.impact.lost_s:.1f} s lost{slower}"


def _fixes(i: Incident, console: Console, *, everything: bool) -> None:
    if i.fixes:
        console.print("  [dim]what to do[/]")
    for number, fix in enumerate(i.fixes if everything else i.fixes[:FIXES_SHOWN], start=1):
        console.print(Padding(Text(f"{number}. {fix.text}"), (0, 0, 0, 4)))
        for line in (line for command in fix.commands for line in command.splitlines()):
            console.print(Padding(Text(line, style="green"), (0, 0, 0, 9)))
        if everything:
            for name, value in (("why", fix.why), ("verify", fix.verify), ("undo", fix.undo), ("source", fix.source)):
                console.print(Padding(Text.assemble((f"{name}: ", "dim"), value), (0, 0, 0, 7)))


def _notices(notices: list[NoticeItem], console: Console) -> None:
    for n in notices:
        times = f" ({n.count} times)" if n.count > 1 else ""
        console.print(Text.assemble((n.level, COLOURS[n.level]), f" {n.source}: {n.text}{times}"))
