"""A source from a list and a sink into one: how archives are scored, and what tests of the loop use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ListSource(Generic[T]):
    """Gives `items` in batches of `batch`; `committed` counts what has been dealt with."""

    def __init__(self, items: Sequence[T], batch: int = 4096) -> None:
        self.committed = 0
        self._items, self._batch, self._at = items, batch, 0

    def read(self) -> Sequence[T] | None:
        """The next items, or None at the end."""
        if self._at >= len(self._items):
            return None
        found = self._items[self._at : self._at + self._batch]
        self._at += len(found)
        return found

    def commit(self) -> None:
        """Remember how far reading has come; a new source may start from there."""
        self.committed = self._at


class ListSink(Generic[T]):
    """Keeps what is flushed in `items`; what is only written is lost with a crash, as in any sink."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._waiting: list[T] = []

    def write(self, items: Sequence[T]) -> None:
        """Hold the items until the next flush."""
        self._waiting += items

    def flush(self) -> None:
        """Make what was written final."""
        self.items += self._waiting
        self._waiting = []
