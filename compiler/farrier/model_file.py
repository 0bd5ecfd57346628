"""Reading a model's bytes from a file, with the errors that a user can act on."""

from __future__ import annotations

import stat
from pathlib import Path

from farrier.errors import InvalidModelError, UsageError

MAX_BYTES = 2 << 30  # protobuf's own limit on one message


def read_model(path: Path) -> bytes:
    """The file's bytes. Raises InvalidModelError where it is too large for an ONNX file, UsageError
    where it cannot be read."""
    check_is_file(path)
    try:
        check_size(path, path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def check_is_file(path: Path) -> None:
    """Raises UsageError where the path leads to no file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"no such file: {path}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a directory", hint="name a file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is no regular file")


def check_size(path: Path, size: int) -> None:
    """Raises InvalidModelError for more bytes than an ONNX file can have, before any is read."""
    if size > MAX_BYTES:
        raise InvalidModelError(
            f"{path} has more than 2 GiB, which no self-contained ONNX file can",
            hint="export it in parts, or with smaller weights",
        )
