"""The files of a model that an engine on a device loads: links to blobs, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from farrier_device.baseline.lane import EngineError
from farrier_device.measurement import Rival
from farrier_device.runners.files import BlobSource

_MODEL = "model.onnx"


@contextlib.contextmanager
def laid_out(rival: Rival, parent: Path | None, blobs: BlobSource) -> Iterator[Path]:
    """Lay out a model's files in a new folder below `parent`, and yield the path of the model.
    Raises EngineError."""
    if parent is not None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="farrier-model-", dir=parent))
    try:
        yield _link_all(rival, blobs, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _link_all(rival: Rival, blobs: BlobSource, folder: Path) -> Path:
    name = _MODEL
    taken = {PurePosixPath(location).parts[:1] for location, _ in rival.files}
    while (name,) in taken:
        name = f"_{name}"
    try:
        for location, sha256 in rival.files:
            _check_location(location)
            _link(Path(blobs.path(sha256)), folder / (location or name))
    except (OSError, LookupError) as error:
        raise EngineError(f"the model cannot be laid out: {error}") from None
    return folder / name


def _check_location(location: str) -> None:
    """Raise EngineError unless the path is relative and stays inside its folder."""
    path = PurePosixPath(location)
    if "\0" in location or path.is_absolute() or ".." in path.parts:
        raise EngineError(f"the model names a file outside of its folder: {location[:100]!r}")


def _link(blob: Path, place: Path) -> None:
    """Link a place to a blob's bytes, or copy them from another disk. The engine's
    process reads below the folder, and no link leads out of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(blob, place)
    except OSError:
        shutil.copyfile(blob, place)
