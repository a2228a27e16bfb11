"""`rankwatch train`: runs in, a model bundle out."""

from __future__ import annotations

from pathlib import Path

import click

from detector.commands.options import progress_bar

RUN_DIR = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--healthy", multiple=True, type=RUN_DIR, help="A healthy run, labelled or not. Repeatable.")
@click.option("--labelled", multiple=True, type=RUN_DIR, help="A run whose label says what happened. Repeatable.")
@click.option("--runs", multiple=True, type=RUN_DIR, help="A directory of labelled runs, healthy ones too. Repeatable.")
@click.option("--leave-out", multiple=True, help="Name of a run not to learn from. Repeatable.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Directory of the new bundle.")
@click.option("--seed", default=7, show_default=True, help="Seed of everything random.")
@click.option(
    "--false-alarms",
    "rate",
    default=0.003,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of healthy windows that may pass the limit, before the gate of continuity.",
)
@click.option("--replace", is_flag=True, help="Replace a bundle that is there.")
def command(
    healthy: tuple[Path, ...],
    labelled: tuple[Path, ...],
    runs: tuple[Path, ...],
    leave_out: tuple[str, ...],
    out: Path,
    seed: int,
    rate: float,
    replace: bool,
) -> None:
    """Train judges on healthy windows and the classifier on labelled incidents, and write one model bundle.

    The parts of labelled runs well before and after their fault count as healthy windows too.
    """
    from detector.catalog import load_catalog
    from detector.learning import gather
    from detector.training import train_bundle
    from models import write_bundle

    found = gather(healthy=healthy, labelled=labelled, runs=runs, leave_out=leave_out)
    with progress_bar("reading", len(found)) as done:
        examples = []
        for item in found:
            examples += item.examples()
            done(item.name)
    bundle = train_bundle(examples, load_catalog(), seed=seed, false_alarm_rate=rate)
    write_bundle(out, bundle, replace=replace)
    limit = bundle.limit
    click.echo(f"{bundle.id} in {out}: {len(found)} runs, {limit.windows} healthy windows, limit {limit.value:.3f}")
