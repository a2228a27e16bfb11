"""A fact: hard evidence that never waits for a model or a gate."""

from __future__ import annotations

from typing import Literal

import msgspec

from features.vocabulary import Channel

Role = Literal["root", "cascade", "context"]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, at a time, known for certain; `ranks` are those it points at."""

    ts: float
    name: str  # a word of the catalog's evidence vocabulary
    role: Role
    channel: Channel
    text: str
    hard: bool = True  # opens an incident by itself
    ranks: tuple[int, ...] = ()
    node: str | None = None
    source: str = ""
    kind: Literal["log", "telemetry", "timeline", "rule"] = "log"
    until: float | None = None  # it holds at least until then
    lost_s: float | None = None  # what it cost, where the fact itself tells
    slowdown: float | None = None
