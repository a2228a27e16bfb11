"""Simulated features for the tests of models: correlated healthy rows of several runs, and a bundle trained on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from models import Bundle, HealthyRows, LabelledRows, TrainingRun, train_classifier, train_detectors
from models.arrays import Labels, Matrix, Vector
from models.classifier import FittedClassifier
from models.training import FittedDetectors

FEATURES = 14
RUNS, WINDOWS, RANKS = 6, 20, 4


@dataclass(frozen=True)
class Simulation:
    """Rows of RUNS runs with WINDOWS windows of RANKS ranks; column 5 comes from a source that no run has."""

    x: Matrix
    names: list[str] = field(default_factory=lambda: [f"feature_{i:02d}" for i in range(FEATURES)])
    units: list[str] = field(default_factory=lambda: ["ratio"] * FEATURES)
    floors: Vector = field(default_factory=lambda: np.full(FEATURES, 0.05))
    groups: Labels = field(default_factory=lambda: np.repeat([f"run-{i}" for i in range(RUNS)], WINDOWS * RANKS))
    blocks: Labels = field(default_factory=lambda: np.tile(np.repeat(np.arange(WINDOWS), RANKS), RUNS))

    def rows(self) -> HealthyRows:
        return HealthyRows(self.x, self.names, self.units, self.floors, self.groups, self.blocks)


def draw(seed: int, rows: int = RUNS * WINDOWS * RANKS) -> Matrix:
    """Three hidden causes seen through fourteen features, with noise."""
    random, mixing = np.random.default_rng(seed), np.random.default_rng(99).normal(size=(3, FEATURES))
    x: Matrix = 0.3 * (random.normal(size=(rows, 3)) @ mixing) + 0.2 * random.normal(size=(rows, FEATURES))
    x[:, 5] = np.nan
    return x


@pytest.fixture(scope="session")
def simulation() -> Simulation:
    return Simulation(draw(1))


@pytest.fixture(scope="session")
def unseen() -> Matrix:
    return draw(2)


@pytest.fixture(scope="session")
def fitted(simulation: Simulation) -> FittedDetectors:
    return train_detectors(simulation.rows(), seed=3, false_alarm_rate=0.01)


def incidents(seed: int = 4, n: int = 60) -> LabelledRows:
    """Three causes, each with its own piece of evidence and some that is shared, from twenty runs."""
    random = np.random.default_rng(seed)
    cause = np.arange(n) % 3
    x = random.uniform(0.0, 0.4, size=(n, 5))
    x[np.arange(n), cause] += 0.6 * (random.uniform(size=n) < 0.9)
    causes = [("compute/slow-rank", "io/slow-data", "memory/leak")[c] for c in cause]
    return LabelledRows(x, causes, ["late", "data", "rss", "swap", "cpu"], np.arange(n) // 3)


@pytest.fixture(scope="session")
def labelled() -> LabelledRows:
    return incidents()


@pytest.fixture(scope="session")
def classifier(labelled: LabelledRows) -> FittedClassifier:
    return train_classifier(labelled)


@pytest.fixture(scope="session")
def assemble(fitted: FittedDetectors, classifier: FittedClassifier) -> Callable[[], Bundle]:
    """A factory, as bundles that were asked for twice have to be the same."""
    runs = [TrainingRun(name="run-0", files={"log/rank0.log": "ab" * 32}, role="healthy")]
    return lambda: Bundle.assemble(fitted, classifier, runs=runs, settings={"window_s": 2.0})


@pytest.fixture(scope="session")
def bundle(assemble: Callable[[], Bundle]) -> Bundle:
    return assemble()
