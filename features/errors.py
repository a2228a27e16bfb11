"""The error tree. One sentence each; a message says place, what was expected, what was found, and the remedy.

RankwatchError
├── InputError          something a person gave us cannot be used
│   ├── UnreadableRun   a run directory or file holds nothing that any parser understands
│   └── UnknownIncident an incident id that the report does not hold
├── SettingsError       an option or environment variable is unknown or out of range
├── CatalogError        the catalog of causes contradicts itself
├── BundleError         a model bundle cannot be trusted
│   ├── TamperedBundle  a file differs from its checksum in the manifest
│   └── SchemaMismatch  the bundle was trained on other features than this version makes
└── MissingExtra        a feature needs an optional dependency that is not installed
"""

from __future__ import annotations

from functools import partial
from typing import Any


class RankwatchError(Exception):
    """Base of all errors that are raised on purpose; the command line prints the message, not a traceback."""

    retriable = False

    def __init__(self, place: str, *, expected: str, found: str, remedy: str) -> None:
        """`place` is a file, line, option or address; the four parts make one readable message."""
        super().__init__(f"{place}: expected {expected}, found {found}\nhint: {remedy}")
        self.place, self.expected, self.found, self.remedy = place, expected, found, remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders; an exception is otherwise made again from its message alone, which fails here."""
        return partial(type(self), expected=self.expected, found=self.found, remedy=self.remedy), (self.place,)


class InputError(RankwatchError):
    """Something a person gave us cannot be used."""


class UnreadableRun(InputError):
    """A run directory or file holds nothing that any parser understands."""


class UnknownIncident(InputError):
    """An incident id that the report does not hold."""


class SettingsError(RankwatchError):
    """An option or environment variable is unknown or out of range."""


class CatalogError(RankwatchError):
    """The catalog of causes contradicts itself."""


class BundleError(RankwatchError):
    """A model bundle cannot be trusted."""


class TamperedBundle(BundleError):
    """A file of the bundle differs from its checksum in the manifest."""


class SchemaMismatch(BundleError):
    """The bundle was trained on other features than this version makes."""


class MissingExtra(RankwatchError):
    """A feature needs an optional dependency that is not installed."""
