"""Recognises one-line messages: a table of wordings, each with the event that it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from features.parsers.logkernel import KERNEL_WORDINGS
from features.parsers.lognccl import NCCL_WORDINGS
from features.parsers.logprocess import PROCESS_WORDINGS
from features.parsers.wording import Wording

WORDINGS: tuple[Wording, ...] = PROCESS_WORDINGS + KERNEL_WORDINGS + NCCL_WORDINGS

# A line without any of these holds no known message. Every wording's needle holds one of them (a test says so).
COARSE = (
    "rror", "NCCL", "Xid", "XID", "rank", "Rank", "illed", "exit", "emory", "oom", "OOM", "annot", "orker", "ismatch",
    "timed out", "timeout", "imeout", "signal", "ermina", "ailed", "Link", "link", "verflow", "NaN", "nan", "space left",
    "not responding", "etwork", "HOROVOD", "host", "stuck", "blocked", "hrottl", "nable", "scal", "Killed", "Abort",
    "fault", "xception", "CANCELLED", "Call to", "Horovod",
)  # fmt: skip

_SIGNALS = {
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
    return any(part in text for part in COARSE)


def find(text: str) -> Found | None:
    """The message in `text`; the first wording of the table that fits is taken."""
    for wording in WORDINGS:
        if wording.needle in text:
            match = wording.pattern.search(text)
            if match is not None:
                return _found(wording.event, match.groupdict())
    return None


def _found(event: str, groups: Mapping[str, str | None]) -> Found | None:
    fields = {key: value.strip() for key, value in groups.items() if value is not None}
    ranks = tuple(sorted({int(r) for r in re.findall(r"\d+", fields.pop("ranks", ""))}))
    rank = fields.pop("rank", None)
    node = fields.pop("node", None)
    if fields.get("code") == "0":  # an end without error
        return None
    return Found(event, ranks, None if rank is None else int(rank), node, with_signal(fields))


def with_signal(fields: dict[str, str]) -> dict[str, str]:
    """`fields` with the name of the signal that ended a process, where code or number say so."""
    signal = signal_of(fields)
    return fields if signal is None else fields | {"signal": _SIGNALS.get(signal, str(signal))}


def signal_of(fields: Mapping[str, str]) -> int | None:
    """The signal that ended a process: named, or from an exit code (128 + n in shells, -n in Python)."""
    said = fields.get("signal", "")
    if said.isdecimal():
        return int(said)
    code = fields.get("code", "")
    if code.startswith("-") and code[1:].isdecimal():
        return int(code[1:])
    return int(code) - 128 if code.isdecimal() and 128 < int(code) < 160 else None
