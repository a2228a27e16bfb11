"""The rules of the house that no linter knows: sizes, names, faces, who may touch the outside, and honest documents."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

OURS = ("detector", "features", "models", "streaming")
LONGEST_FILE, LONGEST_TEST = 300, 600
"""Lines. A longer file does more than one thing; a file of tests may list many ways in which one thing can go wrong."""
WIDEST_FACE = 10
"""Names that a package exports. A reader can hold no more."""
REFUSED_NAMES = {"base", "common", "helper", "helpers", "misc", "util", "utils"}
"""Names that say nothing about what is inside."""

ENVIRONMENT = {("os", name) for name in ("environ", "environb", "getenv", "getenvb", "putenv")}
WALL_CLOCK = {
    *(("time", name) for name in ("time", "time_ns", "localtime", "gmtime")),
    *(("datetime", name) for name in ("now", "utcnow", "today")),
    ("date", "today"),
}
BUILD_MACHINE = re.compile(r"/(?:work|workspace|builds|home/runner)/\w")
"""Where build machines keep checkouts. Such a path means nothing to anybody else."""
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def ours(tracked: list[Path]) -> list[Path]:
    """The Python files of the four packages."""
    return [path for path in tracked if path.suffix == ".py" and path.parts[0] in OURS]


def touched(source: str) -> Iterator[tuple[str, str]]:
    """`(owner, name)` of every attribute looked up on a plain name, and of every `from owner import name`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)


def test_no_file_is_long(root: Path, tracked: list[Path]) -> None:
    sizes = {path: len((root / path).read_text().splitlines()) for path in tracked if path.suffix == ".py"}
    allowed = {path: LONGEST_TEST if path.parts[0] == "tests" else LONGEST_FILE for path in sizes}
    assert {str(path): lines for path, lines in sizes.items() if lines > allowed[path]} == {}


def test_names_say_what_is_inside(tracked: list[Path]) -> None:
    assert [str(path) for path in ours(tracked) if REFUSED_NAMES & {*path.parts, path.stem}] == []


def test_data_and_tests_are_no_packages(tracked: list[Path]) -> None:
    """An `__init__.py` there would shadow an installed package of that name, or make the suite test itself."""
    inits = [path for path in tracked if path.name == "__init__.py"]
    assert [str(path) for path in inits if path.parts[0] in {"datasets", "tests"}] == []


def borrowed(source: str) -> set[str]:
    """Names that a module imports from somebody else: there to be used, not to be offered."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] not in OURS:
            found.update(alias.asname or alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("package", OURS)
def test_face_is_what_it_says(root: Path, package: str) -> None:
    """All that can be had is announced, all that is announced can be had (some of it only when first asked for)."""
    module = importlib.import_module(package)
    said = getattr(module, "__all__", [])
    seen = {name for name, value in vars(module).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    seen -= borrowed((root / package / "__init__.py").read_text())
    assert said == sorted(seen | {name for name in said if hasattr(module, name)})
    assert len(said) <= WIDEST_FACE


@pytest.mark.parametrize("package", OURS)
def test_package_is_typed(root: Path, package: str) -> None:
    assert (root / package / "py.typed").is_file()


def test_one_file_reads_the_environment(root: Path, tracked: list[Path]) -> None:
    readers = [str(path) for path in ours(tracked) if ENVIRONMENT & set(touched((root / path).read_text()))]
    # models/serving.py only sets a switch for the library that it loads.
    assert set(readers) <= {"detector/settings.py", "models/serving.py"}


def test_computing_never_asks_what_time_it_is(root: Path, tracked: list[Path]) -> None:
    """The same input must give the same bytes tomorrow: event time comes from the records."""
    pure = [path for path in ours(tracked) if path.parts[0] in {"features", "models"}]
    assert pure
    assert [str(path) for path in pure if WALL_CLOCK & set(touched((root / path).read_text()))] == []


def test_no_file_names_a_build_machine(root: Path, tracked: list[Path]) -> None:
    found = {}
    for path in tracked:
        text = (root / path).read_bytes().decode(errors="replace")
        if (match := BUILD_MACHINE.search(text)) or str(root) in text:
            found[str(path)] = match.group() if match else str(root)
    assert found == {}


def test_every_link_in_the_documents_leads_somewhere(root: Path, tracked: list[Path]) -> None:
    broken = []
    for path in tracked:
        if path.suffix == ".md" and path.parts[0] not in {"datasets", "tests"}:
            links = [link for link in LINK.findall((root / path).read_text()) if ":" not in link]
            broken += [f"{path}: {link}" for link in links if not (root / path.parent / link).exists()]
    assert broken == []


def test_index_of_the_documents_lists_every_page(root: Path, tracked: list[Path]) -> None:
    pages = {path.as_posix().removeprefix("docs/") for path in tracked if path.parts[0] == "docs"}
    assert "testing.md" in pages
    assert pages - {"index.md"} <= set(LINK.findall((root / "docs" / "index.md").read_text()))


def test_help_of_make_names_every_target(root: Path) -> None:
    text = (root / "Makefile").read_text()
    rules = set(re.findall(r"^([a-z][\w-]*):", text, re.MULTILINE))
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    shown = subprocess.run(["make"], cwd=root, check=True, capture_output=True, text=True).stdout
    listed = re.findall(r"^  make ([\w-]+) +\S", shown, re.MULTILINE)
    assert set(listed) == rules == set(phony.split())
    assert len(listed) == len(rules)
