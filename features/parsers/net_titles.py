"""Reads the lines between saved counters that tell when they were read, and of which node or interface."""

from __future__ import annotations

import re

from features.parsers.clocks import Clock
from features.parsers.net_moments import Moments

ZONELESS = "times have no zone: taken as UTC"

LONGEST = 300
"""Characters of a title."""

NAME = re.compile(r"[A-Za-z][\w.-]{0,80}$")
INTERFACE = re.compile(r"(?:eth|en[opsxP]|ib|bond|roce|rdma|mlx|wl|hsn|team|rail)\w*$")
"""Names that are those of interfaces rather than of nodes."""
_STAGE = re.compile(
    r"(?:before|after|start|end|begin|pre|post|first|second|last|baseline|t|sample|scrape|run|step|round)[_-]?\d*$", re.I
)
"""Names that tell which reading it is, not of what."""
_FRAME = re.compile(r"(?:[=#*+-]{2,}|==>) *(?P<words>.*?) *[=#*+<-]*$")
_LABEL = re.compile(r"(?:(?:node|host|hostname|time|timestamp|date|scrape|sample|at|now|iface|interface)(?:[:= ]+|$))+", re.I)
_COMMENTS = ("#", "$ ", "+ ")
_DASHES = re.compile(r"-{5,}\s*$")
_UTC = re.compile(r"\b(?:UTC|GMT)\b")
_TRIFLE = re.compile(r"[\s=#*+:<>()-]*(?:[A-Z]{3,4})?[\s=#*+:<>()-]*")


class Titles:
    """Notes in the moments what titles say: a time opens the next moment, a name holds until the next one."""

    def __init__(self, moments: Moments) -> None:
        self.zoneless = False  # a time had no zone
        self._moments = moments
        self._clock = Clock()
        self._ruled = False  # the line before was a rule of dashes

    def read(self, line: str) -> bool:
        """Whether the line is such a title, a rule, a comment or blank."""
        ruled, self._ruled = self._ruled, _DASHES.match(line) is not None
        if self._ruled or not line.strip():
            return True
        if len(line) > LONGEST:
            return False
        if ruled and NAME.match(line.strip()):
            self._title(line.strip())
            return True
        return self._heading(line)

    def _heading(self, line: str) -> bool:
        """A time, a node or an interface that stands alone, framed or labelled; a comment or command says nothing."""
        frame = _FRAME.match(line)
        words = (frame["words"] if frame else line.removeprefix("#")).strip()
        label = _LABEL.match(words)
        rest = words[label.end() :] if label else words
        stamp = self._clock.read(rest + " ")
        if stamp is not None and stamp.missing != "boot" and self._is_alone(rest, stamp.start, stamp.end):
            self.zoneless = self.zoneless or (stamp.missing == "zone" and _UTC.search(rest) is None)
            self._moments.clock(stamp.ts, absolute=stamp.missing in {"", "zone"})
            return True
        if (frame or label) and NAME.match(rest):
            # A framed word is a node's name if it looks like one: "node07", "gpu-a", but not "counters".
            self._title(rest, surely=label is not None or any(c.isdecimal() or c in ".-" for c in rest))
            return True
        return line.startswith(_COMMENTS) or (label is not None and (not rest or rest.isdecimal()))

    def _is_alone(self, text: str, start: int, end: int) -> bool:
        """Whether a line is a time and nothing else, but for a name before it and a zone behind."""
        before = text[:start].strip(" =#*:([-")
        if _TRIFLE.fullmatch(text[end:]) is None or (before and not NAME.match(before)):
            return False
        if before:
            self._title(before)
        return True

    def _title(self, name: str, *, surely: bool = True) -> None:
        if INTERFACE.match(name):
            self._moments.heading = name
        elif surely and not _STAGE.match(name):
            self._moments.node = name
