"""Bundles on disk: a round trip changes nothing, and a single changed bit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from features.errors import BundleError, TamperedBundle
from models import Bundle, read_bundle, write_bundle
from models.arrays import Matrix
from models.manifest import MANIFEST, Manifest, canonical_json

FILES = ["autoencoder.onnx", "classifier.onnx", "extreme.onnx", "iforest.onnx", "manifest.json", "pca.onnx"]


@pytest.fixture
def place(bundle: Bundle, tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models" / "bundle", bundle)


def test_round_trip_judges_to_the_bit_alike(bundle: Bundle, place: Path, unseen: Matrix) -> None:
    again = read_bundle(place, expected_id=bundle.id)

    ours, theirs = bundle.judge(unseen, bundle.names), again.judge(unseen, bundle.names)
    np.testing.assert_array_equal(ours.combined, theirs.combined)
    np.testing.assert_array_equal(ours.contributions, theirs.contributions)
    assert again.limit == bundle.limit
    assert again.manifest == bundle.manifest
    assert again.classes == bundle.classes


def test_only_graphs_and_the_manifest_are_written(place: Path) -> None:
    """No pickle: nothing in a bundle can run code when it is read."""
    assert sorted(path.name for path in place.iterdir()) == FILES
    assert sorted(path.name for path in place.parent.iterdir()) == ["bundle"]


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_anywhere_is_refused_by_name(place: Path, name: str) -> None:
    whole = (place / name).read_bytes()
    for position in {0, len(whole) // 3, len(whole) // 2, len(whole) - 1}:
        changed = bytearray(whole)
        changed[position] ^= 1
        (place / name).write_bytes(changed)

        with pytest.raises(TamperedBundle, match=name.replace(".", r"\.")):
            read_bundle(place)
    (place / name).write_bytes(whole)
    read_bundle(place)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_by_name(place: Path, name: str) -> None:
    (place / name).unlink()

    with pytest.raises(TamperedBundle, match=name.replace(".", r"\.")):
        read_bundle(place)


@pytest.mark.parametrize("name", ["extra.onnx", "model.pkl", "notes.txt", ".hidden"])
def test_an_additional_file_is_refused_by_name(place: Path, name: str) -> None:
    (place / name).write_bytes(b"")

    with pytest.raises(TamperedBundle, match=name.replace(".", r"\.")):
        read_bundle(place)


def test_a_link_in_place_of_a_file_is_refused(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "pca.onnx"
    (place / "pca.onnx").rename(elsewhere)
    (place / "pca.onnx").symlink_to(elsewhere)

    with pytest.raises(TamperedBundle, match=r"pca\.onnx"):
        read_bundle(place)


def test_a_manifest_that_says_the_same_in_other_bytes_is_refused(place: Path) -> None:
    content = json.loads((place / MANIFEST).read_text())
    (place / MANIFEST).write_text(json.dumps(content, indent=2))

    with pytest.raises(TamperedBundle, match=r"manifest\.json"):
        read_bundle(place)


def test_a_limit_raised_by_hand_is_refused(place: Path) -> None:
    content = json.loads((place / MANIFEST).read_text())
    content["limit"]["value"] += 1.0
    (place / MANIFEST).write_bytes(canonical_json(content) + b"\n")

    with pytest.raises(TamperedBundle, match=r"manifest\.json"):
        read_bundle(place)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"limit": 99.0}, "limit"),
        ({"schema": "rankwatch.bundle/2"}, "schema.*bundle/1"),
        ({"surprise": 1}, "surprise"),
        ({"seed": None}, "seed"),
        ({"judges": []}, "the graph of one judge"),
    ],
    ids=["kind", "version", "unknown key", "no seed", "no judges"],
)
def test_a_manifest_that_is_not_understood_is_refused(place: Path, change: dict[str, object], found: str) -> None:
    content = json.loads((place / MANIFEST).read_text()) | change
    (place / MANIFEST).write_text(json.dumps(content))

    with pytest.raises(TamperedBundle, match=found):
        read_bundle(place)


def test_a_manifest_cannot_point_outside_its_directory(bundle: Bundle) -> None:
    content = bundle.manifest.model_dump(by_alias=True, exclude={"id"})
    content["files"] = {f"../{name}": record for name, record in content["files"].items()}

    with pytest.raises(ValueError, match="pattern"):
        Manifest.of(content)


def test_a_whole_bundle_that_was_exchanged_is_refused_where_the_id_is_known(place: Path) -> None:
    with pytest.raises(TamperedBundle, match="id sha256:0000"):
        read_bundle(place, expected_id="sha256:" + "0" * 64)


def test_a_directory_that_is_not_there_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such file"):
        read_bundle(tmp_path / "nowhere")


def test_what_is_there_is_replaced_on_request_only(bundle: Bundle, tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    target.mkdir()
    write_bundle(target, bundle)  # an empty directory is fine
    (target / "stray.txt").write_text("mine")

    with pytest.raises(BundleError, match="replace"):
        write_bundle(target, bundle)
    assert (target / "stray.txt").read_text() == "mine"

    write_bundle(target, bundle, replace=True)
    assert read_bundle(target).id == bundle.id
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle"]


def test_a_write_that_fails_leaves_what_was_there(bundle: Bundle, place: Path) -> None:
    broken = Bundle(bundle.manifest, {**bundle.files, "no/such/directory.onnx": b""})

    with pytest.raises(FileNotFoundError):
        write_bundle(place, broken, replace=True)

    assert read_bundle(place).id == bundle.id
    assert [path.name for path in place.parent.iterdir()] == ["bundle"]
