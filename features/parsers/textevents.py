"""Recognises one-line messages: a table of wordings, each with the event that it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from features.parsers.logkernel import KERNEL_WORDINGS
from features.parsers.lognccl import NCCL_HEAD, NCCL_WORDINGS
from features.parsers.logprocess import PROCESS_WORDINGS
from features.parsers.logwording import Wording
from features.parsers.textline import TEXT_KEPT, Line
from features.records import Log

WORDINGS: tuple[Wording, ...] = PROCESS_WORDINGS + KERNEL_WORDINGS + NCCL_WORDINGS

# A line without any of these holds no known message. Every wording's needle holds one of them (a test says so).
COARSE = (
    "rror", "NCCL", "Xid", "ank", "illed", "xit", "emory", "EMORY", "oom", "OOM", "annot", "orker", "ismatch",
    "imed out", "imeout", "ignal", "ermina", "ail", "ink", "erflow", "VERFLOW", "NaN", "nan", "space left", "espond",
    "HOROVOD", "host", "stuck", "blocked", "hrottl", "nable", "scale", "bort", "ault", "xception", "CANCELLED",
    "DUE TO", "orovod", "onnect", "uplicate", "same name", "record state", "available slots", "enqueued", "loopback",
    "initialized", "Gloo", "fallen", "is lost", "achine check", "EDAC", "tale file", "async", "completion", "nccl",
    "Using", "device", "-> ", "bad_alloc", "Interrupt", "ABORT", "many open", "Detected", "background", "evicted",
    "clients", "ddress", "daemon", "*** ", "low on",
)  # fmt: skip

RANKS_MAX = 1 << 20  # ranks in one range; a wider one is a misprint
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU",
}  # fmt: skip


class Found(NamedTuple):
    """A recognised message: its event, the ranks it speaks about, who wrote it if it says so, and its details."""

    event: str
    ranks: tuple[int, ...]
    rank: int | None
    node: str | None
    fields: dict[str, str]


def promising(text: str) -> bool:
    """Whether `text` may hold a known message; cheap, and never wrong on the side of no."""
    for part in COARSE:  # noqa: SIM110 - any() with a generator takes twice as long, and this runs for every line
        if part in text:
            return True
    return False


def find(text: str) -> Found | None:
    """The message in `text`; the first wording of the table that fits is taken."""
    text = text.strip()
    for wording in WORDINGS:
        if wording.needle in text:
            match = wording.pattern.search(text)
            if match is not None:
                head = NCCL_HEAD.search(text) if "NCCL" in text else None
                return _found(wording.event, match.groupdict() | ({} if head is None else head.groupdict()))
    return None


def record(found: Found, line: Line, source: str) -> Log:
    """The record of a message that was found in `line`."""
    return Log(
        ts=line.ts,
        event=found.event,
        text=line.text.strip()[:TEXT_KEPT],
        rank=found.rank if line.rank is None else line.rank,
        node=line.node if found.node is None else found.node,
        ranks=found.ranks,
        fields=found.fields,
        source=source,
    )


def _found(event: str, groups: Mapping[str, str | None]) -> Found | None:
    fields = {key: value.strip() for key, value in groups.items() if value is not None}
    ranks = _ranks(fields.pop("ranks", ""))
    rank = fields.pop("rank", None)
    node = fields.pop("node", None)
    if fields.get("code") == "0":  # an end without error
        return None
    return Found(event, ranks, None if rank is None else int(rank), node, with_signal(fields))


def _ranks(text: str) -> tuple[int, ...]:
    """Ranks of a list such as "0,3-5"."""
    found: set[int] = set()
    for first, last in _RANGE.findall(text):
        found.update(range(int(first), min(int(last or first), int(first) + RANKS_MAX) + 1))
    return tuple(sorted(found))


def with_signal(fields: dict[str, str]) -> dict[str, str]:
    """`fields` with the name of the signal that ended a process, where code or number say so."""
    signal = signal_of(fields)
    return fields if signal is None else fields | {"signal": SIGNALS.get(signal, str(signal))}


def signal_of(fields: Mapping[str, str]) -> int | None:
    """The signal that ended a process: named, or from an exit code (128 + n in shells, -n in Python)."""
    said = fields.get("signal", "")
    if said.isdecimal():
        return int(said)
    code = fields.get("code", "")
    if code.startswith("-") and code[1:].isdecimal():
        return int(code[1:])
    return int(code) - 128 if code.isdecimal() and 128 < int(code) < 160 else None
