"""Trains a bundle from examples: judges from healthy rows, the classifier from labelled and simulated incidents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from detector.catalog import Catalog
from detector.examples import RunExamples, rows_of
from detector.judging import one_sided
from detector.simulated import simulate_incidents
from features.vocabulary import FEATURES, NAMES, schema_id
from models import Bundle, HealthyRows, LabelledRows, TrainingRun, train_classifier, train_detectors

FALSE_ALARM_RATE = 0.003
"""Share of healthy windows that may pass the limit; the gate of continuity makes far fewer incidents of them."""
TAIL, TAIL_DEVIATIONS = 0.995, 3.0
"""A feature's usual deviation is at least so that its 99.5 % quantile on healthy rows is three of them: features with
heavy tails would otherwise alarm for all others."""
REAL_WEIGHT, SIMULATED_WEIGHT = 2.0, 0.1
"""A recorded incident counts as much as twenty simulated ones, in each of its variants."""


def train_bundle(
    examples: Sequence[RunExamples], catalog: Catalog, *, seed: int = 7, false_alarm_rate: float = FALSE_ALARM_RATE
) -> Bundle:
    """Fit everything. Same examples, same bytes. Needs the `train` extra."""
    x, groups, blocks = rows_of(examples)
    x = one_sided(x)
    rows = HealthyRows(
        x=x,
        names=NAMES,
        units=[f.unit for f in FEATURES],
        floors=usual_deviation_floors(x),
        groups=groups,
        blocks=blocks,
    )
    detectors = train_detectors(rows, seed=seed, false_alarm_rate=false_alarm_rate)
    classifier = train_classifier(labelled_rows(examples, catalog, seed))
    return Bundle.assemble(detectors, classifier, runs=training_runs(examples), settings={"vocabulary": schema_id()})


def usual_deviation_floors(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Smallest usual deviation per feature, shape (n_features,)."""
    floors = np.array([f.floor for f in FEATURES])
    for i in range(x.shape[1]):
        known = x[np.isfinite(x[:, i]), i]
        if len(known):
            spread = float(np.quantile(np.abs(known - np.median(known)), TAIL)) / TAIL_DEVIATIONS
            floors[i] = max(floors[i], spread)
    return floors


def labelled_rows(examples: Sequence[RunExamples], catalog: Catalog, seed: int) -> LabelledRows:
    """Recorded incidents (each variant of a run is in that run's group) and simulated ones (each a group of its own)."""
    names = list(catalog.vocabulary)
    real = [e for e in examples if e.evidence is not None and e.label.cause in catalog.causes]
    simulated, causes = simulate_incidents(catalog, seed=seed)
    x = [[e.evidence.get(n, 0.0) for n in names] for e in real if e.evidence is not None]
    return LabelledRows(
        x=np.vstack([np.array(x).reshape(len(real), len(names)), simulated]),
        causes=[*(str(e.label.cause) for e in real), *causes],
        names=names,
        groups=np.array([*(e.name for e in real), *(f"simulated {i}" for i in range(len(causes)))]),
        weights=np.array([REAL_WEIGHT / 4] * len(real) + [SIMULATED_WEIGHT] * len(causes)),
    )


def training_runs(examples: Sequence[RunExamples]) -> list[TrainingRun]:
    """What the bundle was trained on, for its manifest."""
    whole = [e for e in examples if e.without is None]
    return [TrainingRun(name=e.name, files=e.files, role="healthy" if e.label.is_healthy else "labelled") for e in whole]
