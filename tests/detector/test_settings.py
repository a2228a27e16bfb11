"""Settings: read from the environment once, and a typo is never a default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from detector.settings import Settings, read_settings
from features.errors import SettingsError


def test_nothing_set_is_the_default() -> None:
    assert read_settings({"HOME": "/root", "RANK": "3"}) == Settings()
    assert read_settings({"RANKWATCH_BUNDLE": ""}) == Settings()


def test_places_are_paths() -> None:
    known = read_settings({"RANKWATCH_BUNDLE": "/models/a", "RANKWATCH_DATASETS": "data"})
    assert (known.bundle, known.datasets) == (Path("/models/a"), Path("data"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RANKWATCH_BUNDEL", "did you mean RANKWATCH_BUNDLE?"),
        ("RANKWATCH_DATASET", "did you mean RANKWATCH_DATASETS?"),
        ("RANKWATCH_bundle", "did you mean RANKWATCH_BUNDLE?"),
        ("RANKWATCH_ZZZZZZZZZZZZZZZZZZZZZZZZZ", "unset it"),
    ],
)
def test_an_unknown_variable_is_refused_with_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings({name: "x", "RANKWATCH_DATASETS": "data"})
    assert (refused.value.place, refused.value.remedy) == (name, hint)
    assert "RANKWATCH_BUNDLE" in refused.value.expected


def test_the_first_of_several_unknown_ones_is_named() -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings({"RANKWATCH_Z": "", "RANKWATCH_A": ""})
    assert refused.value.place == "RANKWATCH_A"


def test_settings_do_not_change() -> None:
    settings: Any = read_settings({})
    with pytest.raises(ValidationError):
        settings.bundle = Path("x")
    with pytest.raises(ValidationError):
        Settings(budnle=Path("x"))  # type: ignore[call-arg]


@pytest.mark.parametrize("more", [(), ("--bundle", "some/where"), ("--unseen-bundle", "some/where")])
def test_scoring_refuses_it_as_wrong_use(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Whichever option wins over it: the variable does not do what somebody hopes."""
    monkeypatch.setenv("RANKWATCH_BUNDEL", "/models/a")
    done = call("score", tmp_path, *more)
    assert (done.code, done.out) == (2, "")
    assert "RANKWATCH_BUNDEL" in done.err
    assert "did you mean RANKWATCH_BUNDLE?" in done.err
