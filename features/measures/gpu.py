"""Follows the GPUs of a run from sample to sample: what each one is used to, and how it stands among its peers now."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterable, Iterator

import msgspec

from features.records import Gpu

ROUND_S = 0.05
"""Samples this close together are one round over the GPUs; tools ask one after another, milliseconds apart."""
BUSY = 0.9
"""Utilisation from which a GPU counts as busy: only busy ones can be compared by clock and power."""
FRESH_INTERVALS = 2.0
"""A peer counts if its last sample is at most this many usual distances old."""
REMEMBERED = 32
"""Busy samples from which the usual power is taken: the run's first, before anything went wrong."""
_VALUES = tuple(name for name in Gpu.__struct_fields__ if name not in ("ts", "gpu", "source"))


def merged(samples: Iterable[Gpu]) -> list[Gpu]:
    """Samples of one GPU at one time as one: sources tell single values, and some tell the same twice.

    >>> a, b = Gpu(ts=1.0, gpu="0", power_w=300.0), Gpu(ts=1.0, gpu="0", utilization_ratio=1.0, power_w=9.0)
    >>> [(g.power_w, g.utilization_ratio) for g in merged([a, b])]
    [(300.0, 1.0)]
    """
    found: dict[tuple[float, str], Gpu] = {}
    for sample in map(_finite, samples):
        known = found.get((sample.ts, sample.gpu))
        if known is not None:
            news = {n: v for n in _VALUES if getattr(known, n) is None and (v := getattr(sample, n)) is not None}
            sample = msgspec.structs.replace(known, **news) if news else known
        found[(sample.ts, sample.gpu)] = sample
    return sorted(found.values(), key=lambda g: (g.ts, g.gpu))


def _finite(sample: Gpu) -> Gpu:
    """The sample without values that are no numbers: agents may send them, and they compare with nothing."""
    odd = [name for name in _VALUES if isinstance(v := getattr(sample, name), float) and not math.isfinite(v)]
    return msgspec.structs.replace(sample, **dict.fromkeys(odd)) if odd else sample


def rounds(samples: list[Gpu]) -> Iterator[list[Gpu]]:
    """Samples in rounds, none of which has a GPU twice; `samples` are in order of time."""
    now: list[Gpu] = []
    seen: set[str] = set()
    for sample in samples:
        if now and (sample.ts - now[0].ts > ROUND_S or sample.gpu in seen):
            yield now
            now, seen = [], set()
        now.append(sample)
        seen.add(sample.gpu)
    if now:
        yield now


class GpuPast(msgspec.Struct):
    """What is known of one GPU up to its newest sample."""

    newest: Gpu
    group: str  # what is sampled together: GPUs of one source and node
    samples: int = 0
    interval_s: float | None = None  # usual distance of its samples
    round: int = 0  # the group's round in which it was seen last
    top_clock_hz: float = 0.0  # highest while busy
    busy_power_w: list[float] = []
    was_busy: bool = False
    ecc: dict[str, int] = {}  # group -> newest count: one source counts since the start of the driver, another for ever
    xid: dict[str, int] = {}  # group -> newest code
    streaks: dict[str, int] = {}  # condition -> samples in a row; negative: samples in a row without it
    since: dict[str, float] = {}  # condition -> when the samples in a row with it began
    told: dict[str, str] = {}  # condition -> the sentence that told it
    proved: dict[str, bool] = {}  # condition -> whether it was told as proof
    is_gone: bool = False

    @property
    def usual_power_w(self) -> float | None:
        """Median of its first busy samples; None while there are few."""
        return statistics.median(self.busy_power_w) if len(self.busy_power_w) >= REMEMBERED // 4 else None

    def see(self, sample: Gpu) -> None:
        """Take the next sample."""
        distance = sample.ts - self.newest.ts
        if self.samples and distance > 0:
            self.interval_s = distance if self.interval_s is None else min(2.0 * self.interval_s, distance)
        self.samples += 1
        self.newest = sample
        self.is_gone = False

    def learn(self) -> None:
        """Remember what the newest sample says of its usual state; called after it was compared with the past."""
        now = self.newest
        if not is_busy(now):
            return
        self.was_busy = True
        self.top_clock_hz = max(self.top_clock_hz, now.sm_clock_hz or 0.0)
        if now.power_w is not None and len(self.busy_power_w) < REMEMBERED:
            self.busy_power_w.append(now.power_w)


def is_busy(sample: Gpu) -> bool:
    """Whether the GPU works all the time."""
    return sample.utilization_ratio is not None and sample.utilization_ratio >= BUSY


class Peers(msgspec.Struct):
    """The other GPUs of the same kind at one moment: medians, NaN where nobody says it."""

    count: int = 0  # busy ones with a clock
    clock_hz: float = math.nan  # of busy ones
    power_w: float = math.nan  # of busy ones
    limit_w: float = math.nan
    utilization: float = math.nan
    others: int = 0  # with a utilisation


def kind_of(sample: Gpu) -> float | None:
    """What tells models apart where no source names them: the size of the memory, in GiB; None for unknown."""
    return None if sample.memory_total_bytes is None else float(round(sample.memory_total_bytes / 2.0**30))


class Fleet(msgspec.Struct):
    """All GPUs of a run."""

    gpus: dict[str, GpuPast] = {}
    round_of: dict[str, int] = {}  # group -> rounds so far
    newest_of: dict[str, float] = {}  # group -> time of its newest round

    def see(self, samples: list[Gpu]) -> list[GpuPast]:
        """Take a round; returns the GPUs in it."""
        found = []
        for group in dict.fromkeys(map(group_of, samples)):
            self.round_of[group] = self.round_of.get(group, 0) + 1
        for sample in samples:
            group = group_of(sample)
            past = self.gpus.get(sample.gpu)
            if past is None:
                past = self.gpus[sample.gpu] = GpuPast(newest=sample, group=group)
            past.see(sample)
            past.group, past.round = group, self.round_of[group]
            self.newest_of[group] = max(sample.ts, self.newest_of.get(group, sample.ts))
            found.append(past)
        return found

    def peers(self, now: float) -> Comparison:
        """All fresh samples, ready to compare each GPU with the others of its kind."""
        return Comparison([past.newest for past in self.gpus.values() if not past.is_gone and _is_fresh(past, now)])


def group_of(sample: Gpu) -> str:
    """The source and the node: GPUs that are asked together."""
    return f"{sample.source.rpartition(':')[0]}|{sample.node or ''}"


def _is_fresh(past: GpuPast, now: float) -> bool:
    age = now - past.newest.ts
    return age <= ROUND_S or (past.interval_s is not None and age <= FRESH_INTERVALS * past.interval_s)


class Comparison:
    """Sorted values of the GPUs of each kind, so that a median without one of them takes a look-up only."""

    def __init__(self, samples: list[Gpu]) -> None:
        self._values: dict[tuple[float | None, str], list[float]] = {}
        for sample in samples:
            for name, value in _compared(sample).items():
                self._values.setdefault((kind_of(sample), name), []).append(value)
        for values in self._values.values():
            values.sort()

    def without(self, sample: Gpu) -> Peers:
        """The peers of `sample`, itself left out."""
        own, kind = _compared(sample), kind_of(sample)

        def of(name: str) -> float:
            return _median_without(self._values.get((kind, name), []), own.get(name))

        def count(name: str) -> int:
            return len(self._values.get((kind, name), [])) - (name in own)

        return Peers(
            count=count("clock"),
            clock_hz=of("clock"),
            power_w=of("power"),
            limit_w=of("limit"),
            utilization=of("utilization"),
            others=count("utilization"),
        )


def _compared(sample: Gpu) -> dict[str, float]:
    values = {"utilization": sample.utilization_ratio, "limit": sample.power_limit_w}
    if is_busy(sample):
        values |= {"clock": sample.sm_clock_hz, "power": sample.power_w}
    return {name: value for name, value in values.items() if value is not None}


def _median_without(values: list[float], own: float | None) -> float:
    """Median of sorted `values` without one that equals `own`; NaN for nothing left."""
    skip = len(values) if own is None else bisect.bisect_left(values, own)
    n = len(values) - (skip < len(values))
    if n <= 0:
        return math.nan
    low, high = (n - 1) // 2, n // 2
    return (values[low + (low >= skip)] + values[high + (high >= skip)]) / 2.0
