"""From a frame and a bundle to a verdict: which rows are beyond the limit, and which channel they speak about."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from detector.verdicts import ChannelVerdict, Judge, WindowVerdict
from features.errors import SchemaMismatch
from features.extract import FeatureFrame
from features.vocabulary import FEATURES, NAMES, Channel, schema_id
from models import Bundle, Judgement

Matrix = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
CHANNELS: tuple[Channel, ...] = ("pace", "numbers", "memory")
CHANNEL_SHARE = 0.3
"""A channel is part of an anomaly when it holds this share of what made the score high; chance spreads thinner."""
TOP = 6
RAISED = 0.65
"""Share of the limit from which a score is raised: far from proof in one window, but healthy runs do not stay there."""
_MEMBERS = {c: np.array([f.channel == c for f in FEATURES]) for c in CHANNELS}


_HIGH = np.array([f.side == "high" for f in FEATURES])
_LOW = np.array([f.side == "low" for f in FEATURES])


def one_sided(values: Matrix) -> Matrix:
    """Features with the deviations taken out that cannot mean trouble, shape kept; what a model sees."""
    out = np.where(_HIGH, np.maximum(values, 0.0), values)
    return np.where(_LOW, np.minimum(out, 0.0), out)


def judge_with(bundle: Bundle) -> Judge:
    """A judge that scores every rank's row of a frame; a channel's score is that of its worst rank."""
    bundle.require_features(NAMES, [f.unit for f in FEATURES])
    trained_on = bundle.manifest.settings.get("vocabulary")
    if trained_on != schema_id():
        raise SchemaMismatch(
            bundle.id,
            expected=f"a bundle trained on the vocabulary {schema_id()}",
            found=f"{trained_on}: the same features, but other deviations of them count",
            remedy="train it again with `rankwatch train`, or use the shipped one",
        )

    def judge(frame: FeatureFrame) -> WindowVerdict:
        if not len(frame.values) or not np.isfinite(frame.values).any():
            return WindowVerdict(judged=False)
        judged = bundle.judge(one_sided(frame.values), NAMES)
        high = judged.combined > RAISED * judged.limit.value
        if not high.any():
            return WindowVerdict()
        channels = _channels(judged, judged.anomalous, frame.ranks)
        raised = {c: v for c, v in _channels(judged, high, frame.ranks).items() if c not in channels}
        return WindowVerdict(channels=channels, raised=raised)

    return judge


def _channels(judged: Judgement, which: Flags, ranks: list[int]) -> dict[Channel, ChannelVerdict]:
    """The verdict of each channel that holds a good share of a score among the rows `which`, shape (n_rows,)."""
    channels: dict[Channel, ChannelVerdict] = {}
    for channel in CHANNELS:
        share = judged.contributions[:, _MEMBERS[channel]].sum(axis=1)  # (n_ranks,)
        rows = np.flatnonzero(which & (share >= CHANNEL_SHARE))
        if len(rows):
            worst = sorted(rows, key=lambda i: (-judged.combined[i], i))
            named = [(c.name, c.value) for c in judged.top(int(worst[0]), TOP)]
            channels[channel] = ChannelVerdict(
                score=float(judged.combined[worst[0]]),
                limit=judged.limit.value,
                ranks=tuple(ranks[i] for i in worst),
                features=tuple(named),
            )
    return channels
