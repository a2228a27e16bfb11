"""Reads a training step from one line of text: the recorded layout, any `key=value` wording, and JSON lines."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from features.parsers.clocks import minute, seconds_in
from features.records import Step

MEGABYTE = 1e6  # bytes, as `rss_mb` is written


class Reading(NamedTuple):
    """What one line says of a step, by the names of Step.

    `rate` is in samples a second. `per_epoch` is the number of steps in an epoch, where the number counts within one.
    """

    values: dict[str, float]
    rank: int | None = None
    ts: float | None = None
    per_epoch: int | None = None


class Recorded(NamedTuple):
    """A step in the recorded layout, the host that the line names, and whether its time has a zone."""

    step: Step
    host: str | None
    zoned: bool


# What people call the fields of Step. Keys are lower case; a suffix _ms, _us, _s or _sec is taken off before.
NAMES: dict[str, str] = {
    name: field
    for field, names in {
        "step": "step steps global_step global_steps iter iters iteration iterations train/step trainer/global_step",
        "duration_s": "step_time time_taken iter_time iteration_time batch_time time_per_step time latency"
        " step_duration elapsed time/step sec_per_step",
        "data_s": "data data_time dataload load_time data_wait input_time dataloader_time",
        "forward_s": "fwd forward fwd_time forward_time",
        "backward_s": "bwd backward bwd_time backward_time",
        "sync_s": "sync sync_time comm comm_time allreduce allreduce_time communication",
        "optimizer_s": "opt optimizer optim opt_time optimizer_time",
        "epoch": "epoch ep train/epoch",
        "batch": "batch batch_size bs global_batch_size",
        "loss": "loss train_loss total_loss training_loss train/loss lm_loss mlm_loss avg_loss lm-loss",
        "grad_norm": "grad_norm gnorm gradient_norm train/grad_norm",
        "param_norm": "param_norm params_norm",
        "rss_bytes": "rss rss_mb rss_gb",
        "rate": "samples_per_s samples_per_sec samples/sec examples_per_second examples/sec images_per_sec images/sec"
        " img/sec samples_per_second train_samples_per_second",
    }.items()
    for name in names.split()
}
EVIDENCE = frozenset(NAMES.values()) - {"step", "epoch", "batch", "rss_bytes"}  # one of these makes a line a step
LARGEST_COUNT = 2.0**53  # beyond it a float does not hold every whole number; records on the wire have 64 bits
_COUNTS = frozenset({"step", "epoch", "batch"})
_UNITS = {"ms": 1e-3, "us": 1e-6, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "min": 60.0}
_SUFFIX = re.compile(r"(.+?)_?\(?(ms|us|s|sec|seconds)\)?")

# The recorded layout with its time, in one pass: date and minute, second, decimals, zone, rank, host, then the fields.
_RECORDED = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)? [A-Z]+ "
    r"\[rank=(\d{1,7})(?: host=([^\]\s]*))?\] step=(\d{1,15})(?: epoch=(\d{1,9}))?(?: loss=(\S+))?(?: grad_norm=(\S+))?"
    r"(?: param_norm=(\S+))?(?: data=(\S+))?(?: fwd=(\S+))?(?: bwd=(\S+))?(?: sync=(\S+))?(?: opt=(\S+))?"
    r" step_time=(\S+)(?: batch=(\d{1,9}))?(?: samples_per_s=\S+)?(?: rss_mb=(\S+))?\s*$"
)
_PAIR = re.compile(
    r"(?<![\w.])([A-Za-z][\w./-]{0,40}(?: ?\([a-z]{1,3}\))?)['\"]?(?: ?= ?|: ?)"
    r"([-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|NaN|NAN|inf|Inf|Infinity))"
    r"(?: ?(ms|us|secs?|s|min)\b)?(?![\w:])"
)
_SPACED = re.compile(r"\b(epoch|(?:train )?loss|grad[_ ]norm|step[_ ]time) ([-+]?\d[\d.eE+-]*|nan|NaN|inf)(?=[\s,;|)]|$)")
_BRACKETED = re.compile(r"\[?\b(?:[Ss]tep|[Ii]ter(?:ation)?)s?[ #:]{1,3}(\d[\d,]*)")
_decode = msgspec.json.Decoder().decode


def number(text: Any) -> float | None:
    """`text` as a number; NaN and infinities are numbers here, anything else is None."""
    if isinstance(text, bool) or not isinstance(text, int | float | str):
        return None
    try:
        return float(text.replace(",", "") if isinstance(text, str) else text)
    except (ValueError, OverflowError):
        return None


def count(value: float | None) -> int | None:
    """`value` as a whole number that is not negative, else None."""
    if value is None or not 0 <= value <= LARGEST_COUNT:
        return None
    return int(value)


def recorded(text: str, file: str, line: int) -> Recorded | None:
    """The step of a line in the recorded layout; None for any other line."""
    match = _RECORDED.match(text)
    if match is None:
        return None
    year, month, day, hour, minutes, seconds, fraction, zone, rank, host, step, epoch, *numbers = match.groups()
    start = minute(year, month, day, hour, minutes, zone or "")
    try:
        loss, grad, param, data, forward, backward, sync, optimizer, duration, batch, rss = [
            None if text is None else float(text) for text in numbers
        ]
    except ValueError:
        return None
    if start is None:
        return None
    record = Step(
        ts=seconds_in(start, seconds, fraction),
        rank=int(rank),
        step=int(step),
        duration_s=duration,
        data_s=data,
        forward_s=forward,
        backward_s=backward,
        sync_s=sync,
        optimizer_s=optimizer,
        epoch=None if epoch is None else int(epoch),
        batch=None if batch is None else int(batch),
        loss=loss,
        grad_norm=grad,
        param_norm=param,
        rss_bytes=None if rss is None else rss * MEGABYTE,
        source=f"{file}:{line}",
    )
    return Recorded(record, host, zone is not None)


def build(reading: Reading, ts: float, rank: int, step: int, source: str) -> Step:
    """The Step of a reading whose time, rank and number are settled."""
    values = reading.values
    duration, batch, rate = values.get("duration_s"), values.get("batch"), values.get("rate")
    if duration is None and batch is not None and rate is not None and rate > 0:
        duration = batch / rate
    seconds = {name: values.get(name) for name in ("data_s", "forward_s", "backward_s", "sync_s", "optimizer_s")}
    return Step(
        ts=ts,
        rank=rank,
        step=step,
        duration_s=duration,
        epoch=count(values.get("epoch")),
        batch=count(batch),
        loss=values.get("loss"),
        grad_norm=values.get("grad_norm"),
        param_norm=values.get("param_norm"),
        rss_bytes=values.get("rss_bytes"),
        source=source,
        **seconds,
    )


@lru_cache(maxsize=1024)
def canonical(name: str, unit: str | None) -> tuple[str, float] | None:
    """Which field of Step `name` means, and the factor from its unit to ours; None for other names."""
    name = name.lower().replace(" ", "_")
    field = NAMES.get(name)
    factor = _UNITS.get(unit or "", 1.0)
    if field is None:
        match = _SUFFIX.fullmatch(name)
        field = NAMES.get(match[1]) if match is not None else None
        if field is None or match is None or not field.endswith("_s"):
            return None
        factor = _UNITS[match[2]]
    if field == "rss_bytes":
        factor = {"rss_mb": MEGABYTE, "rss_gb": 1e3 * MEGABYTE}.get(name, 1.0)
    return field, factor


def pairs_in(text: str) -> dict[str, float]:
    """All fields of Step that `text` gives as `key=value` or `key: value`; a time with a unit beats one without."""
    values: dict[str, float] = {}
    united: set[str] = set()
    for name, raw, unit in _PAIR.findall(text):
        meaning = canonical(name, unit)
        value = number(raw)
        if meaning is None or value is None:
            continue
        field, factor = meaning
        if field in values and (not unit or field in united):
            continue
        values[field] = value * factor
        if unit:
            united.add(field)
    return values


def from_pairs(text: str) -> Reading | None:
    """A step from `key=value` or `key: value` wording; needs a step number and one thing measured."""
    values = pairs_in(text)
    for name, raw in _SPACED.findall(text):  # "loss 0.5": only where nothing else is meant by a blank
        meaning, value = canonical(name, None), number(raw)
        if meaning is not None and value is not None:
            values.setdefault(meaning[0], value)
    if "step" not in values and (match := _BRACKETED.search(text)) and (step := number(match[1])) is not None:
        values["step"] = step
    return _checked(Reading(values))


def from_json(text: str) -> Reading | None:
    """A step from a line that is one JSON object."""
    try:
        entry = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    values: dict[str, float] = {}
    for name, raw in entry.items():
        meaning, value = canonical(name, None), number(raw)
        if meaning is not None and value is not None and meaning[0] not in values:
            values[meaning[0]] = value * meaning[1]
    rank = count(number(entry.get("rank")))
    ts = next((t for key in ("ts", "timestamp", "time") if (t := number(entry.get(key))) is not None), None)
    if ts is not None and ts > 1e9:  # an epoch, not a duration
        if "time" in entry and values.get("duration_s") == ts:
            del values["duration_s"]
        while ts > 1e11:  # milliseconds, microseconds or nanoseconds
            ts /= 1e3
    else:
        ts = None
    return _checked(Reading(values, rank, ts))


def _checked(reading: Reading) -> Reading | None:
    values = reading.values
    if count(values.get("step")) is None or EVIDENCE.isdisjoint(values):
        return None
    for field in _COUNTS & values.keys():
        if count(values[field]) is None:
            del values[field]
    return reading
