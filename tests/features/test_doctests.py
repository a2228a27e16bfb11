"""The examples in the docstrings of features: they run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import features

MODULES = sorted(m.name for m in pkgutil.walk_packages(features.__path__, "features."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {name for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples}
    assert "features.windows" in found
