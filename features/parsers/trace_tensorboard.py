"""TensorBoard event files, of TensorFlow, Keras, PyTorch or any other writer: what they tell of training steps."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from typing import Final

from features.notices import Notices
from features.parsers.protocol import ParserRow
from features.parsers.trace_build import NO_RANK
from features.parsers.trace_names import Known
from features.parsers.trace_place import rank_of_file
from features.parsers.trace_tfrecord import HEADER_BYTES, Frame, Frames, length_at
from features.parsers.trace_wire import BadWire, Scalars, scalars
from features.records import Phase, Record, Step

OPEN_STEPS: Final = 64  # values of one step may come apart, but not further than this many steps
MAX_EPOCHS: Final = 100_000  # kept until the end
FIRST_TS, LAST_TS = 0.0, 1e11  # seconds since the epoch; other times are damage
BAD: Final = "a record whose checksum or content is wrong was left out"
EPOCHS: Final = "values are told by epoch only: each epoch is taken as one step"
NOTHING: Final = "no values of training steps: of scalars, loss, grad_norm, step time and steps per second are read"
MEANS: Final = "durations of steps are means between the times at which values were written"

_ASIDE: Final = re.compile(r"(?:^|[/_ .-])(?:val|valid|validation|eval|evaluation|test)(?:[/_ .-]|$)")
# Keras and estimators write what they validate in a folder of its own, under the names of training.
_ASIDE_FOLDER: Final = re.compile(r"(?:^|/)(?:val|valid|validation|eval|evaluation)(?:_\d+)?/[^/]+$")
_LOSS: Final = r"(?:batch|train(?:ing)?|total|lm|clone)?[ _/-]?loss(?:[ _/-](?:step|batch|iter|train(?:ing)?|\d{1,3}))?"
_TIME: Final = (
    r"(?:step|iter(?:ation)?|batch)[ _/-]?time|time[ _/](?:per[ _])?(?:step|iter(?:ation)?|batch)|"
    r"sec(?:ond)?s?_per_(?:step|iter(?:ation)?|batch)"
)
_SPEED: Final = r"(?:batch_|train_)?(?:global_)?(?:steps?|it|iter|iterations|batches)(?:_per_|/)s(?:ec(?:ond)?)?s?"
# What a tag tells, by the part after its last folder or by the whole of it. `e_` is of an epoch.
_TAGS: Final = (
    ("e_loss", re.compile(r"epoch_loss|(?:train(?:ing)?_)?loss_epoch")),
    ("e_speed", re.compile(r"epoch_steps_per_sec(?:ond)?")),
    ("loss", re.compile(_LOSS)),
    ("grad_norm", re.compile(r"(?:total_|global_)?grad(?:ient)?s?[ _/-]?norm(?:_total)?")),
    ("speed", re.compile(_SPEED)),
    ("duration_ms", re.compile(rf"(?:{_TIME})_?ms")),
    ("duration_s", re.compile(rf"(?:{_TIME})(?:_?s(?:ec)?)?")),
    ("data_s", re.compile(r"data[ _/-]?(?:loading[ _])?time|time[ _/]data")),
    ("epoch", re.compile(r"epoch")),
)


def sniff(head: bytes) -> bool:
    """Whether these first bytes are an event file: a sound first record that begins with a time."""
    return len(head) > HEADER_BYTES and head[HEADER_BYTES] == 0x09 and length_at(head, 0) is not None


def meaning_of(tag: str) -> str | None:
    """Which value of a step a tag names; `aside` for those of a validation."""
    text = tag.lower().strip()
    if _ASIDE.search(text):
        return "aside"
    last = text.rpartition("/")[2]
    return next((name for name, pattern in _TAGS if pattern.fullmatch(text) or pattern.fullmatch(last)), None)


class EventFile:
    """Feed it bytes in any chunking. A step comes out once later ones have begun; one file is one rank's.

    `ts` is when the last value of a step was written. Where no tag tells the duration of steps it is the mean between two
    writes, unless a validation lies between them.
    """

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        rank = rank_of_file(file)
        self._is_named, self._rank = rank is not None, rank if rank is not None else 0
        self._is_aside = _ASIDE_FOLDER.search(file.lower()) is not None
        self._frames = Frames(file, notices)
        self._meanings = Known(meaning_of)
        self._open: dict[int, dict[str, float]] = {}
        self._epochs: dict[int, dict[str, float]] = {}
        self._pauses: list[int] = []  # steps after which something was validated, in order
        self._last: tuple[int, float] | None = None  # step and time of the step that came out last
        self._finished = False
        self._steps = 0

    def feed(self, data: bytes) -> list[Record]:
        """Steps that `data` completes."""
        out: list[Record] = []
        for frame in self._frames.feed(data):
            out += self._frame(frame)
        return out

    def finish(self) -> list[Record]:
        """What is still open, once."""
        if self._finished:
            return []
        self._finished = True
        self._frames.finish()
        out: list[Record] = [self._step(step) for step in sorted(self._open)]
        if not self._steps and self._epochs:
            self._notices.add("info", EPOCHS, file=self._file)
            out += [self._epoch(epoch, self._epochs[epoch]) for epoch in sorted(self._epochs)]
        if not self._steps and not self._pauses:
            self._notices.add("warning", NOTHING, file=self._file)
        elif not self._is_named:
            self._notices.add("info", NO_RANK, file=self._file)
        return out

    def _frame(self, frame: Frame) -> list[Record]:
        try:
            told = scalars(frame.data)
        except BadWire:
            told = None
        meanings = [] if told is None else [(self._meanings[tag], value) for tag, value in told.values]
        wanted = [(meaning, value) for meaning, value in meanings if meaning is not None]
        if told is not None and not wanted:
            return []
        if told is None or not frame.is_sound() or not FIRST_TS < told.ts < LAST_TS or not 0 <= told.step < 2**53:
            self._notices.add("warning", BAD, file=self._file, place=f"byte {frame.at}")
            return []
        return self._take(told, wanted)

    def _take(self, told: Scalars, wanted: list[tuple[str, float]]) -> list[Record]:
        out: list[Record] = []
        for meaning, value in wanted:
            if meaning == "aside" or self._is_aside:
                out += self._pause(told)
            elif meaning.startswith("e_"):
                if len(self._epochs) < MAX_EPOCHS:
                    self._epochs.setdefault(told.step, {}).update({"ts": told.ts, meaning[2:]: value})
            else:
                self._open.setdefault(told.step, {}).update({"ts": told.ts, meaning: value})
        while len(self._open) > OPEN_STEPS:
            out.append(self._step(min(self._open)))
        return out

    def _pause(self, told: Scalars) -> list[Record]:
        at = bisect_left(self._pauses, told.step)
        if self._pauses[at : at + 1] == [told.step] or len(self._pauses) >= MAX_EPOCHS:
            return []
        self._pauses.insert(at, told.step)
        where = f"{self._file}:step {told.step}"
        return [Phase(ts=told.ts, kind="validation", rank=self._rank, step=told.step, source=where)]

    def _step(self, step: int) -> Step:
        values = self._open.pop(step)
        self._steps += 1
        duration = _duration(values)
        if duration is None:
            duration = self._mean(step, values["ts"])
        self._last = (step, values["ts"])
        epoch = values.get("epoch")
        return Step(
            ts=values["ts"],
            rank=self._rank,
            step=step,
            duration_s=duration,
            data_s=values.get("data_s"),
            epoch=int(epoch) if epoch is not None and 0 <= epoch < 2**31 else None,
            loss=values.get("loss"),
            grad_norm=values.get("grad_norm"),
            source=f"{self._file}:step {step}",
        )

    def _mean(self, step: int, ts: float) -> float | None:
        """Mean duration since the step before, if nothing else went on."""
        if self._last is None or step <= self._last[0] or ts < self._last[1]:
            return None
        if bisect_left(self._pauses, step) > bisect_left(self._pauses, self._last[0]):
            return None
        self._notices.add("info", MEANS, file=self._file)
        return (ts - self._last[1]) / (step - self._last[0])

    def _epoch(self, epoch: int, values: dict[str, float]) -> Step:
        self._steps += 1
        return Step(
            ts=values["ts"],
            rank=self._rank,
            step=epoch,
            epoch=epoch,
            duration_s=_duration(values),
            loss=values.get("loss"),
            source=f"{self._file}:epoch {epoch}",
        )


def _duration(values: dict[str, float]) -> float | None:
    """Seconds a step, from whatever tells them."""
    speed = values.get("speed", math.nan)
    told = (values.get("duration_s", math.nan), values.get("duration_ms", math.nan) / 1e3, 1 / speed if speed > 0 else math.nan)
    return next((seconds for seconds in told if math.isfinite(seconds) and seconds >= 0), None)


TENSORBOARD: Final = ParserRow("trace", sniff, EventFile)
