"""The farm's blobs, which are removed when nothing refers to them. `blobs.BlobStore` adds
uploads."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from farrier.errors import ConflictError, NotFoundError, StorageError
from farrier_device.storage import content_store
from farrier_device.storage.file_store import FileStore, Layout
from farrier_device.storage.limits import Limits, StoredFile
from farrier_farm import disk
from farrier_farm.settings import Settings

# A blob that is about to be removed, in the folder of drafts. Older versions had at most one file
# for each blob.
_ASIDE = re.compile(r"([0-9a-f]{64})(\.[0-9a-f]{16})?")
_LAYOUT = Layout(drafts=rf"(?!{_ASIDE.pattern}$).*", fan_out=2, draft_folder="drafts")
# The number of attempts to read a blob that another process may rename for its removal and restore
# meanwhile.
_LOOKS = 10


@dataclasses.dataclass(frozen=True)
class Quota(Limits):
    """The limits of the blob store: blobs take at most `max_bytes` (0 for no limit), and at least
    `min_free_bytes` of the disk stay free. No blob is removed to make room."""

    max_bytes: int
    min_free_bytes: int

    def check_room(self, store: FileStore, nbytes: int) -> None:
        """Raise StorageError if `nbytes` more bytes would exceed the quota or fill the disk."""
        with disk.storage_errors(f"cannot access {store.root}"):
            free = shutil.disk_usage(store.root).free
        if free - nbytes < self.min_free_bytes:
            raise StorageError(
                f"only {free} bytes are free in {store.root}, and {self.min_free_bytes} must "
                "stay free",
                hint="free some space, or lower FARRIER_MIN_FREE_BYTES",
            )
        if self.max_bytes and store.used() + nbytes > self.max_bytes:
            raise StorageError(
                f"the blob store would exceed its quota of {self.max_bytes} bytes",
                hint="raise FARRIER_BLOB_QUOTA_BYTES, or lower FARRIER_BLOB_AGE_S",
            )


class ContentStore(content_store.ContentStore):
    """The blob files of a farm. The path of a blob is `<home>/blobs/<2 hex>/<64 hex>`, that of a
    draft (an incomplete file) `<home>/blobs/drafts/…`. An acknowledged blob is on disk (fsync of
    file and directory). Methods raise StorageError for a full disk or quota or an I/O error,
    ConflictError for bytes with another SHA-256 than expected, and NotFoundError for a missing
    blob."""

    def __init__(self, settings: Settings) -> None:
        quota = Quota(settings.blob_quota_bytes, settings.min_free_bytes)
        super().__init__(settings.home / "blobs", _LAYOUT, quota)
        with disk.storage_errors(f"cannot create {self.drafts}"):
            self.drafts.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Return the path of a blob's file. Raises NotFoundError, also for a text that is not a
        valid SHA-256."""
        for _ in range(_LOOKS if _LAYOUT.is_name(sha256) else 0):
            if self.has(sha256):
                return self._path(sha256)
            # A blob that was renamed for its removal can still be read under its temporary name.
            for aside in self.drafts.glob(f"{sha256}*"):
                return aside
        raise self._missing(sha256)

    def renew(self, sha256: str) -> bool:
        """Set the time of a blob to now, so that a sweep keeps it as long as a new blob. Return
        False if the blob is not stored."""
        with disk.storage_errors(f"cannot renew blob {sha256}"):
            return self.touch(sha256)

    def size(self, sha256: str) -> int:
        """Return the size of a blob in bytes. Raises NotFoundError."""
        path = self.path(sha256)
        with disk.storage_errors(f"cannot access blob {sha256}"):
            try:
                return path.stat().st_size
            except FileNotFoundError:  # The blob was removed meanwhile.
                raise self._missing(sha256) from None

    def used(self) -> int:
        return super().used() + sum(file.nbytes for file in self._aside())

    def remove(self, sha256: str, is_needed: Callable[[str], bool]) -> bool:
        """Remove a blob, unless `is_needed` returns true for its digest. Return whether the blob
        was removed. A process that marks a blob as needed before it stores the blob cannot lose the
        blob to a concurrent removal."""
        return self.has(sha256) and self._removed(self._path(sha256), is_needed, math.inf)

    def discard(self, sha256: str, is_needed: Callable[[str], bool], older_than_s: float) -> None:
        """Remove a blob for which `is_needed` is false, if it was not written or renewed for
        `older_than_s`."""
        if self.has(sha256):
            path, limit = self._path(sha256), time.time() - older_than_s
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    self._removed(path, is_needed, limit)

    def sweep(self, is_needed: Callable[[str], bool], older_than_s: float) -> int:
        """Remove drafts, and blobs for which `is_needed` is false, if they were not written or
        renewed for `older_than_s`; return the number of bytes removed."""
        limit = time.time() - older_than_s
        removed = self.remove_unfinished(limit)
        for file in [*self.files(), *self._aside()]:
            if file.used < limit and self._removed(file.path, is_needed, limit):
                removed += file.nbytes
        return removed

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Return a context in which no process removes a blob. Blobs that become unnecessary
        meanwhile are removed by a later sweep."""
        with self._lock(fcntl.LOCK_EX):
            yield

    def all(self) -> Iterator[tuple[str, Path]]:
        """Yield the SHA-256 and the file of each blob once, including blobs whose removal has
        begun."""
        seen = set()
        for file in [*self.files(), *self._aside()]:
            if file.name not in seen:
                seen.add(file.name)
                yield file.name, file.path

    def _aside(self) -> Iterator[StoredFile]:
        """Yield the blobs whose removal has begun, that is, whose files were renamed."""
        for path in self.drafts.iterdir():
            aside = _ASIDE.fullmatch(path.name)
            if aside is not None:
                yield from self._stored(aside[1], path)

    @contextlib.contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """Return a context that locks the store against removals (an exclusive lock) or, with a
        shared lock, permits a removal. Raises BlockingIOError if another process holds the lock and
        `kind` forbids to wait."""
        with disk.storage_errors(f"cannot access {self.root}"):
            lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, kind)
            yield
        finally:
            os.close(lock)

    def _removed(self, path: Path, is_needed: Callable[[str], bool], limit: float) -> bool:
        """Remove a blob, unless `is_needed` returns true for it or it was renewed since `limit`;
        return whether it was removed. The file is first renamed, and then checked once more: an
        earlier renewal is visible then, and a later one stores the blob again. Each removal uses
        its own temporary name, so that concurrent removals do not interfere. If a removal is
        killed, the next sweep completes it."""
        name = _ASIDE.fullmatch(path.name)
        assert name is not None
        try:
            with self._lock(fcntl.LOCK_SH | fcntl.LOCK_NB):
                return self._removed_of(name[1], path, is_needed, limit)
        except BlockingIOError:  # A backup is in progress.
            return False

    def _removed_of(
        self, sha256: str, path: Path, is_needed: Callable[[str], bool], limit: float
    ) -> bool:
        aside = self.drafts / f"{sha256}.{secrets.token_hex(8)}"
        with disk.storage_errors(f"cannot remove blob {sha256}"):
            try:
                if path.parent != self.drafts and is_needed(sha256):
                    return False
                path.replace(aside)
                if aside.stat().st_mtime >= limit or is_needed(sha256):
                    self._publish(aside, sha256)
                    return False
                aside.unlink()
            except FileNotFoundError:  # Another process has removed it meanwhile.
                return False
            return True

    def _errors(self, action: str) -> contextlib.AbstractContextManager[None]:
        return disk.storage_errors(action)

    def _missing(self, sha256: str) -> Exception:
        return NotFoundError(f"there is no blob {sha256!r}")

    def _mismatch(self, digest: str, expected: str) -> Exception:
        return ConflictError(
            f"the bytes have sha256 {digest}, not {expected}", hint="send the file again"
        )

    def _damaged(self, sha256: str) -> Exception:
        return StorageError(f"blob {sha256} is damaged on the disk", hint="upload it again")
