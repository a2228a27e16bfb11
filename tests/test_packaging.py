"""What we ship: a wheel of four packages and their data, whose declared dependencies are enough to run it anywhere."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = {"detector", "features", "models", "streaming"}
NEVER_FOR_HELP = {"numpy", "onnxruntime", "pandas"}
"""Each costs a good part of a second, which somebody who asks for `--help` must not wait for."""
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def run(command: list[str | Path], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run to the end and return what it said, whatever its exit code."""
    return subprocess.run(command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    """The `[project]` table."""
    table: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return table


@pytest.fixture(scope="module")
def wheel(root: Path, tracked: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, built from a copy of what is tracked: leftovers of earlier builds must not get in, nor be left."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for path in tracked:
        if path.parts[:2] != ("datasets", "runs"):  # large; the rest of datasets/ is bait enough
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes((root / path).read_bytes())
    (copy / "datasets" / "bait").mkdir(parents=True)
    (copy / "datasets" / "bait" / "bait.py").touch()
    built = run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, "."], cwd=copy)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed wheel and nothing else; libraries come from the running environment."""
    target = tmp_path_factory.mktemp("installed")
    done = run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", target, wheel],
        cwd=target,
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def without_extras(project: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that, early on the path, makes everything that only an extra brings look as if it were not installed."""
    folder = tmp_path_factory.mktemp("missing")
    optional = declared(project, "train", "kafka", "agent") - declared(project)
    for module, owners in importlib.metadata.packages_distributions().items():
        if module.isidentifier() and {canonicalize_name(owner) for owner in owners} <= optional:
            (folder / f"{module}.py").write_text(f"raise ModuleNotFoundError('{module} is out of reach', name='{module}')")
    assert {"sklearn.py", "pyod.py", "onnx.py", "kafka.py"} <= {path.name for path in folder.iterdir()}
    return folder


def declared(project: dict[str, Any], *extras: str) -> set[str]:
    """Names of the distributions that the runtime, and these extras with it, ask for."""
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def imports(source: str) -> Iterator[str]:
    """Top-level names of all that is imported, at the top, in a function, or by name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"import_module", "required"}:
            yield from (str(arg.value).split(".")[0] for arg in node.args[:1] if isinstance(arg, ast.Constant))


@pytest.fixture(scope="module")
def foreign(root: Path, tracked: list[Path]) -> dict[str, str]:
    """Every library that our packages import, and one file that does."""
    found: dict[str, str] = {}
    for path in tracked:
        if path.suffix == ".py" and path.parts[0] in OURS:
            found |= dict.fromkeys(imports((root / path).read_text()), str(path))
    return {name: path for name, path in found.items() if name not in OURS | sys.stdlib_module_names}


def test_wheel_ships_our_packages_whole_and_nothing_else(wheel: Path, tracked: list[Path]) -> None:
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert shipped == {path.as_posix() for path in tracked if path.parts[0] in OURS}


def test_wheel_carries_what_it_needs_to_judge(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {"detector/catalog.toml", "detector/knobs.toml", "detector/bundle/manifest.json"}
    assert needed | {f"{package}/py.typed" for package in OURS} <= names
    assert any(re.fullmatch(r"detector/bundle/[^/]+\.onnx", name) for name in names)


def test_wheel_says_who_it_is(wheel: Path, project: dict[str, Any]) -> None:
    archive = zipfile.ZipFile(wheel)
    (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    metadata = archive.read(f"{info}/METADATA").decode()
    assert f"Version: {project['version']}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Classifier: Private :: Do Not Upload\n" in metadata
    assert "Apache License" in archive.read(f"{info}/licenses/LICENSE").decode()


def test_nobody_else_owns_our_names() -> None:
    """Another distribution with a package of that name would overwrite our files without a word."""
    owners = importlib.metadata.packages_distributions()
    assert {name: set(owners.get(name, [])) for name in OURS} == {name: {"rankwatch"} for name in OURS}


def test_no_module_is_named_like_a_library(tracked: list[Path], foreign: dict[str, str]) -> None:
    """Started as a script, `kafka.py` would import itself as `kafka`."""
    assert [str(path) for path in tracked if path.parts[0] in OURS and path.stem in foreign] == []


def test_imports_and_declared_dependencies_agree(project: dict[str, Any], foreign: dict[str, str]) -> None:
    wanted = declared(project, "train", "kafka", "agent", "parquet")
    owners = importlib.metadata.packages_distributions()
    used = {name: {canonicalize_name(owner) for owner in owners.get(name, [])} for name in foreign}
    assert {name: foreign[name] for name, dists in used.items() if not dists & wanted} == {}
    assert declared(project, "train") - set().union(*used.values()) == set()


@pytest.mark.parametrize("lock", ["runtime", "dev"])
def test_lock_pins_what_is_declared_and_names_no_address(root: Path, project: dict[str, Any], lock: str) -> None:
    text = (root / "requirements" / f"{lock}.lock").read_text()
    pins = {canonicalize_name(name): version for name, version, _ in PIN.findall(text)}
    extras = project["optional-dependencies"]
    chosen = extras if lock == "dev" else ["train"]
    wanted = [*project["dependencies"], *(line for extra in chosen for line in extras[extra])]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement
    assert len(pins) == len(re.findall(r"^[^\s#]", text, re.MULTILINE))  # every line that installs has its hashes
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash)", text, re.MULTILINE)


def test_locks_agree(root: Path) -> None:
    runtime, dev = (
        {name: version for name, version, _ in PIN.findall((root / "requirements" / f"{lock}.lock").read_text())}
        for lock in ("runtime", "dev")
    )
    assert runtime.items() <= dev.items()


def test_installed_wheel_answers_outside_the_repository(installed: Path, without_extras: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(without_extras), str(installed)])
    home = run([sys.executable, "-c", "import detector; print(detector.__file__)"], cwd=tmp_path, PYTHONPATH=path)
    assert Path(home.stdout).is_relative_to(installed), home.stderr
    done = run([installed / "bin" / "rankwatch", "--help"], cwd=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "score" in done.stdout


def test_help_waits_for_no_heavy_library(tmp_path: Path) -> None:
    script = (
        "import atexit, sys; sys.argv = ['rankwatch', '--help']; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); from detector.cli import main; main()"
    )
    done = run([sys.executable, "-c", script], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
    assert NEVER_FOR_HELP & set(done.stderr.split()) == set()


@pytest.mark.slow
def test_installed_wheel_scores_a_run_without_any_extra(
    root: Path, installed: Path, without_extras: Path, tmp_path: Path
) -> None:
    """Serving needs the runtime dependencies alone: no training library, no Kafka, no agent."""
    runs = [path for path in (root / "datasets" / "runs").iterdir() if path.is_dir()]
    smallest = min(runs, key=lambda path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()))
    done = run(
        [installed / "bin" / "rankwatch", "score", smallest, "--format", "json"],
        cwd=tmp_path,
        PYTHONPATH=os.pathsep.join([str(without_extras), str(installed)]),
    )
    assert done.returncode in {0, 3}, done.stderr
    assert json.loads(done.stdout)["schema"] == "rankwatch.report/1"
    assert list(tmp_path.iterdir()) == []
