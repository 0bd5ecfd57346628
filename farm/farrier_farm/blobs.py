"""The blob store: immutable files named by the sha256 of their bytes, and resumable uploads to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """A resumable upload: `offset` bytes of `size` are durable."""

    id: str
    size: int
    offset: int
    sha256: str | None  # the digest promised at creation, where one was


class BlobStore:
    """A path is `blobs/<2 hex>/<64 hex>`; what is acknowledged is on the disk (fsync of file and
    directory). Full disk, quota, I/O errors: StorageError."""

    def put(self, data: bytes) -> str:
        """Returns the sha256 hex digest."""
        raise NotImplementedError

    def put_stream(self, chunks: Iterable[bytes], *, expected: str | None = None) -> str:
        """Raises UsageError above `max_upload_bytes` and ConflictError where the digest differs."""
        raise NotImplementedError

    def get(self, sha256: str) -> bytes:
        """Verified against the name. Raises NotFoundError, StorageError for damaged bytes."""
        raise NotImplementedError

    def path(self, sha256: str) -> Path:
        """The file, for streaming. Raises NotFoundError (also for what is no sha256)."""
        raise NotImplementedError

    def has(self, sha256: str) -> bool:
        raise NotImplementedError

    def size(self, sha256: str) -> int:
        raise NotImplementedError

    def delete(self, sha256: str) -> None:
        """No error where there is none."""
        raise NotImplementedError

    def begin(self, size: int, sha256: str | None = None) -> Upload:
        """Starts a resumable upload. UsageError above `max_upload_bytes`, StorageError where there is
        no room."""
        raise NotImplementedError

    def upload(self, upload_id: str) -> Upload:
        """Raises NotFoundError."""
        raise NotImplementedError

    def append(self, upload_id: str, offset: int, chunk: bytes) -> Upload:
        """Durable on return. ConflictError where `offset` is not the upload's, UsageError past size."""
        raise NotImplementedError

    def finish(self, upload_id: str) -> str:
        """The sha256 of the complete blob; ConflictError where bytes miss or the digest differs."""
        raise NotImplementedError

    def abort(self, upload_id: str) -> None:
        """No error where there is none."""
        raise NotImplementedError

    def sweep(self, keep: Container[str], older_than_s: float) -> int:
        """Removes temporary files, idle uploads and blobs not in `keep` of that age; returns bytes."""
        raise NotImplementedError
