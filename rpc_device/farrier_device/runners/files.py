"""The files of a batch as open descriptors, because a measurement child cannot open files
itself."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

from farrier_device.closing import Closing
from farrier_device.measurement import MeasureRequest
from farrier_device.storage.digest import digest_of
from farrier_device.storage.durable import write_all

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class BlobSource(Protocol):
    """A source of the blobs that a request names by digest."""

    def path(self, sha256: str) -> Path:
        """Return the path of the file whose content has this digest. Raises an error if there is
        none."""
        ...


class BlobError(Exception):
    """A blob is missing or unreadable, or its bytes do not match its digest."""


class BatchFiles(Closing):
    """The code objects of a batch, copied to sealed memory files so that the bytes that run are
    exactly the hashed bytes, and the batch's blobs as open files."""

    def __init__(self, request: MeasureRequest, blobs: BlobSource) -> None:
        """Open the files of a request. Raises BlobError."""
        self.names = sorted(request.blobs() - request.code_blobs)
        self.descriptors: list[int] = []
        try:
            for code in request.code:
                self.descriptors.append(_sealed(code.blob, blobs))
            self.descriptors += [os.open(_path(name, blobs), os.O_RDONLY) for name in self.names]
        except OSError as error:
            self.close()
            raise BlobError(f"cannot open a blob of the batch: {error}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


def _sealed(sha256: str, blobs: BlobSource) -> int:
    data = _path(sha256, blobs).read_bytes()
    if digest_of(data) != sha256:
        raise BlobError(
            f"the content of the library {sha256} does not have this hash, so it is not run"
        )
    descriptor = os.memfd_create("farrier-library", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        write_all(descriptor, data)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _path(sha256: str, blobs: BlobSource) -> Path:
    try:
        return blobs.path(sha256)
    except Exception as error:  # The source is the caller's, so any exception is possible.
        raise BlobError(f"cannot read the blob {sha256}: {error}") from error
