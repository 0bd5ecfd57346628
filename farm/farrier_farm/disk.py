"""Files that are complete and on the disk, or not there: the writing half of the blob store."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def lacks_room(directory: Path, nbytes: int) -> str:
    """Return a sentence on the lack of room for `nbytes` more in a directory, or "" if there is
    room. The bytes are allocated for a moment, since nothing else reveals a quota."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
    except OSError as error:
        if error.errno in FULL:
            return f"{error.strerror}: {_free_bytes(directory)} bytes are free in {directory}"
    return ""


def _free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0


@contextlib.contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Turn OSError into a StorageError that says what could not be done."""
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        hint = "free some space, or move FARRIER_HOME to a larger disk" if full else ""
        raise StorageError(f"{what}: {error.strerror or error}", hint=hint) from error


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """A write may take less than it is given, at a full disk for one."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(draft: Path, path: Path) -> None:
    """Give a synced file its final name, durably. The same bytes may be published twice."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft.replace(path)
    sync_name(path)


def sync_name(path: Path) -> None:
    """Make the name of a file durable, and that of its folder."""
    sync_directory(path.parent)
    sync_directory(path.parent.parent)
