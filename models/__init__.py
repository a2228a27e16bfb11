"""Judgement from numbers: judges of what is usual, limits, a classifier of causes, and the bundles they travel in."""

from __future__ import annotations

from models.bundle import Bundle
from models.classifier import LabelledRows, train_classifier
from models.manifest import TrainingRun
from models.store import read_bundle, write_bundle
from models.training import HealthyRows, train_detectors
from models.verdicts import Judgement, Verdict

__all__ = [
    "Bundle",
    "HealthyRows",
    "Judgement",
    "LabelledRows",
    "TrainingRun",
    "Verdict",
    "read_bundle",
    "train_classifier",
    "train_detectors",
    "write_bundle",
]
