"""One event of a Chrome trace, as far as its readers need it, and who takes events."""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec

Micros = Annotated[float, msgspec.Meta(ge=-(2.0**62), le=2.0**62)]
Name = int | str | float | None


class Event(msgspec.Struct, frozen=True, gc=False):
    """What is needed of an event; `ts` and `dur` are microseconds, `ph` is empty for an object that is no event."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: Micros | None = None
    dur: Micros | None = None
    pid: Name = None
    tid: Name = None
    args: msgspec.Raw = msgspec.Raw(b"")


LIST: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[Event], strict=False)
ONE: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event, strict=False)


class Sink(Protocol):
    """Where events go."""

    def events(self, events: list[Event]) -> None:
        """Take these events."""
        ...

    def about(self, key: str, raw: bytes) -> None:
        """Take the value (perhaps only its beginning) of a wanted key that stands beside the events."""
        ...
