"""`rankwatch align`: everything a run left behind in one trace, on one clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detector.commands.options import bundle_option, progress_bar

if TYPE_CHECKING:
    from detector.merged import Summary

MAX_EVENTS = 1_000_000
"""As in detector/merged/sampling.py, which --help must not load."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The trace; .json, or .json.gz to compress it.",
)
@click.option("--no-score", is_flag=True, help="Leave out the incidents: faster, and no model is needed.")
@click.option(
    "--max-events",
    default=MAX_EVENTS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Draw at most so many events: collectives are sampled evenly, then steps and samples.",
)
@bundle_option
def command(run: Path, out: Path, no_score: bool, max_events: int, bundle: Path | None) -> None:
    """Merge timeline, logs and telemetry of RUN into one trace, with its incidents.

    Open it in ui.perfetto.dev or chrome://tracing: a process per rank with its steps, the collectives, all samples as
    counters, messages and incidents, on one clock. RUN is a directory that a training job left behind, or a file of it.
    """
    if no_score and bundle is not None:
        raise click.UsageError("--no-score and --bundle exclude each other")
    from detector.merged import write_trace
    from detector.settings import read_settings
    from detector.wiring import choose_bundle

    settings = read_settings()
    with progress_bar("merging", None) as done:
        chosen = None if no_score else choose_bundle(bundle, settings)
        summary = write_trace(run, out, bundle=chosen, max_events=max_events, progress=done)
    _tell(summary, out)


def _tell(summary: Summary, out: Path) -> None:
    for notice in summary.notices:
        if notice.level != "info":
            click.echo(f"rankwatch: {notice.source}: {notice.text}", err=True)
    if not summary.is_whole:
        parts = [f"{n['drawn']} of {n['found']} {kind}" for kind, n in summary.counts.items() if n["drawn"] < n["found"]]
        click.echo(f"rankwatch: sampled to stay within {summary.max_events} events: {', '.join(parts)}", err=True)
    held = ", ".join(f"{n['drawn']} {kind}" for kind, n in summary.counts.items() if n["found"])
    click.echo(f"{out}: {summary.events} events: {held}")
