"""Settings from the environment: read here and nowhere else, once."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from features.errors import SettingsError

PREFIX = "RANKWATCH_"


class Settings(BaseModel):
    """All that can be set by RANKWATCH_* variables; options of the command line win over them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: Path | None = None  # the model bundle to judge with; None = the one shipped with the package
    datasets: Path | None = None  # recorded runs for `demo`; None = datasets/ beside the source


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings of this process. An unknown RANKWATCH_* variable is refused: a typo must not be a default."""
    given = os.environ if environ is None else environ
    names = {PREFIX + field.upper(): field for field in Settings.model_fields}
    unknown = sorted(name for name in given if name.startswith(PREFIX) and name not in names)
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=1)
        raise SettingsError(
            unknown[0],
            expected=f"one of {', '.join(sorted(names))}",
            found="a variable that nothing reads",
            remedy=f"did you mean {near[0]}?" if near else "unset it",
        )
    return Settings(**{field: Path(given[name]) for name, field in names.items() if given.get(name)})
