"""The command line: `rankwatch COMMAND`. Commands are loaded when they are used, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from features.errors import MissingExtra, RankwatchError, SettingsError

FINE, FAILED, USAGE, ANOMALIES = 0, 1, 2, 3
"""Exit codes: nothing found, could not do it, wrongly called, anomalies found."""

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("detector.commands.demo", "Score a recorded run with a real fault: the first thing to try."),
    "score": (
        "detector.commands.score",
        "Say what went wrong in archived runs, since when, on which rank, and what to do.",
    ),
    "explain": ("detector.commands.explain", "Show everything known of one incident, or of one cause of the catalog."),
    "align": (
        "detector.commands.align",
        "Merge timeline, logs and telemetry of a run into one trace for Perfetto or chrome://tracing.",
    ),
    "train": ("detector.commands.train", "Train a model bundle from healthy and labelled runs."),
    "evaluate": (
        "detector.commands.evaluate",
        "Measure detection on labelled runs, each judged by a bundle that never saw it.",
    ),
}


class LazyGroup(click.Group):
    """Knows its commands by name and one line of help; imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A reader that has gone (a pager, `head`) is not our failure; click itself would exit with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Python would complain again at exit without this.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FINE

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="rankwatch", prog_name="rankwatch")
def cli() -> None:
    """Find out when, where and why a training job on many GPUs stopped being healthy.

    Data goes to stdout, progress and messages to stderr. Exit codes: 0 fine, 1 failed, 2 wrongly called, 3 anomalies found.
    """


def main(args: list[str] | None = None) -> None:
    """Entry point: errors made on purpose become a message and an exit code, never a traceback."""
    try:
        result: Any = cli.main(args=args, prog_name="rankwatch", standalone_mode=False)
        sys.exit(result if isinstance(result, int) else FINE)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE if isinstance(error, click.UsageError) else FAILED)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)  # 128 + SIGINT, what a shell expects
    except RankwatchError as error:
        click.echo(f"rankwatch: {error}", err=True)
        sys.exit(USAGE if isinstance(error, (SettingsError, MissingExtra)) else FAILED)
    except OSError as error:  # a full disk, a place that may not be written
        click.echo(f"rankwatch: {error}", err=True)
        sys.exit(FAILED)
