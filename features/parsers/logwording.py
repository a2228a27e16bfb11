"""One row of the tables of known wordings."""

from __future__ import annotations

import re
from typing import NamedTuple


class Wording(NamedTuple):
    """`needle` is a plain part of every message that `pattern` fits, so that most lines are refused cheaply.

    Named groups become fields of the Log; `ranks` are the ranks spoken about, `rank` and `node` the writer's.
    """

    event: str
    needle: str
    pattern: re.Pattern[str]


def wording(event: str, needle: str, pattern: str = "") -> Wording:
    """A row; without a pattern the needle alone is the message."""
    return Wording(event, needle, re.compile(pattern or re.escape(needle)))
