"""The one loop of every scorer, whatever the records come from and go to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
InSource = TypeVar("InSource", covariant=True)
OutSink = TypeVar("OutSink", contravariant=True)


class Source(Protocol[InSource]):
    """Where batches come from."""

    def read(self) -> Sequence[InSource] | None:
        """The next batch, in order; may be empty; None when there will be no more."""
        ...

    def commit(self) -> None:
        """Everything read so far has been dealt with; after a crash, reading goes on from here."""
        ...


class Sink(Protocol[OutSink]):
    """Where results go."""

    def write(self, items: Sequence[OutSink]) -> None:
        """Take results; they may be kept back until `flush`."""
        ...

    def flush(self) -> None:
        """Return only when everything written is safe. Flushing twice writes once."""
        ...


Handler = Callable[[Sequence[In]], Sequence[Out]]


def run(source: Source[In], handle: Callable[[Sequence[In]], Sequence[Out]], sink: Sink[Out]) -> None:
    """1 read  2 handle  3 write  4 flush  5 commit; until the source ends.

    A crash between 4 and 5 repeats a batch, never loses one; a source and a sink of one transaction make it exactly once.
    """
    while (batch := source.read()) is not None:
        sink.write(handle(batch))
        sink.flush()
        source.commit()
