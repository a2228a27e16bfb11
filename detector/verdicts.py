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
    features: tuple[tuple[str, float], ...]  # what contributed most, name and scaled value


class WindowVerdict(msgspec.Struct, frozen=True):
    """The judgement of one window; `channels` holds only what is anomalous."""

    channels: dict[Channel, ChannelVerdict] = {}
    judged: bool = True

    @property
    def is_anomalous(self) -> bool:
        """Some channel is beyond its limit."""
        return bool(self.channels)


Judge = Callable[[FeatureFrame], WindowVerdict]
HEALTHY = WindowVerdict()
UNJUDGED = WindowVerdict(judged=False)


def walk(
    windows: Iterable[Window], extractor: Extractor, judge: Judge
) -> Iterator[tuple[Window, FeatureFrame, WindowVerdict]]:
    """Judge each window in order and teach the baseline what was healthy.

    A healthy window is learned only when the one after it is healthy too: the window in which a fault begins is often
    half good, and must not become part of the past.
    """
    waiting: tuple[Window, FeatureFrame] | None = None
    for window in windows:
        frame = extractor.frame(window)
        verdict = UNJUDGED if frame.is_warmup or not frame.ranks or frame.is_over else judge(frame)
        if verdict.is_anomalous or not verdict.judged:
            waiting = None
        else:
            if waiting is not None:
                extractor.learn(*waiting)
            waiting = (window, frame)
        yield window, frame, verdict
