"""The container format of artifacts: a zip file whose large members are stored uncompressed and
aligned.

Any unzip tool opens it. Members of at least `STORED_BYTES` are stored at multiples of 64 bytes of
the file, so that they can be mapped; smaller ones are deflated, because code, tables and the
padding of blocked weights would otherwise make up most of the file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np

from farrier.errors import ArtifactError

ALIGNMENT = 64
STORED_BYTES = 1 << 20
_LOCAL_HEADER_BYTES = 30
_LARGE_BYTES = 1 << 30  # From this size on a member has 64-bit sizes in a second extra field.
_ZIP64_BYTES = 20
_PIECE = 4 << 20  # The bytes that are read before they are hashed.
_MAGIC = b"PK\x03\x04"  # APPNOTE.TXT 4.3.7 of the zip format: a local header's signature
_EXTRA_ID = 0xFA88  # The extra field's private id; its content is only padding.
# The errors that zipfile raises for bytes that are not a zip archive.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # A constant, so that equal contents make equal files.


def is_container(path: Path, member: str) -> bool:
    """Check whether a file is a container with this member, whatever the file's name is."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
        with zipfile.ZipFile(path) as archive:
            return member in archive.NameToInfo
    except _UNREADABLE:
        return False


def write(file: IO[bytes], members: Mapping[str, bytes | memoryview]) -> None:
    """Write the members, a mapping from name to content, to `file` as one container."""
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            entry.external_attr = 0o644 << 16
            view = memoryview(data).cast("B")
            entry.file_size = view.nbytes
            is_large = view.nbytes >= _LARGE_BYTES
            if view.nbytes < STORED_BYTES:
                entry.compress_type = zipfile.ZIP_DEFLATED
            else:
                start = file.tell() + _LOCAL_HEADER_BYTES + len(name.encode()) + 4
                padding = -(start + is_large * _ZIP64_BYTES) % ALIGNMENT
                entry.extra = struct.pack("<HH", _EXTRA_ID, padding) + bytes(padding)
            with archive.open(entry, "w", force_zip64=is_large) as member:
                member.write(view)


class Mapped:
    """A memory-mapped member of a file: `nbytes` at `address`, a multiple of 64, while this object
    exists. The file may be removed or replaced in the meantime, but not truncated."""

    __slots__ = ("_pages", "_start", "_view", "address", "nbytes")

    def __init__(self, file: IO[bytes], start: int, nbytes: int) -> None:
        self._pages = mmap.mmap(file.fileno(), start + nbytes, access=mmap.ACCESS_READ)
        self._view = np.frombuffer(self._pages, np.uint8)
        self._start = start
        self.address = int(self._view.ctypes.data) + start
        self.nbytes = nbytes

    @property
    def view(self) -> memoryview:
        """The bytes of the member."""
        return self._view[self._start :].data

    def digest(self) -> str:
        """Return the sha256 of the member in hex."""
        return digest(self.view)


def map_member(path: Path, name: str) -> Mapped | None:
    """Map a member of the file into memory, without reading it; return None for a deflated one.
    Raises ArtifactError if the file is damaged or truncated."""
    try:
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                entry = archive.getinfo(name)
            start = _start(file, entry)
            if entry.compress_type != zipfile.ZIP_STORED or start % ALIGNMENT:
                return None
            if start + entry.file_size > os.fstat(file.fileno()).st_size:
                raise EOFError("it is truncated")
            return Mapped(file, start, entry.file_size)
    except (KeyError, *_UNREADABLE) as error:
        raise _damaged(path, error) from error


def _start(file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    """Return the offset in the file at which the content of a member starts."""
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = struct.unpack("<26xHH", header)
    return entry.header_offset + _LOCAL_HEADER_BYTES + int(name_bytes) + int(extra_bytes)


def read(path: Path) -> dict[str, bytes]:
    """Return the content of every member except `params.bin`. Raises ArtifactError if the file is
    not a container."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) < len(names):  # Readers would differ in the file that they take.
                raise ArtifactError(f"{path} has two files of one name", hint="fetch it again")
            for name in names:
                if name.startswith("/") or ".." in name.split("/"):
                    raise ArtifactError(
                        f"{path} has a file {name!r}, which lies outside of the archive",
                        hint="do not unpack it, and fetch it again from its source",
                    )
            return {n: archive.read(n) for n in names if n != "params.bin"}
    except FileNotFoundError:
        raise ArtifactError(f"no such artifact: {path}") from None
    except IsADirectoryError:
        raise ArtifactError(
            f"{path} is a directory, not an artifact", hint="name a .farrier file"
        ) from None
    except _UNREADABLE as error:
        raise ArtifactError(
            f"{path} is not a Farrier artifact: {error}", hint="compile or download it again"
        ) from error


def size(path: Path, name: str) -> int:
    """Return the size of a member in bytes. Raises ArtifactError if it does not exist."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.getinfo(name).file_size
    except (KeyError, *_UNREADABLE) as error:
        raise _damaged(path, error) from error


def read_into(path: Path, name: str, memory: memoryview) -> str:
    """Read a member into `memory`, which has its size, and return its digest. Raises ArtifactError.

    The digest is computed on another core while the file is read. The checksum of a stored member
    is not checked, because callers compare the digest anyway.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entry = archive.getinfo(name)
            if entry.compress_type != zipfile.ZIP_STORED:
                memory[:] = archive.read(entry)
                return digest(memory)
            file.seek(_start(file, entry))
            if entry.file_size != memory.nbytes:
                raise ArtifactError(f"{path} is truncated inside {name}")
            return _read_and_digest(file, memory)
    except (KeyError, *_UNREADABLE) as error:
        raise _damaged(path, error) from error


def _read_and_digest(file: IO[bytes], memory: memoryview) -> str:
    """Fill `memory` from the current position of the file, and return the digest. Raises EOFError
    if the file ends early."""
    hashed = hashlib.sha256()
    with ThreadPoolExecutor(1) as beside:
        for start in range(0, memory.nbytes, _PIECE):
            piece = memory[start : start + _PIECE]
            if file.readinto(piece) != piece.nbytes:  # type: ignore[attr-defined]
                raise EOFError("it is truncated")
            beside.submit(hashed.update, piece)
    return hashed.hexdigest()


def _damaged(path: Path, error: Exception) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {error}", hint="compile or download it again")


def digest(data: bytes | memoryview) -> str:
    """Return the sha256 of `data` in hex, in the form that `Manifest.hashes` has."""
    return hashlib.sha256(data).hexdigest()
