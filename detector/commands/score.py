"""`rankwatch score`: archived runs in, reports out."""

from __future__ import annotations

from pathlib import Path

import click

from detector.cli import ANOMALIES, FAILED, FINE
from detector.commands.options import bundle_option, format_option, progress_bar, write_reports
from features.errors import InputError


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
@bundle_option
@click.option(
    "--unseen-bundle",
    type=click.Path(path_type=Path),
    default=None,
    help="Directory of bundles (`evaluate --keep`): use the one that has not learned from the run.",
)
@click.option(
    "--map",
    "columns",
    default=None,
    metavar="FIELD=COLUMN,...",
    help="What the columns of a table of steps are (CSV, JSON lines, Parquet), as in rank=worker,duration_s=batch_time.",
)
def command(runs: tuple[Path, ...], form: str, bundle: Path | None, unseen_bundle: Path | None, columns: str | None) -> int:
    """Score RUNS: directories that training jobs left behind, or single files of them.

    Timeline, logs and telemetry are recognised by their content. What cannot be read is reported as a notice.
    """
    if bundle is not None and unseen_bundle is not None:
        raise click.UsageError("--bundle and --unseen-bundle exclude each other")
    from detector.wiring import score
    from features.parsers.steptable_map import StepMap

    step_map = None if columns is None else StepMap.parse(columns)
    reports, failed = [], False
    with progress_bar("scoring", len(runs)) as done:
        for path in runs:
            try:
                reports.append(score(path, bundle=bundle, unseen=unseen_bundle, step_map=step_map))
            except InputError as error:  # one bad run must not take the others' results away
                click.echo(f"rankwatch: {error}", err=True)
                failed = True
            done(path.name)
    if reports:
        write_reports(reports, form)
    if failed:
        return FAILED
    return ANOMALIES if any(r.is_anomalous for r in reports) else FINE
