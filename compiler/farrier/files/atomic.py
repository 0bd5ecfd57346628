"""Write files atomically: completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from farrier.errors import StorageError
from farrier_device.storage import durable

_ANOTHER_PLACE = "free some space or choose another directory"


def write_atomically(path: Path, write_to: Callable[[IO[bytes]], None]) -> None:
    """Write a file by calling `write_to`, completely or not at all. Raises StorageError if that
    fails, on a full disk for example, and the errors of `write_to`.

    If the path is a link, the file to which it points is written. Anything other than a regular
    file, such as /dev/null or a pipe, is written to and never replaced.
    """
    check_writable(path)
    place = Path(os.path.realpath(path))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if is_special(place):
            with place.open("wb") as file:
                write_to(file)
        else:
            with durable.replacing(place, mode=0o644) as file:
                write_to(file)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}", hint=_ANOTHER_PLACE
        ) from error


def write_text_atomically(path: Path, text: str) -> None:
    """Write a small text file completely or not at all."""

    def write_to(file: IO[bytes]) -> None:
        file.write(text.encode())

    write_atomically(path, write_to)


def check_writable(path: Path) -> None:
    """Raise StorageError if `write_atomically` would, without writing anything. Call this before
    work that takes long, whose result is to be written."""
    place = Path(os.path.realpath(path))
    folder = next(parent for parent in place.parents if parent.exists())
    reason = None
    if place.is_dir():
        reason = "it is a directory"
    elif not folder.is_dir():
        reason = f"{folder} is no directory"
    elif not os.access(folder, os.W_OK | os.X_OK) and not is_special(place):
        reason = f"{folder} is not writable"
    if reason is not None:
        raise StorageError(f"cannot write {path}: {reason}", hint=_ANOTHER_PLACE)


def is_special(path: Path) -> bool:
    """Check whether the path exists and is neither a regular file nor a directory: a device or a
    pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()
