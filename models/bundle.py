"""A model bundle in memory: all that judging and classifying needs, as a manifest and the bytes of its graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from features.errors import BundleError, SchemaMismatch
from models.arrays import Matrix, as_matrix
from models.calibration import combine
from models.classifier import FittedClassifier
from models.graphs import classifier_graph, judge_graph
from models.limits import Limit
from models.manifest import MANIFEST, Manifest, TrainingRun, knots_of, limit_of, scale_of, scaling_of, schema_id
from models.scaling import Scaler
from models.serving import ServedClassifier, ServedJudge
from models.training import FittedDetectors
from models.verdicts import Judgement, blend

LIBRARIES = ("numpy", "onnx", "pyod", "scikit-learn")
"""What a bundle's content depends on: the libraries that fit and export."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """Judges, limit and (if labelled incidents were there) a classifier. `files`: name -> bytes of every graph."""

    manifest: Manifest
    files: Mapping[str, bytes]

    @classmethod
    def assemble(
        cls,
        detectors: FittedDetectors,
        classifier: FittedClassifier | None = None,
        *,
        runs: Sequence[TrainingRun] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Export what was fitted. `settings` is the caller's own (window length, ...): any JSON value, kept as it is.

        Holds no time and no path unless they are in `settings`: the same training gives the same bytes. Needs the
        `train` extra.
        """
        files = {f"{name}.onnx": judge_graph(judge) for name, judge in sorted(detectors.judges.items())}
        if classifier is not None:
            files["classifier.onnx"] = classifier_graph(classifier.weights, classifier.biases)
        content = {
            **_of_detectors(detectors),
            "classifier": None if classifier is None else _of_classifier(classifier),
            "libraries": {name: version(name) for name in LIBRARIES},
            "runs": sorted((run.model_dump() for run in runs), key=lambda run: (run["role"], run["name"])),
            "settings": dict(settings) if settings is not None else {},
            "files": {name: file_record(payload) for name, payload in files.items()},
        }
        return cls(Manifest.of(content), files)

    @property
    def id(self) -> str:
        """The content's address, "sha256:..."."""
        return self.manifest.id

    @property
    def names(self) -> tuple[str, ...]:
        """The features that the judges read, in order."""
        return tuple(self.manifest.features.names)

    @property
    def classes(self) -> tuple[str, ...]:
        """The causes that the classifier knows, in the order of its probabilities; empty without a classifier."""
        return () if self.manifest.classifier is None else tuple(self.manifest.classifier.classes)

    @property
    def evidence_names(self) -> tuple[str, ...]:
        """What the classifier reads, in order; empty without a classifier."""
        return () if self.manifest.classifier is None else tuple(self.manifest.classifier.names)

    @cached_property
    def limit(self) -> Limit:
        """What a combined score has to pass."""
        return limit_of(self.manifest.limit)

    def require_features(self, names: Sequence[str], units: Sequence[str] | None = None) -> None:
        """Raise `SchemaMismatch`, naming the difference, unless the bundle reads exactly these (in any order)."""
        _require(self.names, names, self.id)
        if units is not None:
            theirs = dict(zip(names, units, strict=True))
            ours = dict(zip(self.names, self.manifest.features.units, strict=True))
            changed = {name: (ours[name], theirs[name]) for name in self.names if ours[name] != theirs[name]}
            if changed:
                raise _mismatch(self.id, "features in the units of its training", f"other units: {changed}")

    def judge(self, x: ArrayLike, names: Sequence[str]) -> Judgement:
        """Score rows, (n_rows, n_features) with the features in the order of `names`; NaN = source missing."""
        scaled = self._scaler.transform(_ordered(as_matrix(x), names, self.names, self.id))
        raw = {name: judge.score(scaled) for name, judge in self._judges.items()}
        surprises = {name: self._scales[name].surprise(scores) for name, scores in raw.items()}
        combined = combine(list(surprises.values()))
        explained = {name: judge.explain(scaled) for name, judge in self._judges.items() if judge.explains}
        if not explained:
            explained = {name: judge.explain(scaled) for name, judge in self._judges.items()}
        return Judgement(
            names=self.names,
            limit=self.limit,
            combined=combined,
            anomalous=combined > self.limit.value,
            surprises=surprises,
            raw=raw,
            contributions=blend(explained, surprises),
            scaled=scaled,
        )

    def classify(self, x: ArrayLike, names: Sequence[str]) -> Matrix:
        """Probability of each of `classes`, (n_rows, n_classes), from incident features in the order of `names`."""
        served, wanted = self._classifier
        return served.probabilities(_ordered(as_matrix(x), names, wanted, self.id))

    def explain_cause(self, x: ArrayLike, names: Sequence[str], causes: Sequence[str]) -> Matrix:
        """How much each feature speaks for its row's cause, (n_rows, n_features) in the order of `names`, in nats."""
        served, wanted = self._classifier
        numbers: NDArray[np.int64] = np.array([self.classes.index(cause) for cause in causes], dtype=np.int64)
        gains = served.explain(_ordered(as_matrix(x), names, wanted, self.id), numbers)
        return gains[:, [wanted.index(name) for name in names]]

    @cached_property
    def _judges(self) -> dict[str, ServedJudge]:
        return {judge.name: ServedJudge(self.files[judge.file]) for judge in self.manifest.judges}

    @cached_property
    def _scales(self) -> dict[str, Any]:
        return {judge.name: scale_of(judge.scale) for judge in self.manifest.judges}

    @cached_property
    def _scaler(self) -> Scaler:
        kept = self.manifest.scaler
        return Scaler(np.array(kept.centre), np.array(kept.scale), np.array(kept.seen, dtype=bool), kept.clip)

    @cached_property
    def _classifier(self) -> tuple[ServedClassifier, tuple[str, ...]]:
        kept = self.manifest.classifier
        if kept is None:
            raise BundleError(
                self.id,
                expected="a bundle with a classifier",
                found="one trained on healthy runs alone",
                remedy="label incidents and train again",
            )
        return ServedClassifier(self.files[kept.file]), tuple(kept.names)


def file_record(payload: bytes) -> dict[str, Any]:
    """Checksum and size of a file's bytes."""
    return {"sha256": hashlib.sha256(payload).hexdigest(), "bytes": len(payload)}


def _of_detectors(detectors: FittedDetectors) -> dict[str, Any]:
    names, units = list(detectors.names), list(detectors.units)
    return {
        "features": {"schema_id": schema_id(names, units), "names": names, "units": units},
        "scaler": scaling_of(detectors.scaler),
        "judges": [
            {"name": name, "file": f"{name}.onnx", "scale": knots_of(detectors.scales[name])}
            for name in sorted(detectors.judges)
        ],
        "combine": "mean of two largest",
        "limit": msgspec.structs.asdict(detectors.limit),
        "seed": detectors.seed,
    }


def _of_classifier(classifier: FittedClassifier) -> dict[str, Any]:
    return {
        "file": "classifier.onnx",
        "names": list(classifier.names),
        "classes": list(classifier.classes),
        "temperature": classifier.temperature,
        "calibrated_on": classifier.calibrated_on,
    }


def _ordered(x: Matrix, names: Sequence[str], wanted: Sequence[str], place: str) -> Matrix:
    """The columns of `x` in the wanted order, shape (n_rows, n_wanted)."""
    _require(wanted, names, place)
    if list(names) == list(wanted):
        return x
    position = {name: i for i, name in enumerate(names)}
    return x[:, [position[name] for name in wanted]]


def _require(wanted: Sequence[str], found: Sequence[str], place: str) -> None:
    extra, missing = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
    if extra or missing or len(found) != len(wanted):
        difference = f"{len(found)} (extra: {extra or 'none'}, missing: {missing or 'none'})"
        raise _mismatch(place, f"the {len(wanted)} features of its training", difference)


def _mismatch(place: str, expected: str, found: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"bundle {place} ({MANIFEST})",
        expected=expected,
        found=found,
        remedy="train a bundle with this version, or use the version that the bundle was trained with",
    )
