"""Files that are either complete and on the disk, or absent.

A file is written under a temporary name, synced, and then renamed atomically. A process that dies
before the rename leaves a hidden temporary file, `.NAME.XXXXXXXX`, and the previous file.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Return whether the error means a lack of space: a full disk, a quota, or a limit on file
    sizes."""
    return error.errno in _FULL


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes to a descriptor: a single system call may write fewer, for example on a
    nearly full disk."""
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """Return a context with an open file that replaces `path`, synced, at the end of the context.
    If the context raises an exception, `path` stays unchanged. Raises OSError."""
    with _draft(path, mode) as (draft, file):
        yield file
        _sync(file)
        draft.replace(path)


def create(path: Path, data: bytes, *, mode: int = 0o600) -> bool:
    """Write a file, unless its name exists; return whether this call has written the file. Of
    several concurrent processes one succeeds, and all see a complete file. Raises OSError."""
    with _draft(path, mode) as (draft, file):
        file.write(data)
        _sync(file)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        return True


def append(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Append bytes to a file and sync the file. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_name(path: Path) -> None:
    """Make the name of a file and the name of its folder durable."""
    sync_directory(path.parent)
    sync_directory(path.parent.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory to the disk, so that the names of its files are durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _draft(path: Path, mode: int) -> Iterator[tuple[Path, IO[bytes]]]:
    """Return a context with a new temporary file in the folder of `path`, open for writing. The
    file is removed at the end unless it has been renamed."""
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, mode), "w+b") as file:
            os.fchmod(file.fileno(), mode)  # The umask has no say, so that all users share a cache.
            yield draft, file
    finally:
        draft.unlink(missing_ok=True)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
