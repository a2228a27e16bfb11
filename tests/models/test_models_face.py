"""The public face of the package is what it says, small and sorted."""

from __future__ import annotations

import models


def test_public_names_exist_are_few_and_sorted() -> None:
    assert models.__all__ == sorted(models.__all__, key=lambda name: (not name[0].isupper(), name))
    assert len(models.__all__) <= 10
    assert all(hasattr(models, name) for name in models.__all__)
