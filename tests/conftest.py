"""What every test shares: where the repository is, what belongs to it, and conditions that are the same everywhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# Time is never a verdict here, and CI draws the same examples for everybody; at home each run draws new ones.
settings.register_profile("home", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")

# A developer's own settings must not decide a test. Before collection, since settings may be read at import.
for name in [name for name in os.environ if name.startswith("RANKWATCH_")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """Every file that git tracks and that is still there, relative to the root."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    paths = [Path(name) for name in listing.decode().split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]
