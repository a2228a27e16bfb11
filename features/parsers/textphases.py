"""Reads what a run does besides steps (start, validation, checkpoint, end) and what it says of itself."""

from __future__ import annotations

import re
from typing import NamedTuple

from features.parsers.steplines import number


class Happening(NamedTuple):
    """A phase as a line tells it; the caller adds time and rank."""

    kind: str
    duration_s: float | None
    step: int | None
    epoch: int | None


class PhaseWording(NamedTuple):
    """`needle` is a plain part of every line that `pattern` fits."""

    kind: str
    needle: str
    pattern: re.Pattern[str]


def _row(kind: str, needle: str, pattern: str) -> PhaseWording:
    return PhaseWording(kind, needle, re.compile(pattern))


_NUMBER = r"(\d+(?:\.\d+)?(?:e-?\d+)?)"

PHASES: tuple[PhaseWording, ...] = (
    _row("start", "start world_size=", r"^start world_size="),
    _row("validation", "eval_time=", rf"(?:\bepoch=(?P<epoch>\d+)\b.*)?\beval_time=(?P<duration>{_NUMBER})"),
    _row(
        "checkpoint",
        "checkpoint",
        rf"\bcheckpoint step=(?P<step>\d+)\b(?:.*\btime=(?P<duration>{_NUMBER}))?",
    ),
    _row("exhausted", "shard exhausted", r"\bshard exhausted(?: at step=(?P<step>\d+))?"),
    _row("join", "joined", r"^joined, last_joined_rank="),
    _row("done", "done", r"^done steps=(?P<step>\d+)"),
    _row("validation", "eval_runtime", rf"'eval_runtime': '?(?P<duration>{_NUMBER})"),
    _row("validation", "alidation", rf"(?i:\bvalidation (?:took|\w+ in|time:?) (?P<duration>{_NUMBER}) ?s)"),
    _row(
        "checkpoint",
        "heckpoint",
        rf"(?i:\b(?:saved|saving|wrote) checkpoint\b.*?(?:(?:in|took) (?P<duration>{_NUMBER}) ?s\w*)?\s*$)",
    ),
    _row("checkpoint", "saving model to", r"^Epoch (?P<epoch>\d+): .*saving model to"),
    _row("checkpoint", "Saving model checkpoint to", r"Saving model checkpoint to"),
    _row("done", "raining", r"(?i:\btraining (?:completed?|finished|done)\b)"),
)

_WORDS = ("start", "eval", "heckpoint", "exhausted", "joined", "done", "alid", "aving", "raining")
_FACT_WORDS = ("HOROVOD_", "NCCL", "GLOO_", "OMP_", "CUDA_VISIBLE", "size", "Horovod init", " Pid ")
_SETTING = re.compile(
    r"(?<!run with )\b((?:HOROVOD|NCCL|TORCH_NCCL|GLOO|OMP|CUDA_VISIBLE)_[A-Z0-9_]+)"
    r"(?:=| set by environment to )[\"']?([^\s,;\"']*?)[\"']?\.?(?=[\s,;]|$)"
)
_WORLD = re.compile(
    r"\bworld[ _]size[=: ]+(\d{1,7})\b|\bnranks (\d{1,7})\b|\(rank=\d+, size=(\d{1,7})"
    r"|communicator \(size = (\d{1,7})\)"
)
# NCCL's own words on where a rank runs, and those of its tests
_PLACE = re.compile(
    r"(?<![\w.-])([\w.-]{1,80}):\d+:\d+ \[\d+\] NCCL INFO comm \S+ rank (\d{1,7}) nranks"
    r"|\bRank +(\d{1,7}) .*?Pid +\d+ on +(\S+) device"
)
_NCCL_VERSION = re.compile(r"NCCL version (\S+)")


def phase_in(text: str) -> Happening | None:
    """The phase that `text` tells of."""
    if not any(word in text for word in _WORDS):
        return None
    for row in PHASES:
        if row.needle in text and (match := row.pattern.search(text)) is not None:
            said = match.groupdict()
            return Happening(
                row.kind,
                number(said.get("duration")),
                _int(said.get("step")),
                _int(said.get("epoch")),
            )
    return None


class Facts(NamedTuple):
    """What a line says of the run: its size, where ranks are, settings."""

    world_size: int | None
    nodes: dict[int, str]
    settings: dict[str, str]


def facts_in(text: str) -> Facts | None:
    """What `text` says of the run; None if nothing."""
    if not any(word in text for word in _FACT_WORDS):
        return None
    match = _WORLD.search(text)
    world = None if match is None else next(int(group) for group in match.groups() if group is not None)
    nodes = {int(r1 or r2): n1 or n2 for n1, r1, r2, n2 in _PLACE.findall(text)}
    settings = _settings(text)
    return Facts(world, nodes, settings) if world is not None or nodes or settings else None


def _settings(text: str) -> dict[str, str]:
    if text.startswith("start world_size="):
        return dict(part.split("=", 1) for part in text.split()[1:] if "=" in part)
    settings = {name: value for name, value in _SETTING.findall(text) if value}
    if match := _NCCL_VERSION.search(text):
        settings["nccl_version"] = match[1]
    if "Horovod initialized" in text:
        settings["horovod"] = "initialized"
    return settings


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)
