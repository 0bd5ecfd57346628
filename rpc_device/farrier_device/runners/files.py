"""The files of a batch, as open descriptors: a measurement child can open none itself."""

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
    """Where a request's blobs are."""

    def path(self, sha256: str) -> Path:
        """The file that holds exactly the bytes of this digest; raises where there is none."""
        ...


class BlobError(Exception):
    """A blob is missing, unreadable, or not what its name says."""


class BatchFiles(Closing):
    """The code objects, in sealed memory so that what was hashed is what runs, and the blobs."""

    def __init__(self, request: MeasureRequest, blobs: BlobSource) -> None:
        """Raises BlobError."""
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
        raise BlobError(f"the library {sha256} has other bytes than its name says; it is not run")
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
    except Exception as error:  # the source is the caller's: how it fails is unknown here
        raise BlobError(f"blob {sha256} is not here: {error}") from error
