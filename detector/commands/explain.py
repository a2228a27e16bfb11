"""`rankwatch explain`: one incident with all its evidence and fixes, or one cause of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detector.commands.options import bundle_option, show
from features.errors import InputError, UnknownIncident

if TYPE_CHECKING:
    from detector.report import Incident, Report


@click.command()
@click.argument("incident")
@click.argument("where", required=False, type=click.Path(path_type=Path))
@bundle_option
def command(incident: str, where: Path | None, bundle: Path | None) -> None:
    """Explain INCIDENT of WHERE: a report that `score --format json` or `jsonl` wrote, or a run, which is then scored.

    INCIDENT is an id such as i-0123456789ab, or a unique beginning of one. Without WHERE it is a cause of the catalog,
    such as communication/network-loss.
    """
    from detector.render import render_incident

    if where is None:
        _explain_cause(incident)
        return
    reports = _reports(where, bundle)
    found = _find(incident, reports, where)
    show(lambda console: render_incident(found, console, everything=True))


def _reports(where: Path, bundle: Path | None) -> list[Report]:
    from detector.wiring import score

    saved = _saved_reports(where) if where.is_file() else None
    return [score(where, bundle=bundle)] if saved is None else saved


def _saved_reports(path: Path) -> list[Report] | None:
    """Reports in a file, or None where it holds something else (a log, a timeline)."""
    import json

    from pydantic import ValidationError

    from detector.report import Report

    try:
        text = path.read_text(encoding="utf-8")
        try:
            raw = json.loads(text)
        except ValueError:
            raw = [json.loads(line) for line in text.splitlines() if line.strip()]
        return [Report.model_validate(item) for item in (raw if isinstance(raw, list) else [raw])]
    except (ValueError, ValidationError, OSError, RecursionError):
        return None


def _find(incident: str, reports: list[Report], where: Path) -> Incident:
    known = list({i.id: i for r in reports for i in r.incidents}.values())  # a run scored twice: the newest counts
    hits = [i for i in known if i.id == incident] or [i for i in known if i.id.startswith(incident)]
    if len(hits) == 1:
        return hits[0]
    raise UnknownIncident(
        str(where),
        expected=f"one incident {incident}",
        found=f"{len(hits)} of these: {', '.join(i.id for i in known) or 'none'}",
        remedy="give the id as the report has it",
    )


def _explain_cause(name: str) -> None:
    from rich.markdown import Markdown

    from detector.catalog import cause_markdown, load_catalog

    causes = load_catalog().causes
    if name not in causes:
        raise InputError(
            name, expected="a cause of the catalog, or a run or report as second argument", found="neither",
            remedy="causes are listed in docs/catalog.md",
        )  # fmt: skip
    page = Markdown(cause_markdown(causes[name]))
    show(lambda console: console.print(page))
