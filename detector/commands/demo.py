"""`rankwatch demo`: the main job on a recorded real run."""

from __future__ import annotations

import click

from detector.commands.options import format_option, write_reports


@click.command()
@format_option
def command(form: str) -> None:
    """Score a recorded Horovod run with a real fault; the shipped bundle has not learned from it.

    Ends with exit code 0 although an anomaly is found: here that is what should happen.
    """
    from detector.settings import read_settings
    from detector.wiring import demo_run, score

    path = demo_run(read_settings())
    click.echo(f"$ rankwatch score {path}", err=True)
    write_reports([score(path)], form)
