"""Documents that break the build when they are wrong: generated parts, commands, outputs, settings, constants and examples."""

from __future__ import annotations

import ast
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from detector import report
from detector.cases import AFTERMATH_S, GATE_NEEDS, GATE_OF, QUIET_WINDOWS
from detector.cli import ANOMALIES, COMMANDS, FAILED, FINE, USAGE, cli
from detector.diagnosis import CONFIDENT
from detector.evaluation import GradedRun, by_fault, graded_table, records_of, summary
from detector.examples import AFTER_S, BEFORE_S
from detector.grading import EARLY_S, LATE_S, Grade
from detector.incidents import END_S
from detector.knobs import Unknown, load_knobs
from detector.labels import labelled_runs, read_label
from detector.settings import PREFIX, Settings
from detector.training import FALSE_ALARM_RATE, REAL_WEIGHT, SIMULATED_WEIGHT
from features.baseline import DEPTH
from features.clock import BACKWARD_S, FEWEST, RANK_SKEW_S
from features.extract import WARMUP_STEPS
from features.notices import Notices
from features.parsers.gpu_columns import column_of
from features.parsers.telemetry_jsonl import TELEMETRY_JSONL
from features.parsers.textlog import TEXT_LOG
from features.records import Host, Process, Step
from features.rhythm import LENGTHS_S, STEPS_PER_WINDOW
from models.training import ROWS_TO_LEARN_FROM

RANKWATCH = str(Path(sys.executable).with_name("rankwatch"))
DEMO = "datasets/runs/slow_data_r1"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r"\b(?:HOROVOD|NCCL|TORCH|GLOO|OMP|MKL|CUDA|PYTORCH)_[A-Z0-9_]*[A-Z0-9]\b")


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    """The text of the README."""
    return (root / "README.md").read_text(encoding="utf-8")


def pages(root: Path) -> dict[str, str]:
    """Every page for people, by its path."""
    paths = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def run(root: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command in the root of the repository, whatever it ends with."""
    return subprocess.run(command, cwd=root, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


def flowing(text: str) -> str:
    """Without line breaks, which fall anywhere."""
    return " ".join(text.split())


# --- what is generated --------------------------------------------------------------------------------------------------


def test_generated_pages_are_current(root: Path) -> None:
    done = run(root, sys.executable, "scripts/docs.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_documented(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    context = click.Context(cli)
    assert list(COMMANDS) == cli.list_commands(context)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help, f"{name} has no help"
        assert f"## rankwatch {name}\n" in text


# --- commands that pages show -------------------------------------------------------------------------------------------


def commands_in(text: str) -> Iterator[list[str]]:
    """Words of every command in the shell blocks of a page; pipes and lists are cut into their commands."""
    for kind, block in FENCE.findall(text):
        for line in block.splitlines() if kind in {"console", "sh", "bash"} else []:
            for part in re.split(r"\||&&|;|>", re.sub(r"\s#.*", "", line.removeprefix("$ "))) if line[:2] == "$ " else []:
                yield shlex.split(part)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/"])
def test_shown_commands_exist(root: Path, page: str) -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (root / "Makefile").read_text(), re.MULTILINE))
    shown = [words for name, text in pages(root).items() if name.startswith(page) for words in commands_in(text) if words]
    assert shown
    for words in shown:
        name, rest = Path(words[0]).name, words[1:]
        if name == "make":
            assert {w for w in rest if "=" not in w and not w.startswith("-")} <= targets | {"check"}, words
        elif name == "rankwatch":
            assert refusal(rest) is None, (words, refusal(rest))
        elif name == "python":
            assert (root / (f"{rest[1].replace('.', '/')}.py" if rest[0] == "-m" else rest[0])).is_file(), words


def refusal(words: list[str]) -> str | None:
    """Why the command line would refuse these words; placeholders stand for files, so none need exist."""
    group: click.Command = cli
    while isinstance(group, click.Group) and words and not words[0].startswith("-"):
        found = group.get_command(click.Context(group), words[0])
        if found is None:
            return f"no command {words[0]}"
        group, words = found, words[1:]
    known = {name: option for option in group.params for name in [*option.opts, *option.secondary_opts]}
    unknown = [
        word for word in words if word.startswith("--") and word.partition("=")[0] not in {*known, "--help", "--version"}
    ]
    return f"no option {unknown[0]}" if unknown else None


def test_refusal_sees_what_does_not_exist() -> None:
    assert refusal(["score", "RUN", "--format", "json"]) is None
    assert refusal(["scare", "RUN"]) == "no command scare"
    assert refusal(["score", "RUN", "--fromat", "json"]) == "no option --fromat"


@pytest.fixture(scope="module")
def demo(root: Path) -> subprocess.CompletedProcess[str]:
    """The demo as `make demo` runs it."""
    return run(root, RANKWATCH, "demo")


def test_output_in_the_readme_is_what_the_demo_says(readme: str, demo: subprocess.CompletedProcess[str]) -> None:
    assert demo.returncode == FINE
    said = iter([line.rstrip() for line in demo.stdout.splitlines()])
    block = readme.partition("<!-- demo -->")[2].partition("<!-- /demo -->")[0]
    shown = [line for line in block.strip().splitlines()[1:-1] if line.strip() != "..."]
    assert len(shown) > 8
    for line in shown:  # in this order, with nothing made up in between
        assert line in said


def test_score_of_the_readme_says_the_same_and_ends_with_3(root: Path, demo: subprocess.CompletedProcess[str]) -> None:
    done = run(root, RANKWATCH, "score", DEMO)
    assert (done.returncode, done.stdout) == (ANOMALIES, demo.stdout)


def test_python_of_the_readme_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    failed, tried = doctest.testfile(str(root / "README.md"), module_relative=False, encoding="utf-8")
    assert tried > 3
    assert failed == 0


# --- names and numbers that pages state ---------------------------------------------------------------------------------


def test_settings_that_pages_name_exist(root: Path) -> None:
    knobs = load_knobs()
    named = {(page, name) for page, text in pages(root).items() for name in SETTING.findall(text)}
    assert len(named) > 10
    assert [found for found in sorted(named) if isinstance(knobs.check(found[1]), Unknown)] == []


def test_variables_that_pages_name_are_read(root: Path) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    named = {name for text in pages(root).values() for name in re.findall(rf"\b{PREFIX}[A-Z_]+[A-Z]\b", text)}
    assert named <= known


NUMBERS = {
    "README.md": [f"within {END_S:g} s", f"unusual in {GATE_NEEDS} of {GATE_OF} windows"],
    "docs/method.md": [
        f"{GATE_NEEDS} of {GATE_OF} consecutive windows",
        f"after {QUIET_WINDOWS} usual windows",
        f"within {AFTERMATH_S:g} s of an incident",
        f"below {CONFIDENT:g} the cause is `unknown`",
        f"up to {DEPTH} healthy windows",
        f"The first {WARMUP_STEPS} steps",
        f"from {LENGTHS_S[0]:g} to {LENGTHS_S[-1]:g} s that holds a dozen steps",
        f"({FALSE_ALARM_RATE * 100:g} %, option `--false-alarms` of `train`)",
        f"from {EARLY_S:g} s before it to {LATE_S:g} s after its end",
    ],
    "docs/inputs.md": [
        f"goes back by more than {BACKWARD_S:g} s",
        f"more than {RANK_SKEW_S:g} s to the lowest rank's log, over at least {FEWEST} shared steps",
    ],
    "docs/labels.md": [f"from {BEFORE_S:g} s before the fault to {AFTER_S:g} s after it"],
    "docs/errors.md": [f"fewer than {ROWS_TO_LEARN_FROM} healthy rows"],
}


@pytest.mark.parametrize(("page", "phrase"), [(page, phrase) for page, phrases in NUMBERS.items() for phrase in phrases])
def test_numbers_in_the_text_are_those_of_the_code(root: Path, page: str, phrase: str) -> None:
    assert phrase in flowing((root / page).read_text(encoding="utf-8"))


def test_numbers_in_words_are_those_of_the_code() -> None:
    """The text says "a dozen steps" and "as much as twenty simulated ones"."""
    assert STEPS_PER_WINDOW == 12
    assert round(REAL_WEIGHT / SIMULATED_WEIGHT, 6) == 20


def test_every_field_of_the_report_is_explained(root: Path) -> None:
    text = (root / "docs" / "report.md").read_text(encoding="utf-8")
    parts = [kind for kind in vars(report).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    fields = {field.alias or name for kind in parts for name, field in kind.model_fields.items()}
    explained = set(re.findall(r"`([\w.]+)`", "\n".join(line for line in text.splitlines() if line.startswith("|"))))
    named = {name for whole in explained for name in whole.split(".")} | set(re.findall(r"^## .*", text, re.MULTILINE))
    headings = " ".join(re.findall(r"^## .*", text, re.MULTILINE))
    assert {name for name in fields if name not in named and f"`{name}`" not in headings} == set()


def test_notices_that_are_explained_are_given(root: Path) -> None:
    told = "\n".join(strings(root))
    text = (root / "docs" / "inputs.md").read_text(encoding="utf-8").partition("## Notices")[2]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 15
    assert [quoted for row in rows for quoted in re.findall(r"`([^`]+)`", row) if quoted not in told] == []


def strings(root: Path) -> Iterator[str]:
    """Every piece of text in the code of the packages."""
    for package in ("features", "detector"):
        for path in sorted((root / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))


# --- examples that pages give -------------------------------------------------------------------------------------------


def example(root: Path, page: str, kind: str) -> str:
    """The first block of this kind on a page."""
    blocks = FENCE.findall((root / page).read_text(encoding="utf-8"))
    block: str = next(block for found, block in blocks if found == kind)
    return block


def test_example_of_a_step_line_is_read_in_full(root: Path) -> None:
    notices = Notices()
    parser = TEXT_LOG.make("log", notices)
    (step,) = [
        r for r in [*parser.feed(example(root, "docs/inputs.md", "text").encode()), *parser.finish()] if isinstance(r, Step)
    ]
    assert (step.rank, step.step, step.duration_s, step.sync_s, step.batch, step.rss_bytes) == (
        1,
        1,
        0.05905,
        0.00458,
        192,
        442e6,
    )
    assert notices.items() == []


def test_example_of_telemetry_is_read_in_full(root: Path) -> None:
    sample = json.loads(example(root, "docs/inputs.md", "json"))
    later = json.loads(json.dumps(sample))
    later["ts"] += 1.0
    later["ranks"]["1"]["cpu_user_s"] += 0.5
    data = "".join(json.dumps(one) + "\n" for one in (sample, later)).encode()
    assert TELEMETRY_JSONL.sniff(data)
    notices = Notices()
    records = TELEMETRY_JSONL.make("telemetry", notices).feed(data)
    host, process = [r for r in records if isinstance(r, Host)], [r for r in records if isinstance(r, Process)]
    assert (host[1].node, host[1].cpus, host[1].interval_s) == ("node1", 2, 1.0)
    assert (process[1].rank, process[1].workers) == (1, 1)
    assert process[1].cpu_cores == pytest.approx(0.5)
    assert notices.items() == []


def test_columns_that_the_page_asks_nvidia_smi_for_are_read(root: Path) -> None:
    (query,) = re.findall(r"--query-gpu=(\S+)", (root / "docs" / "inputs.md").read_text(encoding="utf-8"))
    assert len(query.split(",")) > 8
    assert [name for name in query.split(",") if column_of(name) is None] == []


def test_example_of_a_label_can_be_read(root: Path, tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_text(example(root, "docs/labels.md", "json"))
    label = read_label(tmp_path)
    assert label is not None
    assert (label.cause, label.ranks, label.accept, label.exit - label.launch > 0) == (
        "io/slow-data-loading",
        (1,),
        ("io",),
        True,
    )


def test_example_of_an_error_is_what_is_said(root: Path, tmp_path: Path) -> None:
    done = run(root, RANKWATCH, "score", str(tmp_path))
    assert done.stderr.replace(str(tmp_path), "runs/monday") == example(root, "docs/errors.md", "text")
    assert done.returncode == FAILED


@pytest.mark.parametrize(
    ("words", "environ", "code"),
    [
        (["score", DEMO], {"RANKWATCH_BUNDEL": "x"}, USAGE),
        (["score", DEMO, "--bundle", "datasets"], {}, FAILED),
        (["explain", "i-none", "docs/report.schema.json"], {}, FAILED),
        (["score"], {}, USAGE),
    ],
)
def test_exit_codes_are_those_of_the_page_on_errors(root: Path, words: list[str], environ: dict[str, str], code: int) -> None:
    done = run(root, RANKWATCH, *words, **environ)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr


# --- the measured numbers -----------------------------------------------------------------------------------------------


def test_readme_shows_an_evaluation_of_all_recorded_runs(root: Path, readme: str) -> None:
    labels = [label for _, label in labelled_runs([root / "datasets" / "runs"])]
    block = readme.partition("<!-- evaluate -->")[2].partition("<!-- /evaluate -->")[0]
    faulty = sum(not label.is_healthy for label in labels)
    assert re.search(rf"^\| found \| \d+ of {faulty} \| \d+% to \d+% \|$", block, re.MULTILINE), "scripts/readme_numbers.py"
    assert re.search(rf"^\| healthy runs with a false alarm \| \d+ of {len(labels) - faulty} \|", block, re.MULTILINE)
    listed = block.partition("<details>")[2]
    assert set(re.findall(r"^\| (\w+) \| \d+ \|(?: \d+ \|){4}", listed, re.MULTILINE)) == {
        label.fault for label in labels if not label.is_healthy
    }


def test_evaluation_fills_the_readme(root: Path, tmp_path: Path) -> None:
    """37 of 37 and 0 of 17 by Wilson's formula, as printed in statistics texts: 90.6 to 100 %, 0 to 18.4 %."""
    right = Grade(found=True, rank=True, category=True, cause=False, delay_s=0.5, hours=0.01)
    faulty = [GradedRun(f"faulty {i}", "nan" if i else "hang", None, right) for i in range(37)]
    healthy = [GradedRun(f"healthy {i}", "healthy", None, Grade(hours=0.1)) for i in range(17)]
    table = graded_table([*faulty, *healthy])
    evaluation = {
        "runs": [{"name": g.name, "without": g.without, "grade": {"found": g.grade.found, "false_alarms": 0}} for g in healthy],
        "faults": records_of(by_fault(table)),
        "summary": records_of(summary(table)),
    }
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- evaluate -->\nold\n<!-- /evaluate -->\nafter\n")
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    script = [sys.executable, "scripts/readme_numbers.py", str(tmp_path / "evaluation.json"), "--readme", str(page)]
    assert run(root, *script).returncode == 0
    once = page.read_text()
    assert run(root, *script).returncode == 0
    assert page.read_text() == once
    assert once.startswith("before\n<!-- evaluate -->\n")
    assert once.endswith("<!-- /evaluate -->\nafter\n")
    assert "old" not in once
    for line in (
        "| found | 37 of 37 | 91% to 100% |",
        "| the very cause that was injected | 0 of 37 | 0% to 9% |",
        "| healthy runs with a false alarm | 0 of 17 | 0% to 18% |",
        "| false alarms in 102 minutes of healthy runs | 0 | |",
        "| all | 37 | 37 | 37 | 37 | 0 | 17 | 0 |",
        "| hang | 1 | 1 | 1 | 1 | 0 | 0.5 s |",
    ):
        assert line in once.splitlines()
