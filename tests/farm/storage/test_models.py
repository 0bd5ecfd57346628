"""Models of several files in the farm: what they refer to, and how the compiler gets them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farrier.errors import ConflictError, InvalidModelError
from farrier.frontends.onnx.model.file import Model
from farrier_farm.farm import Farm
from farrier_farm.storage.models import DataFile, Manifest

WEIGHTS = bytes(range(200)) * 50


@pytest.fixture
def manifest(farm: Farm) -> Manifest:
    """A manifest of stored blobs."""
    files = {"m.data": DataFile(farm.blobs.put(WEIGHTS), len(WEIGHTS))}
    return Manifest(farm.blobs.put(os.urandom(64)), files)


def test_a_model_that_is_made_twice_refers_once(farm: Farm, manifest: Manifest, audit) -> None:
    assert farm.models.create(manifest) == farm.models.create(manifest) == manifest.id
    assert farm.models.get(manifest.id) == manifest
    for blob in manifest.blobs():
        assert farm.references.are_there(blob)
    audit(farm)


def test_a_model_of_which_a_blob_is_missing_is_not_made(
    farm: Farm, manifest: Manifest, audit
) -> None:
    farm.blobs.remove(manifest.files["m.data"].sha256, lambda _: False)
    with pytest.raises(ConflictError, match=r"'m\.data'"):
        farm.models.create(manifest)
    assert not farm.references.are_there(manifest.message)
    audit(farm)


def test_a_blob_that_is_swept_while_a_model_is_made_is_named(
    farm: Farm, manifest: Manifest, monkeypatch
) -> None:
    blob = manifest.files["m.data"].sha256
    path = farm.blobs.path(blob)

    def swept_behind(sha256: str) -> Path:
        """As where a sweep comes just after the look whether it is there."""
        path.unlink()
        return path

    monkeypatch.setattr(farm.blobs, "path", swept_behind)
    with pytest.raises(ConflictError, match=rf"'m\.data' \({blob}\)"):
        farm.models.create(manifest)


def test_what_others_do_with_a_blob_is_no_change_of_an_open_model(
    farm: Farm, manifest: Manifest
) -> None:
    """They renew its time, or store it once more; but its bytes stay."""
    model = Model.of_files(*farm.models.verified(farm.models.create(manifest)))
    data = model.data("m.data")
    blob = manifest.files["m.data"].sha256
    farm.blobs.renew(blob)
    model.check_unchanged()
    farm.blobs.put(WEIGHTS)
    model.check_unchanged()
    assert bytes(data.view) == WEIGHTS
    farm.blobs.put(WEIGHTS)  # The open one is another file now.
    os.truncate(f"/proc/self/fd/{data._file}", 10)
    with pytest.raises(InvalidModelError, match=r"m\.data") as raised:
        model.check_unchanged()
    assert str(farm.settings.home) not in raised.value.message
