"""The files of a model for an engine on a device: links to blobs, in a folder of their own."""

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
    """Create the files of a model in a new folder below `parent`, and yield the path of the model
    file. Raises EngineError."""
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
        raise EngineError(f"cannot create the folder of the model: {error}") from None
    return folder / name


def _check_location(location: str) -> None:
    """Raise EngineError unless a location is a relative path that stays inside its folder."""
    path = PurePosixPath(location)
    if "\0" in location or path.is_absolute() or ".." in path.parts:
        raise EngineError(f"the model refers to a file outside of its folder: {location[:100]!r}")


def _link(blob: Path, place: Path) -> None:
    """Create the file `place` as a hard link to a blob, or as a copy if the blob is on another
    disk. The engine's process may read everything in the folder, so no symbolic link must lead out
    of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(blob, place)
    except OSError:
        shutil.copyfile(blob, place)
