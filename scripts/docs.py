"""Writes what the documents take from the code: whole pages, the report's JSON schema, and marked parts of other pages.

python scripts/docs.py            write them
python scripts/docs.py --check    say which are stale, and end with 1 if any is
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from marked import fill

from detector.catalog import load_catalog
from detector.cli import COMMANDS, FAILED, USAGE, cli
from detector.labels import CAUSE_OF_FAULT, labelled_runs
from detector.report import Report
from detector.settings import PREFIX, Settings
from detector.wiring import DEMO_RUN, SHIPPED_BUNDLE
from features import errors
from features.parsers import PARSERS
from features.vocabulary import FEATURES, schema_id
from models import read_bundle

ROOT = Path(__file__).resolve().parents[1]
RUNS = Path("datasets/runs")
DEMO = RUNS / DEMO_RUN
HELP_WIDTH = 100
"""Columns of help texts: what a page shows beside its margin."""
WHY_SHOWN, FIXES_SHOWN = 2, 1
"""Items of the demo's output that the README repeats: enough to see what they look like."""
BY_HAND = "Written by `python scripts/docs.py`; edit the code that it describes, not this page."


def main() -> int:
    """Write or check everything; the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="write nothing, name what is stale")
    check = options.parse_args().check
    stale = []
    for name, text in everything():
        path = ROOT / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{name} is stale: run python scripts/docs.py" if check else f"wrote {name}")
    return 1 if check and stale else 0


def everything() -> Iterator[tuple[str, str]]:
    """Name and text of every file that is written, wholly or in parts."""
    for name, page in PAGES.items():
        yield name, page()
    for name, parts in PARTS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for part, body in parts.items():
            text = fill(text, part, body())
        yield name, text


# --- the command line ---------------------------------------------------------------------------------------------------


def cli_page() -> str:
    """Every command's help."""
    names = cli.context_settings["help_option_names"]
    root = click.Context(cli, info_name="rankwatch", terminal_width=HELP_WIDTH, help_option_names=names)
    lines = ["# Commands", "", BY_HAND, "", "```text", cli.get_help(root), "```"]
    for name, command, context in _commands(cli, root):
        lines += ["", f"## {name}", "", "```text", command.get_help(context), "```"]
    lines += ["", "## Environment", ""]
    lines += ["Options of the command line win over these. A variable with this prefix that nothing reads is refused.", ""]
    lines += ["| variable | default | meaning |", "|---|---|---|", *_variables()]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None:
            continue
        context = click.Context(command, info_name=name, parent=parent, terminal_width=HELP_WIDTH)
        yield context.command_path, command, context
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def _variables() -> Iterator[str]:
    source = inspect.getsource(Settings)
    for name, field in Settings.model_fields.items():
        comment = re.search(rf"^    {name}: .*?  # (.+)$", source, re.MULTILINE)
        default = "none" if field.default is None else f"`{field.default}`"
        yield f"| `{PREFIX}{name.upper()}` | {default} | {_cell(comment[1]) if comment else ''} |"


def commands_part() -> str:
    """One line per command."""
    rows = [f"| `rankwatch {name}` | {_cell(text)} |" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["| command | does |", "|---|---|", *rows])


# --- the vocabulary -----------------------------------------------------------------------------------------------------


def vocabulary_page() -> str:
    """Every feature, by family."""
    lines = ["# Vocabulary of features", "", BY_HAND, ""]
    lines += [f"{len(FEATURES)} features, schema `{schema_id()}`. How they are made: [method.md](method.md).", ""]
    lines += [
        "Each feature is a number per rank and window. 0 means as usual; a missing source gives no number, never 0. "
        "`side` says which deviations can mean trouble, `floor` is the smallest spread that counts as noise (in the "
        "feature's unit), `channel` what an anomaly of it is about. `steps` are durations of the run's usual step."
    ]
    for family, features in groupby(FEATURES, key=lambda f: f.family):
        lines += ["", f"## {family}", "", "| feature | unit | side | floor | channel | meaning |", "|---|---|---|---|---|---|"]
        lines += [f"| `{f.name}` | {f.unit} | {f.side} | {f.floor:g} | {f.channel} | {_cell(f.meaning)} |" for f in features]
    return "\n".join(lines) + "\n"


# --- the report ---------------------------------------------------------------------------------------------------------


def schema_file() -> str:
    """The JSON schema of `score --format json`."""
    return json.dumps(Report.model_json_schema(by_alias=True, mode="serialization"), indent=1) + "\n"


def example_part() -> str:
    """The demo's report with only the first items of its longer lists."""
    report = json.loads(run_cli("score", str(DEMO), "--format", "json"))
    for incident in report["incidents"]:
        incident["evidence"], incident["fixes"] = incident["evidence"][:2], incident["fixes"][:1]
    return f"```json\n{json.dumps(report, indent=2)}\n```"


def demo_part() -> str:
    """The demo's output, shortened."""
    return f"```text\n{excerpt(run_cli('demo'))}\n```"


def excerpt(output: str) -> str:
    """The run, its incidents and the first items of their lists; "..." stands for what is left out."""
    lines = [line.rstrip() for line in output.splitlines()]
    kept, item, most = [lines[0], "..."], 0, WHY_SHOWN
    for line in lines[2 : _last_item(lines) + 1]:
        if line in ("  why", "  what to do"):
            item, most = 0, WHY_SHOWN if line == "  why" else FIXES_SHOWN
        item += bool(re.match(r"    (- |\d+\. )", line))
        left_out = item > most and line.startswith("    ")
        if not left_out:
            kept.append(line)
        elif kept[-1] != "    ...":
            kept.append("    ...")
    return "\n".join(kept)


def _last_item(lines: list[str]) -> int:
    return max(number for number, line in enumerate(lines) if line.startswith("    "))


def run_cli(*args: str) -> str:
    """What `rankwatch` writes to stdout, called in the repository's root without anybody's own settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    command = [str(Path(sys.executable).with_name("rankwatch")), *args]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False).stdout  # noqa: S603


# --- parts of other pages -----------------------------------------------------------------------------------------------


def sizes_part() -> str:
    """How much there is of everything, counted."""
    runs = labelled_runs([ROOT / RUNS])
    causes, recorded = load_catalog().causes, {label.cause for _, label in runs if not label.is_healthy}
    healthy = [label for _, label in runs if label.is_healthy]
    minutes, healthy_minutes = (sum(x.exit - x.launch for x in part) / 60 for part in ([x for _, x in runs], healthy))
    learned = {run.name for run in read_bundle(SHIPPED_BUNDLE).manifest.runs}
    unseen = ", ".join(f"`{path.name}`" for path, _ in runs if path.name not in learned)
    rows = [
        ("recorded runs", f"{len(runs)}: {len(healthy)} healthy, {len(runs) - len(healthy)} with one fault"),
        ("recorded time", f"{minutes:.0f} minutes, {healthy_minutes:.0f} of them in healthy runs"),
        ("causes in the catalog", f"{len(causes)}, of which {len(recorded & set(causes))} have been recorded"),
        ("features", f"{len(FEATURES)}"),
        ("the shipped bundle has learned from", f"{len(learned)} of the runs; not from {unseen or 'any other'}"),
    ]
    return "\n".join(["| what | how many |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)])


def sources_part() -> str:
    """Every parser, in the order in which they are asked."""
    rows = [f"| `{row.kind}` | {_cell(_first_line(sys.modules[_made_by(row.make).__module__]))} |" for row in PARSERS]
    return "\n".join(["| kind | what is read |", "|---|---|", *rows])


def _made_by(make: Any) -> Any:
    return make if hasattr(make, "__module__") else type(make)


def faults_part() -> str:
    """Short names of faults, and the causes that they are."""
    rows = [f"| `{fault}` | `{cause}` |" for fault, cause in CAUSE_OF_FAULT.items()]
    return "\n".join(["| `fault` | cause |", "|---|---|", *rows])


def errors_part() -> str:
    """The error tree with exit codes."""
    names = [node.name for node in ast.parse(inspect.getsource(errors)).body if isinstance(node, ast.ClassDef)]
    rows = []
    for kind in (getattr(errors, name) for name in names):
        code = USAGE if issubclass(kind, (errors.SettingsError, errors.MissingExtra)) else FAILED
        rows.append(f"| `{kind.__name__}` | {code} | {_cell(_first_line(kind))} |")
    return "\n".join(["| error | exit code | meaning |", "|---|---|---|", *rows])


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0]


def _cell(text: str) -> str:
    """Fit for a cell of a table: no bar that would end it."""
    return text.replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "docs/cli.md": cli_page,
    "docs/vocabulary.md": vocabulary_page,
    "docs/report.schema.json": schema_file,
}
PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"demo": demo_part, "commands": commands_part, "sizes": sizes_part},
    "docs/inputs.md": {"sources": sources_part},
    "docs/report.md": {"example": example_part},
    "docs/labels.md": {"faults": faults_part},
    "docs/errors.md": {"errors": errors_part},
}

if __name__ == "__main__":
    sys.exit(main())
