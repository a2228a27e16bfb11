"""manifest.json of a model bundle: what it was trained on, how it judges, and the checksum of every file beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from models.calibration import SurpriseScale
from models.limits import Limit
from models.scaling import Scaler
from models.tails import Tail

MANIFEST = "manifest.json"

FileName = Annotated[str, Field(pattern=r"^[a-z0-9_-]+\.onnx$")]
"""Plain names of graphs: a manifest can neither point outside its directory nor bring in another kind of file."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Features(_Part):
    """The columns that the judges read, in order, and the id that stands for them."""

    schema_id: Sha256
    names: list[str]
    units: list[str]


class Scaling(_Part):
    """`models.scaling.Scaler` as lists."""

    centre: list[float]
    scale: list[float]
    seen: list[bool]
    clip: float


class TailRecord(_Part):
    """`models.tails.Tail`."""

    start: float
    scale: float
    share: float
    peaks: int


class Knots(_Part):
    """`models.calibration.SurpriseScale` as lists."""

    scores: list[float]
    surprises: list[float]
    tail: TailRecord


class Judge(_Part):
    """A judge: its name, its graph, its scale."""

    name: str
    file: FileName
    scale: Knots


class LimitRecord(_Part):
    """`models.limits.Limit`."""

    value: float
    rate: float
    observed: float
    windows: int
    groups: int
    forgiven: str | None
    extrapolated: bool


class Causes(_Part):
    """The classifier: its graph, what it reads, what it answers."""

    file: FileName
    names: list[str]
    classes: list[str]
    temperature: float
    calibrated_on: int


class TrainingRun(_Part):
    """A run that was learned from; `files`: relative name -> sha256."""

    name: str
    files: dict[str, Sha256]
    role: Literal["healthy", "labelled"]


class FileRecord(_Part):
    """Checksum and size of a file in the bundle."""

    sha256: Sha256
    bytes: int


class Manifest(_Part):
    """The whole manifest. `id` is the sha256 of everything else in canonical form, so it names the bundle's content."""

    id: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    # Raise the number when an older reader would misread a newer manifest.
    schema_: Annotated[Literal["rankwatch.bundle/1"], Field(alias="schema")] = "rankwatch.bundle/1"
    features: Features
    scaler: Scaling
    judges: list[Judge]
    combine: Literal["mean of two largest"]
    limit: LimitRecord
    classifier: Causes | None
    seed: int
    libraries: dict[str, str]
    runs: list[TrainingRun]
    settings: dict[str, JsonValue]
    files: dict[FileName, FileRecord]

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        width = len(self.features.names)
        columns = (self.features.units, self.scaler.centre, self.scaler.scale, self.scaler.seen)
        if len(set(self.features.names)) != width or any(len(column) != width for column in columns):
            raise ValueError("one unit, centre, scale and seen per distinct feature name is needed")
        graphs = [judge.file for judge in self.judges]
        graphs += [] if self.classifier is None else [self.classifier.file]
        if not self.judges or sorted(graphs) != sorted(self.files):
            raise ValueError("every file has to be the graph of one judge or of the classifier")
        return self

    def canonical(self) -> bytes:
        """The bytes of manifest.json."""
        return canonical_json(self.model_dump(mode="json", by_alias=True)) + b"\n"

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        """From everything but the id, which follows from it."""
        draft = cls.model_validate({**content, "id": "sha256:" + "0" * 64})
        return draft.model_copy(update={"id": draft.content_id()})

    def content_id(self) -> str:
        """What `id` has to be."""
        content = self.model_dump(mode="json", by_alias=True, exclude={"id"})
        return "sha256:" + hashlib.sha256(canonical_json(content)).hexdigest()


def canonical_json(value: object) -> bytes:
    """One way to write a value: sorted keys, no spaces, ASCII, shortest floats that read back the same."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def schema_id(names: Sequence[str], units: Sequence[str]) -> str:
    """What stands for a feature schema: sha256 of the ordered names with their units."""
    return hashlib.sha256(canonical_json([list(pair) for pair in zip(names, units, strict=True)])).hexdigest()


def scaling_of(scaler: Scaler) -> Scaling:
    """The scaler as the manifest keeps it."""
    return Scaling(centre=scaler.centre.tolist(), scale=scaler.scale.tolist(), seen=scaler.seen.tolist(), clip=scaler.clip)


def knots_of(scale: SurpriseScale) -> Knots:
    """A judge's scale as the manifest keeps it."""
    tail = TailRecord(**msgspec.structs.asdict(scale.tail))
    return Knots(scores=list(scale.scores), surprises=list(scale.surprises), tail=tail)


def scale_of(knots: Knots) -> SurpriseScale:
    """The judge's scale that the manifest keeps."""
    return SurpriseScale(tuple(knots.scores), tuple(knots.surprises), Tail(**knots.tail.model_dump()))


def limit_of(record: LimitRecord) -> Limit:
    """The limit that the manifest keeps."""
    return Limit(**record.model_dump())
