"""What the judges say of rows: scores, whether they pass the limit, and the features that made it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from models.arrays import Flags, Matrix, Vector
from models.calibration import Score
from models.limits import Limit

TOP_FEATURES = 5
"""Features named by default: more than a person reads."""


class Contribution(msgspec.Struct, frozen=True):
    """A feature's part in a score: `share` of 0..1, `value` its signed deviation in usual deviations (scaled units)."""

    name: str
    share: float
    value: float


class Verdict(msgspec.Struct, frozen=True):
    """A score against a limit, and the features that weigh most, first the heaviest."""

    score: Score
    limit: Limit
    because: tuple[Contribution, ...] = ()

    @property
    def is_anomalous(self) -> bool:
        """Whether the score passes the limit; equal is not above."""
        return self.score.value > self.limit.value


@dataclass(frozen=True, eq=False)
class Judgement:
    """The judges' answer for a matrix of n_rows, as arrays.

    `combined`: (n_rows,), combined surprise, higher = more anomalous. `anomalous`: (n_rows,), combined > limit.
    `surprises` and `raw`: (n_rows,) per judge. `contributions`: (n_rows, n_features), shares that sum to 1 (all 0 for
    a row of zeros). `scaled`: (n_rows, n_features), the deviations that were judged. `names`: of the features.
    """

    names: tuple[str, ...]
    limit: Limit
    combined: Vector
    anomalous: Flags
    surprises: Mapping[str, Vector]
    raw: Mapping[str, Vector]
    contributions: Matrix
    scaled: Matrix

    def top(self, row: int, count: int = TOP_FEATURES) -> tuple[Contribution, ...]:
        """The features with the largest share in a row's score, the largest first; none that has no share."""
        shares = self.contributions[row]
        order = np.argsort(-shares, kind="stable")[:count]
        return tuple(
            Contribution(self.names[i], float(shares[i]), float(self.scaled[row, i])) for i in order if shares[i] > 0.0
        )

    def verdict(self, row: int, count: int = TOP_FEATURES) -> Verdict:
        """One row's score, limit and reasons."""
        score = Score(
            value=float(self.combined[row]),
            surprises={name: float(values[row]) for name, values in self.surprises.items()},
            raw={name: float(values[row]) for name, values in self.raw.items()},
        )
        return Verdict(score, self.limit, self.top(row, count))


def blend(explanations: Mapping[str, Matrix], surprises: Mapping[str, Vector]) -> Matrix:
    """One share per feature, (n_rows, n_features), from what each judge says of it.

    A judge counts as much as it is surprised. `explanations` are not negative; only their proportions within a row
    and judge matter.
    """
    total = np.zeros_like(next(iter(explanations.values())))
    for name, parts in explanations.items():
        whole = parts.sum(axis=1, keepdims=True)
        total += np.divide(parts, whole, out=np.zeros_like(parts), where=whole > 0.0) * surprises[name][:, np.newaxis]
    whole = total.sum(axis=1, keepdims=True)
    shares: Matrix = np.divide(total, whole, out=np.zeros_like(total), where=whole > 0.0)
    return shares
