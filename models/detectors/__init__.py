"""The judges: what is unusual about a row, each in its own way, all with pyod's sign (higher = more anomalous)."""

from __future__ import annotations

from collections.abc import Callable

from models.detectors.autoencoder import Autoencoder
from models.detectors.contract import Detector
from models.detectors.extreme import Extreme
from models.detectors.forest import IsolationForest
from models.detectors.pca import PCA

__all__ = ["DETECTORS", "PCA", "Autoencoder", "Detector", "Extreme", "IsolationForest"]

DETECTORS: dict[str, Callable[[int], Detector]] = {
    "autoencoder": lambda seed: Autoencoder(seed=seed),
    "extreme": lambda seed: Extreme(),
    "iforest": lambda seed: IsolationForest(seed=seed),
    "pca": lambda seed: PCA(),
}
"""Every judge by the name it has in bundles and reports, as a function of the seed."""
