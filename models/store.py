"""Bundles on disk: written whole or not at all, and read only if every byte is what the manifest says."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pydantic import ValidationError

from features.errors import BundleError, TamperedBundle
from models.bundle import Bundle, file_record
from models.manifest import MANIFEST, Manifest

REMEDY = "fetch the bundle again, or train a new one; do not edit it"


def write_bundle(directory: Path | str, bundle: Bundle, *, replace: bool = False) -> Path:
    """Write the bundle to `directory`, which appears complete or not at all; its parent directories are made.

    A directory that is there and not empty is refused unless `replace`, which moves it out of the way first and
    removes it last: a reader finds the old bundle, for a moment none, then the new one, and never a mixture.
    """
    target = Path(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and any(target.iterdir()) and not replace:
        raise BundleError(
            str(target),
            expected="no directory, or an empty one",
            found="files",
            remedy="choose another directory, or ask to replace this one",
        )
    workplace = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        fresh = workplace / "new"
        fresh.mkdir()
        for name, payload in {**bundle.files, MANIFEST: bundle.manifest.canonical()}.items():
            _write_through(fresh / name, payload)
        _swap_in(fresh, target, aside=workplace / "old")
    finally:
        shutil.rmtree(workplace)
    return target


def read_bundle(directory: Path | str, *, expected_id: str | None = None) -> Bundle:
    """The bundle in `directory`. Every byte is checked before use; `TamperedBundle` names the file that differs.

    The checks hold the bundle to its own manifest. Against somebody who rewrites both, give the id that you trust.
    """
    place = Path(directory)
    manifest = _read_manifest(place / MANIFEST)
    if expected_id is not None and manifest.id != expected_id:
        raise TamperedBundle(str(place / MANIFEST), expected=f"id {expected_id}", found=manifest.id, remedy=REMEDY)
    present = {entry.name for entry in place.iterdir()} - {MANIFEST}
    for name in sorted(present - set(manifest.files)):
        raise TamperedBundle(str(place / name), expected="only the files of the manifest", found="another one", remedy=REMEDY)
    files = {name: _read_checked(place / name, manifest) for name in sorted(manifest.files)}
    return Bundle(manifest, files)


def _read_manifest(path: Path) -> Manifest:
    if not path.is_file():
        kind = TamperedBundle if path.parent.is_dir() else BundleError
        raise kind(str(path), expected="the manifest of a bundle", found="no such file", remedy="name a bundle's directory")
    payload = path.read_bytes()
    try:
        manifest = Manifest.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        found = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        raise TamperedBundle(str(path), expected="a manifest that can be read", found=found, remedy=REMEDY) from error
    if manifest.content_id() != manifest.id or manifest.canonical() != payload:
        found = f"{manifest.content_id()} for what it holds"
        raise TamperedBundle(str(path), expected=f"content of id {manifest.id}", found=found, remedy=REMEDY)
    return manifest


def _read_checked(path: Path, manifest: Manifest) -> bytes:
    if path.is_symlink() or not path.is_file():
        raise TamperedBundle(str(path), expected="a file", found="none", remedy=REMEDY)
    payload, record = path.read_bytes(), manifest.files[path.name]
    found = file_record(payload)
    if found != record.model_dump():
        raise TamperedBundle(
            str(path),
            expected=f"{record.bytes} bytes with sha256 {record.sha256}",
            found=f"{found['bytes']} bytes with sha256 {found['sha256']}",
            remedy=REMEDY,
        )
    return payload


def _write_through(path: Path, payload: bytes) -> None:
    """To the disk, not only to the system's memory: a rename must not become durable before the content is."""
    with path.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def _swap_in(fresh: Path, target: Path, *, aside: Path) -> None:
    is_replacing = target.exists()
    if is_replacing:
        target.rename(aside)
    try:
        fresh.rename(target)
    except OSError:
        if is_replacing:
            aside.rename(target)
        raise
