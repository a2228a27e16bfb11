"""Puts the numbers of an evaluation into the README, with intervals that say how little a few dozen runs can prove.

rankwatch evaluate datasets/runs --format json > evaluation.json
python scripts/readme_numbers.py evaluation.json
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from marked import fill

README = Path(__file__).resolve().parents[1] / "README.md"
PART = "evaluate"
Z_95 = 1.959964
"""Standard deviations on either side that hold 95 % of a normal distribution."""
QUESTIONS = (
    ("found", "found"),
    ("rank", "the right rank first (or rightly none)"),
    ("category", "the right category"),
    ("cause", "the very cause that was injected"),
)

Row = dict[str, Any]


def main() -> None:
    """Fill the README's table from the file that is named."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("evaluation", type=Path, help="what `rankwatch evaluate RUNS --format json` wrote")
    options.add_argument("--readme", type=Path, default=README, help="page to fill")
    args = options.parse_args()
    document = json.loads(args.evaluation.read_text(encoding="utf-8"))
    page = args.readme.read_text(encoding="utf-8")
    args.readme.write_text(fill(page, PART, tables(document)), encoding="utf-8")


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % interval of a share, by Wilson (1927): honest also at 0 and 1, where the usual one has no width.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927), 209-212.
    """
    if of == 0:
        return 0.0, 1.0
    share, spread = hits / of, Z_95**2 / of
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def tables(document: Row) -> str:
    """All that is shown of an evaluation, as Markdown."""
    whole = document["summary"][0]
    parts = [_answers(whole), _alarms(document["runs"], whole), _sources(document["summary"]), _faults(document["faults"])]
    return "\n\n".join(parts)


def _answers(whole: Row) -> str:
    rows = [
        f"| {text} | {whole[name]} of {whole['faulty']} | {_interval(whole[name], whole['faulty'])} |"
        for name, text in QUESTIONS
    ]
    return "\n".join(["| faulty runs, all sources | runs | 95 % interval |", "|---|---|---|", *rows])


def _alarms(runs: list[Row], whole: Row) -> str:
    alarmed = sum(r["grade"]["found"] is None and not r["without"] and r["grade"]["false_alarms"] > 0 for r in runs)
    rows = [
        f"| healthy runs with a false alarm | {alarmed} of {whole['healthy']} | {_interval(alarmed, whole['healthy'])} |",
        f"| false alarms in {whole['healthy_hours'] * 60:.0f} minutes of healthy runs | {whole['false_alarms_healthy']} | |",
        f"| false alarms outside the fault in faulty runs | {whole['false_alarms_faulty']} | |",
        f"| further incidents of a wrong category within the fault | {whole['extra']} | |",
        f"| from the fault's beginning to the incident's, median | {whole['median_delay_s']} s | |",
    ]
    return "\n".join(["| noise and delay | | 95 % interval |", "|---|---|---|", *rows])


def _sources(summary: list[Row]) -> str:
    names = [name for name, _ in QUESTIONS]
    rows = ["| " + " | ".join(["sources", "faulty runs", *names, "healthy runs", "false alarms"]) + " |", "|---" * 8 + "|"]
    for row in summary:
        kind = f"without {row['without']}" if row["without"] else "all"
        alarms = row["false_alarms_healthy"] + row["false_alarms_faulty"]
        cells = [kind, row["faulty"], *(row[name] for name in names), row["healthy"], alarms]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def _faults(faults: list[Row]) -> str:
    names = [name for name, _ in QUESTIONS]
    rows = ["| " + " | ".join(["fault", "runs", *names, "median delay"]) + " |", "|---" * 7 + "|"]
    for row in faults:
        delay = "" if row["median_delay_s"] is None else f"{row['median_delay_s']} s"
        rows.append("| " + " | ".join(map(str, [row["fault"], row["runs"], *(row[name] for name in names), delay])) + " |")
    return "\n".join(["<details><summary>By fault</summary>", "", *rows, "", "</details>"])


def _interval(hits: int, of: int) -> str:
    low, high = wilson(hits, of)
    return f"{low:.0%} to {high:.0%}"


if __name__ == "__main__":
    main()
