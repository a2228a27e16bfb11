"""Finds training steps in free text: the wordings of frameworks, and the numbering of steps that start again."""

from __future__ import annotations

import re

from features.notices import Notices
from features.parsers.steplines import Reading, count, from_json, from_pairs, number, pairs_in
from features.parsers.textline import SCAN_MAX
from features.parsers.textstepwords import (
    BATCH_LINE,
    EPOCH_HEAD,
    NO_TRAINING,
    STEP_WORDINGS,
    TITLE_EPOCH,
    StepWording,
)

NO_NUMBER = "steps without a number were numbered in order"
NO_BATCH = "batch size unknown: step durations are per sample"

_WORDS = ("step", "Step", "iter", "Iter")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_PLAIN = ("step", "epoch", "duration_s", "data_s", "loss", "grad_norm", "batch", "rate", "took")


class StepReader:
    """Reads the steps of one file; numbers grow also where a script starts again from 0 each epoch."""

    def __init__(self, file: str, notices: Notices) -> None:
        self._file, self._notices = file, notices
        self._last: dict[int, int] = {}  # rank -> number of its last step
        self._raw: dict[int, tuple[float | None, float | None]] = {}  # rank -> epoch and number as written
        self._base: dict[int, int] = {}  # rank -> what is added to numbers that started again
        self._spent: dict[int, tuple[int, float]] = {}  # rank -> step and seconds since the beginning
        self._epoch: int | None = None  # of the last headline
        self._batch: int | None = None  # of one rank, from the script's own headline

    def seen(self, rank: int, step: int) -> None:
        """A step of the recorded layout, whose numbers never start again."""
        self._last[rank] = step

    def read(self, text: str) -> Reading | None:
        """The step that `text` tells of; headlines with epoch or batch size are remembered."""
        if text[:1] == "{" and text[1:2] == '"':
            return from_json(text)
        text = text[:SCAN_MAX]
        for row in STEP_WORDINGS:
            if row.needle in text and (match := row.pattern.search(text)) is not None:
                return self._worded(row, match, text)
        if text[:1] in "EB ":
            self._headline(text)
        return from_pairs(text) if any(word in text for word in _WORDS) else None

    def number(self, reading: Reading, rank: int, line: int) -> int | None:
        """The number of the step, growing with time; None for a line that repeats the one before."""
        step, epoch = count(reading.values.get("step")), reading.values.get("epoch")
        if step is None and rank in self._raw:  # a progress bar beside it gives the number
            return self._last[rank]
        if step is None:
            self._notices.add("info", NO_NUMBER, file=self._file, place=f"line {line}")
            self._last[rank] = self._last.get(rank, -1) + 1
            return self._last[rank]
        raw = (epoch if reading.per_epoch is not None else None, float(step))
        if self._raw.get(rank) == raw:
            return None
        self._raw[rank] = raw
        known = count(epoch) if reading.per_epoch else None
        if known is not None and reading.per_epoch is not None:
            result = known * reading.per_epoch + step
        else:
            last = self._last.get(rank, -1)
            if step <= 1 and step + self._base.get(rank, 0) < last:  # started again with a new epoch
                self._base[rank] = last + 1 - step
            result = step + self._base.get(rank, 0)
        self._last[rank] = result
        return result

    def complete(self, reading: Reading, rank: int, step: int, line: int) -> Reading:
        """`reading` with the duration that the lines before add, where the line has only a mean or an interval."""
        values = dict(reading.values)
        if "mean_rate" in values or "mean_s" in values:
            self._from_mean(values, rank, step, line)
        elif "took" in values and rank in self._spent and step > self._spent[rank][0]:
            values["duration_s"] = values["took"] / (step - self._spent[rank][0])
        if "took" in values:
            self._spent[rank] = (step, 0.0)
        if "rate" in values and "batch" not in values and self._batch is not None:
            values["batch"] = float(self._batch)
        return reading._replace(values=values)

    def _from_mean(self, values: dict[str, float], rank: int, step: int, line: int) -> None:
        """Undo a mean since the beginning: what the steps since the last line took."""
        own = values["step"]  # as written: the mean is over these
        if "mean_s" in values:
            spent = values["mean_s"] * own
        elif values["mean_rate"] > 0:
            if self._batch is None:
                self._notices.add("info", NO_BATCH, file=self._file, place=f"line {line}")
            batch = 1 if self._batch is None else self._batch
            values["batch"] = float(batch)
            spent = own * batch / values["mean_rate"]
        else:
            return
        began = step - int(own)  # the step after which the mean starts
        before_step, before = self._spent.get(rank, (began, 0.0))
        if before_step <= began or before_step >= step:  # another epoch began
            before_step, before = began, 0.0
        if step > before_step and spent > before:
            values["duration_s"] = (spent - before) / (step - before_step)
        self._spent[rank] = (step, spent)

    def _worded(self, row: StepWording, match: re.Match[str], text: str) -> Reading | None:
        said = {key: value for key, value in match.groupdict().items() if value is not None}
        values = {key: v for key in _PLAIN if (v := number(said.get(key))) is not None}
        if row.pairs:
            values = pairs_in(text[match.start() :]) | values
        title = text[: match.start()] if "speed" in said else ""
        if NO_TRAINING.search(title):
            return None
        if "epoch" not in values and (epoch := TITLE_EPOCH.search(title)):
            values["epoch"] = float(epoch[1])
        _speeds(said, values)
        total = count(number(said.get("total")))
        if "samples" in said:
            total = _position(said, values)
        if total is not None and "epoch" not in values and self._epoch is not None:
            values["epoch"] = float(self._epoch)
        rank = count(number(said.get("rank")))
        return Reading(values, rank, per_epoch=total)

    def _headline(self, text: str) -> None:
        if match := EPOCH_HEAD.match(text):
            self._epoch = int(match[1])
        elif match := BATCH_LINE.match(text):
            self._batch = int(match[1] or match[2])


def _speeds(said: dict[str, str], values: dict[str, float]) -> None:
    """Bring the ways of stating speed to seconds, or to means that need the lines before."""
    mean_s, mean_rate = number(said.get("mean_s")), number(said.get("mean_rate"))
    if mean_s is not None:
        values["mean_s"] = mean_s * _SECONDS[said["unit"]]
    if mean_rate is not None:
        values["mean_rate"] = mean_rate
    if (milliseconds := number(said.get("ms"))) is not None:
        values["duration_s"] = milliseconds / 1e3
    speed = number(said.get("speed"))
    if speed is not None and speed > 0:
        values["duration_s"] = speed if said["speed_unit"] == "s/it" else 1 / speed


def _position(said: dict[str, str], values: dict[str, float]) -> int | None:
    """Turn a position in samples into a step number, if speed and duration tell the size of a step."""
    samples, everything = number(said["samples"]), number(said["all_samples"])
    step_samples = values.get("rate", 0.0) * values.get("duration_s", 0.0)
    if samples is None or everything is None or step_samples < 1:
        return None
    values["step"] = float(round(samples / step_samples))
    return max(1, round(everything / step_samples))
