"""Walks over the windows of a run and says which of them are unusual, in which channel, and on which ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from features.extract import Extractor, FeatureFrame
from features.vocabulary import Channel
from features.windows import Window


class ChannelVerdict(msgspec.Struct, frozen=True):
    """One channel of one window beyond its limit."""

    score: float
    limit: float
    ranks: tuple[int, ...]  # those whose row is beyond the limit, worst first
    features: tuple[tuple[str, float], ...]  # what contributed most to the worst rank's row: name, scaled value


class WindowVerdict(msgspec.Struct, frozen=True):
    """The judgement of one window; `channels` holds what is beyond its limit, `raised` what comes near it."""

    channels: dict[Channel, ChannelVerdict] = {}
    raised: dict[Channel, ChannelVerdict] = {}
    judged: bool = True

    @property
    def is_anomalous(self) -> bool:
        """Some channel is beyond its limit."""
        return bool(self.channels)

    def of(self, channel: Channel) -> ChannelVerdict | None:
        """The verdict of a channel, beyond its limit or near it."""
        return self.channels.get(channel, self.raised.get(channel))


Judge = Callable[[FeatureFrame], WindowVerdict]
HEALTHY = WindowVerdict()
UNJUDGED = WindowVerdict(judged=False)


class Walker:
    """Judges windows one after the other and teaches the baseline what was healthy.

    A healthy window is learned only when the one after it is healthy too: the window in which a fault begins is often
    half good, and must not become part of the past.
    """

    def __init__(self, extractor: Extractor, judge: Judge) -> None:
        self._extractor, self._judge = extractor, judge
        self._waiting: tuple[Window, FeatureFrame] | None = None

    def step(self, window: Window) -> tuple[FeatureFrame, WindowVerdict]:
        """Judge the next window."""
        frame = self._extractor.frame(window)
        verdict = UNJUDGED if frame.is_warmup or not frame.ranks or frame.is_over else self._judge(frame)
        if verdict.is_anomalous or verdict.raised or not verdict.judged:
            self._waiting = None
        else:
            if self._waiting is not None:
                self._extractor.learn(*self._waiting)
            self._waiting = (window, frame)
        return frame, verdict


def walk(windows: Iterable[Window], extractor: Extractor, judge: Judge) -> Iterator[tuple[Window, FeatureFrame, WindowVerdict]]:
    """Judge each window in order."""
    walker = Walker(extractor, judge)
    for window in windows:
        yield window, *walker.step(window)
