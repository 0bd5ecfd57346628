"""The container: a stored zip whose members can be mapped into memory where they lie.

Any unzip tool opens it. Nothing is compressed, and `params.bin` starts at a multiple of 64 bytes of
the file, so that mapping the file gives aligned vectors without a copy.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from farrier.errors import ArtifactError, StorageError

ALIGNMENT = 64
_LOCAL_HEADER_BYTES = 30
_EXTRA_ID = 0xFA88  # the extra field's private id; its content is only padding
# What zipfile raises, one way or another, for bytes that are no zip archive.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
)
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # equal contents make equal files


def pack(members: Mapping[str, bytes | memoryview]) -> bytes:
    """The members as one container, each aligned to `ALIGNMENT` bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            entry.external_attr = 0o644 << 16
            start = stream.tell() + _LOCAL_HEADER_BYTES + len(name.encode()) + 4
            entry.extra = struct.pack("<HH", _EXTRA_ID, -start % ALIGNMENT) + bytes(
                -start % ALIGNMENT
            )
            archive.writestr(entry, data)
    return stream.getvalue()


def read(path: Path) -> dict[str, bytes]:
    """Every member but `params.bin`; raises ArtifactError where the file is not a container."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {n: archive.read(n) for n in archive.namelist() if n != "params.bin"}
    except FileNotFoundError:
        raise ArtifactError(f"no such artifact: {path}") from None
    except _UNREADABLE as error:
        raise ArtifactError(
            f"{path} is not a Farrier artifact: {error}", hint="compile or download it again"
        ) from error


def span(path: Path, name: str) -> tuple[int, int]:
    """Offset and length of a member's bytes in the file; raises ArtifactError."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entry = archive.getinfo(name)
            file.seek(entry.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
            name_bytes, extra_bytes = struct.unpack("<26xHH", header)
            offset = entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
            if offset + entry.file_size > path.stat().st_size:
                raise ArtifactError(f"{path} is truncated inside {name}")
            return offset, entry.file_size
    except (KeyError, *_UNREADABLE) as error:
        raise ArtifactError(f"{path} is damaged: {error}") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes the file whole or not at all; raises StorageError where the disk is full."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free some space or choose another directory",
        ) from error


def digest(data: bytes | memoryview) -> str:
    """sha256 in hex, as in `Manifest.hashes`."""
    return hashlib.sha256(data).hexdigest()
