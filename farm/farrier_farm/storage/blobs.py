"""The blob store with resumable uploads. A blob is a file identified by its SHA-256
(`content.ContentStore`).

An upload is a file that grows with each acknowledged chunk until it becomes a blob. Its state is in
two files: `<home>/uploads/<id>.json` (the announced size and digest, and the user), and
`<id>.part`, whose length is the offset. Therefore an upload survives restarts of the process and of
the machine. The digest is computed while a single process appends all chunks; if another process
continues the upload, the complete file is read once more at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from farrier.errors import ConflictError, NotFoundError, UsageError
from farrier_device.storage import durable
from farrier_device.storage.digest import digest_of_file
from farrier_farm import disk
from farrier_farm.settings import Settings
from farrier_farm.storage.content import ContentStore

_ID = re.compile(r"[0-9a-f]{32}")


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """A resumable upload, of which `offset` bytes of `size` are durably stored."""

    id: str
    size: int
    offset: int
    sha256: str | None  # The digest promised at creation, or None.
    # The user who began it; None for an upload of a version without users.
    owner: str | None = None


class _RunningDigests:
    """The SHA-256 states of recent uploads whose bytes this process has appended from the start.
    With them, the digest of a complete upload is known without reading the file again."""

    MOST = 1000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, hashlib._Hash]] = {}

    def take(self, upload_id: str, offset: int) -> hashlib._Hash | None:
        """Remove and return the SHA-256 state of the first `offset` bytes of an upload; None if
        this process has not computed it."""
        with self._lock:
            length, digest = self._known.pop(upload_id, (0, hashlib.sha256()))
        return digest if length == offset else None

    def keep(self, upload_id: str, offset: int, digest: hashlib._Hash) -> None:
        with self._lock:
            self._known[upload_id] = offset, digest
            while len(self._known) > self.MOST:
                del self._known[next(iter(self._known))]


class BlobStore(ContentStore):
    """The blob store with resumable uploads. Every method raises StorageError for a full disk or
    quota, or an I/O error."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._uploads = settings.home / "uploads"
        self._max_bytes = settings.max_upload_bytes
        self._digests = _RunningDigests()
        with disk.storage_errors(f"cannot create {self._uploads}"):
            self._uploads.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, size: int, sha256: str | None = None, owner: str | None = None) -> Upload:
        """Start an upload of a user. Raises UsageError for a size above `max_upload_bytes`,
        StorageError if the file does not fit on the disk."""
        if size < 0:
            raise UsageError(f"the size is {size}")
        if self._max_bytes and size > self._max_bytes:
            raise UsageError(
                f"{size} bytes are more than the limit of {self._max_bytes}",
                hint="raise FARRIER_MAX_UPLOAD_BYTES, or store weights in a smaller dtype",
            )
        self.check_room(size)
        upload = Upload(secrets.token_hex(16), size, 0, sha256, owner)
        promise = json.dumps({"size": size, "sha256": sha256, "owner": owner}).encode()
        with disk.storage_errors("cannot start an upload"):
            # The file with the announced size and digest is written last, because an upload exists
            # if this file does.
            for suffix, data in ((".part", b""), (".json", promise)):
                descriptor = os.open(
                    self._file(upload.id, suffix), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
                )
                try:
                    durable.write_all(descriptor, data)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            durable.sync_directory(self._uploads)
        return upload

    def upload(self, upload_id: str) -> Upload:
        """Return an upload. Raises NotFoundError."""
        if not _ID.fullmatch(upload_id):
            raise no_upload(upload_id)
        try:
            promise = json.loads(self._file(upload_id, ".json").read_text())
            offset = self._file(upload_id, ".part").stat().st_size
        except FileNotFoundError:
            raise no_upload(upload_id) from None
        return Upload(upload_id, promise["size"], offset, promise["sha256"], promise.get("owner"))

    def has_upload(self, upload_id: str) -> bool:
        """Return whether an upload was started and is not complete."""
        return _ID.fullmatch(upload_id) is not None and self._file(upload_id, ".json").exists()

    def abandon(self, upload_id: str) -> None:
        """Remove an upload and its bytes."""
        with disk.storage_errors(f"cannot remove upload {upload_id}"):
            self._remove_upload(upload_id)

    def append(self, upload_id: str, offset: int, chunk: bytes) -> Upload:
        """Append `chunk` to an upload durably, and return the upload with its new offset. Raises
        ConflictError if `offset` differs from the upload's present offset, UsageError if the chunk
        exceeds the announced size."""
        with self._locked(upload_id) as (upload, descriptor):
            if offset != upload.offset:
                raise ConflictError(
                    f"upload {upload_id} is at offset {upload.offset}, the chunk at {offset}",
                    hint="query the offset and continue there",
                )
            end = offset + len(chunk)
            digest = self._digests.take(upload_id, offset)
            if end > upload.size:
                raise UsageError(
                    f"upload {upload_id} was announced with {upload.size} "
                    f"bytes, but this makes {end}"
                )
            try:
                durable.write_all(descriptor, chunk)
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, offset)
                raise
            if digest is not None:
                digest.update(chunk)
                self._digests.keep(upload_id, end, digest)
            return dataclasses.replace(upload, offset=end)

    def finish(self, upload_id: str, claim: Callable[[str], None] = lambda _: None) -> str:
        """Turn a complete upload into a blob and return its SHA-256. `claim` is called with the
        digest before that, to store the claim of the user; if it raises, the upload is unchanged
        and may be finished again. Raises ConflictError if bytes are missing. Raises ConflictError
        and removes the upload if the digest differs from the announced one."""
        with self._locked(upload_id) as (upload, _):
            if upload.offset != upload.size:
                raise ConflictError(
                    f"upload {upload_id} has {upload.offset} of {upload.size} bytes",
                    hint="send the rest first",
                )
            running = self._digests.take(upload_id, upload.offset)
            part = self._file(upload_id, ".part")
            digest = digest_of_file(part) if running is None else running.hexdigest()
            try:
                self.check_digest(digest, upload.sha256)
            except ConflictError:
                self._remove_upload(upload_id)
                raise
            claim(digest)
            self.adopt(part, None, digest)
            self._remove_upload(upload_id)
            return digest

    def sweep(self, is_needed: Callable[[str], bool], older_than_s: float) -> int:
        """Remove uploads, drafts, and blobs for which `is_needed` is false, if they were not
        written or renewed for `older_than_s`; return the number of bytes removed."""
        limit = time.time() - older_than_s
        removed = 0
        for path in self._uploads.iterdir():
            if path.suffix == ".json" and path.with_suffix(".part").exists():
                # The modification time of the `.part` file states when the upload was last written.
                continue
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                if stat.st_mtime < limit:
                    self._remove_upload(path.stem)
                    removed += stat.st_size
        return removed + super().sweep(is_needed, older_than_s)

    def _file(self, upload_id: str, suffix: str) -> Path:
        return self._uploads / f"{upload_id}{suffix}"

    def _remove_upload(self, upload_id: str) -> None:
        self._file(upload_id, ".json").unlink(missing_ok=True)
        self._file(upload_id, ".part").unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, upload_id: str) -> Iterator[tuple[Upload, int]]:
        """Return a context with the upload, and its file opened for appending. Only one caller at a
        time holds the upload."""
        self.upload(upload_id)
        with disk.storage_errors(f"cannot continue upload {upload_id}"):
            descriptor = os.open(self._file(upload_id, ".part"), os.O_WRONLY | os.O_APPEND)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield self.upload(upload_id), descriptor
            finally:
                os.close(descriptor)


def no_upload(upload_id: str) -> NotFoundError:
    """Return the error for an upload that does not exist."""
    return NotFoundError(
        f"there is no upload {upload_id!r}",
        hint="it has ended, or was idle for too long; start again",
    )
