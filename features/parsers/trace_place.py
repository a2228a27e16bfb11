"""Which rank a file belongs to, by its name: tools that write one file a rank put the rank there and nowhere else."""

from __future__ import annotations

import re
from typing import Final

_RANK: Final = re.compile(r"(?:^|[/._-])rank[._-]?(\d{1,7})(?=[/._-]|$)")
_FOLDER: Final = re.compile(r"(?:^|/)(\d{1,7})(?:_\d{1,7})?/[^/]+$")


def rank_of_file(name: str) -> int | None:
    """The rank in `profile.rank3.json`, `rank-3/trace.json`, ..."""
    match = _RANK.search(name)
    return None if match is None else int(match[1])


def rank_of_folder(name: str) -> int | None:
    """The rank in `traces/3/comm.json`."""
    match = _FOLDER.search(name)
    return None if match is None else int(match[1])
