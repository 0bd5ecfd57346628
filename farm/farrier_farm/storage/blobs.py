"""The blob store: files by their sha256 (`content.ContentStore`), and resumable uploads to it.

An upload is a file that grows, chunk by acknowledged chunk, until it becomes a blob. Its state is
its two files: `<home>/uploads/<id>.json` (size and digest promised, its user) and `<id>.part`,
whose length is the offset. So it survives whatever the disk survives. The digest of what one
process appends is computed on the way; where another goes on, the file is read once more at its
end."""

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
    """A resumable upload: `offset` bytes of `size` are durable."""

    id: str
    size: int
    offset: int
    sha256: str | None  # the digest promised at creation, where one was
    owner: str | None = None  # the user who began it; None where a version without users did


class _RunningDigests:
    """The sha256 of uploads as far as this process appended all their bytes, of the newest few."""

    MOST = 1000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, hashlib._Hash]] = {}

    def take(self, upload_id: str, offset: int) -> hashlib._Hash | None:
        """The digest of the first `offset` bytes, forgotten here; None where it is not known."""
        with self._lock:
            known, digest = self._known.pop(upload_id, (0, hashlib.sha256()))
        return digest if known == offset else None

    def keep(self, upload_id: str, offset: int, digest: hashlib._Hash) -> None:
        with self._lock:
            self._known[upload_id] = offset, digest
            while len(self._known) > self.MOST:
                del self._known[next(iter(self._known))]


class BlobStore(ContentStore):
    """Full disk, quota, I/O errors raise StorageError."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._uploads = settings.home / "uploads"
        self._max_bytes = settings.max_upload_bytes
        self._digests = _RunningDigests()
        with disk.storage_errors(f"cannot create {self._uploads}"):
            self._uploads.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, size: int, sha256: str | None = None, owner: str | None = None) -> Upload:
        """Start an upload of a user. UsageError above `max_upload_bytes`, StorageError where there
        is no room for it."""
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
            # The promise last: an upload exists when it does.
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
        """Raises NotFoundError."""
        if not _ID.fullmatch(upload_id):
            raise no_upload(upload_id)
        try:
            promise = json.loads(self._file(upload_id, ".json").read_text())
            offset = self._file(upload_id, ".part").stat().st_size
        except FileNotFoundError:
            raise no_upload(upload_id) from None
        return Upload(upload_id, promise["size"], offset, promise["sha256"], promise.get("owner"))

    def has_upload(self, upload_id: str) -> bool:
        """Return whether an upload has begun and is not complete."""
        return _ID.fullmatch(upload_id) is not None and self._file(upload_id, ".json").exists()

    def abandon(self, upload_id: str) -> None:
        """Forget an upload."""
        with disk.storage_errors(f"cannot remove upload {upload_id}"):
            self._remove_upload(upload_id)

    def append(self, upload_id: str, offset: int, chunk: bytes) -> Upload:
        """Durable on return. ConflictError where `offset` is not the upload's, UsageError past the
        promised size."""
        with self._locked(upload_id) as (upload, descriptor):
            if offset != upload.offset:
                raise ConflictError(
                    f"upload {upload_id} is at offset {upload.offset}, the chunk at {offset}",
                    hint="ask for the offset and go on from there",
                )
            end = offset + len(chunk)
            digest = self._digests.take(upload_id, offset)
            if end > upload.size:
                raise UsageError(f"upload {upload_id} promised {upload.size} bytes, this is {end}")
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
        """The sha256 of the complete blob; ConflictError where bytes miss or the digest differs
        (the upload is gone then, for its bytes are of no use). `claim` notes whose the bytes with
        this digest are; where it raises, the upload is as it was, and may be finished again."""
        with self._locked(upload_id) as (upload, _):
            if upload.offset != upload.size:
                raise ConflictError(
                    f"upload {upload_id} has {upload.offset} of {upload.size} bytes",
                    hint="send the rest first",
                )
            known = self._digests.take(upload_id, upload.offset)
            part = self._file(upload_id, ".part")
            digest = digest_of_file(part) if known is None else known.hexdigest()
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
        """Remove uploads, drafts, and blobs that are not needed, that nobody wrote or renewed for
        so long; return bytes."""
        limit = time.time() - older_than_s
        removed = 0
        for path in self._uploads.iterdir():
            if path.suffix == ".json" and path.with_suffix(".part").exists():
                continue  # its part says when the upload was last written
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
        """The upload, and its part open for appending; two requests at once take turns."""
        self.upload(upload_id)
        with disk.storage_errors(f"cannot go on with upload {upload_id}"):
            descriptor = os.open(self._file(upload_id, ".part"), os.O_WRONLY | os.O_APPEND)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield self.upload(upload_id), descriptor
            finally:
                os.close(descriptor)


def no_upload(upload_id: str) -> NotFoundError:
    """The error for an upload that there is not."""
    return NotFoundError(
        f"no upload {upload_id!r}", hint="it ended or was idle for too long: start again"
    )
