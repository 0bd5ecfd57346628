"""Free space and I/O errors of the disk with a farm's home."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError
from farrier_device.storage import durable


def lacks_room(directory: Path, nbytes: int) -> str:
    """Return "" if `nbytes` more bytes fit into a directory, otherwise a sentence that states the
    lack of space. To respect disk quotas, which cannot be queried, the bytes are allocated for a
    moment."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
    except OSError as error:
        if durable.is_full(error):
            return f"{error.strerror}: {_free_bytes(directory)} bytes are free in {directory}"
    return ""


def _free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0


@contextlib.contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Return a context that turns an OSError into a StorageError. `what` is the start of its
    message, such as "cannot read …"."""
    try:
        yield
    except OSError as error:
        hint = "free some space, or move FARRIER_HOME to a larger disk"
        hint = hint if durable.is_full(error) else ""
        raise StorageError(f"{what}: {error.strerror or error}", hint=hint) from error
