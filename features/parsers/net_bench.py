"""Reads the output of bandwidth tests of GPUs and networks; what else such a file says is read as text."""

from __future__ import annotations

import re
from typing import cast

from features.notices import Notices
from features.parsers.loglines import LineSplitter
from features.parsers.net_nccltests import NcclTables
from features.parsers.net_p2p import P2pTables
from features.parsers.protocol import ParserRow
from features.parsers.textlog import TextLog
from features.records import Record

LONGEST = 8192
"""Bytes. A matrix of 64 GPUs has rows of some 500."""
WRONG = "the test found values that are wrong: data is damaged on its way between GPUs"

_SIGNS = ((b"P2P=", b"Bandwidth"), (b"algbw", b"busbw"), (b"memcpy", b"GPU(row)"))
_NCCL = re.compile(r"\S+:\d+:\d+ (?:\[\d+\] )?NCCL |NCCL version ")
_PREFIX = re.compile(r"(?:\[\d+,\d+\]<std(?:out|err)>:|\d+: |\S+: (?=#))")


class Bench:
    """Tables are taken out; the other lines go to the reader of logs, which sees blank lines in their place."""

    absolute = False

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._splitter = LineSplitter(file, notices)
        self._p2p, self._nccl = P2pTables(file), NcclTables(file)
        self._text = TextLog(file, notices)

    def feed(self, data: bytes) -> list[Record]:
        """Results of the tests that `data` completes, and messages in between."""
        return [record for line in self._splitter.feed(data) for record in self._line(line)]

    def finish(self) -> list[Record]:
        """Results of the last test."""
        records = [record for line in self._splitter.finish() for record in self._line(line)]
        self._p2p.finish()
        self._nccl.finish()
        return records + self._text.finish() + self._take()

    def _line(self, line: bytes) -> list[Record]:
        text = _bare(line) if len(line) <= LONGEST else ""
        number = self._splitter.number
        taken = bool(text) and (self._p2p.read(text, number) or self._nccl.read(text, number))
        return self._text.feed(b"\n" if taken else line + b"\n") + self._take()

    def _take(self) -> list[Record]:
        for count, line in self._nccl.wrong:
            self._notices.add("warning", WRONG, file=self._file, place=f"line {line}", count=count)
        results = [*self._p2p.found, *self._nccl.found]
        self._p2p.found, self._nccl.found, self._nccl.wrong = [], [], []
        return cast("list[Record]", results)


def _bare(line: bytes) -> str:
    text = line.decode("utf-8", errors="replace")
    prefix = _PREFIX.match(text)
    return text[prefix.end() :] if prefix else text


def sniff(head: bytes) -> bool:
    """Whether these first bytes are mostly those of such a test."""
    if not any(all(part in head for part in sign) for sign in _SIGNS):
        return False
    p2p, nccl = P2pTables(""), NcclTables("")
    lines = [line for line in head.split(b"\n")[:-1] or [head] if line.strip() and len(line) <= LONGEST]
    texts = [_bare(line) for line in lines]
    belongs = sum(p2p.read(text, 1) or nccl.read(text, 1) or _NCCL.match(text) is not None for text in texts)
    return belongs * 2 > len(texts)


BENCH = ParserRow("net", sniff, Bench)
