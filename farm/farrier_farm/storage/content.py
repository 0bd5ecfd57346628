"""Immutable files named by the sha256 of their bytes; `blobs.BlobStore` adds uploads."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from farrier.errors import ConflictError, NotFoundError, StorageError
from farrier_farm import disk
from farrier_farm.settings import Settings

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ASIDE = re.compile(r"([0-9a-f]{64})(\.[0-9a-f]{16})?")  # older versions put one aside at most
_LOOKS = 10  # for a blob on its way aside and back
_PIECE = 1 << 20


class ContentStore:
    """A path is `<home>/blobs/<2 hex>/<64 hex>`, a draft `<home>/blobs/drafts/…`. What is
    acknowledged is on the disk (fsync of file and directory). Full disk, quota, I/O errors raise
    StorageError, and leave no draft behind."""

    def __init__(self, settings: Settings) -> None:
        self.root = settings.home / "blobs"
        self._quota = settings.blob_quota_bytes
        self._min_free = settings.min_free_bytes
        with disk.storage_errors(f"cannot create {self.drafts}"):
            self.drafts.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def drafts(self) -> Path:
        return self.root / "drafts"

    def put(self, data: bytes) -> str:
        """Return the sha256 hex digest."""
        return self.put_stream([data])

    def put_file(self, path: Path, *, expected: str) -> str:
        """As `put_stream`, for the content of a file."""
        with path.open("rb") as file:
            return self.put_stream(iter(lambda: file.read(1 << 20), b""), expected=expected)

    def put_stream(self, chunks: Iterable[bytes], *, expected: str | None = None) -> str:
        """Raises ConflictError where the digest differs."""
        self.check_room(0)
        hasher = hashlib.sha256()
        with self._draft() as (draft, descriptor), disk.storage_errors("cannot store the blob"):
            for chunk in chunks:
                hasher.update(chunk)
                disk.write_all(descriptor, chunk)
            self.check_room(0)
            check_digest(hasher.hexdigest(), expected)
            os.fsync(descriptor)
            return self._publish(draft, hasher.hexdigest())

    def put_written(self, write_to: Callable[[IO[bytes]], None]) -> str:
        """As `put`, for what is written to a file, which never is in memory as a whole."""
        self.check_room(0)
        with self._draft() as (draft, descriptor), disk.storage_errors("cannot store the blob"):
            with open(descriptor, "wb", closefd=False) as file:
                write_to(file)
            self.check_room(0)
            return self.adopt(draft, None)

    def adopt(self, draft: Path, expected: str | None, digest: str | None = None) -> str:
        """Make a complete file on the same disk a blob; the file is gone then. Its digest is
        computed where the caller has not done so. ConflictError where it is not the expected."""
        with disk.storage_errors("cannot store the blob"), draft.open("rb") as file:
            digest = digest or hashlib.file_digest(file, "sha256").hexdigest()
            check_digest(digest, expected)
            os.fsync(file.fileno())
            return self._publish(draft, digest)

    def verified(self, sha256: str) -> Path:
        """The file, once its bytes have been read and are those that the name says. Raises
        NotFoundError, StorageError for damaged bytes."""
        path = self.path(sha256)
        with disk.storage_errors(f"cannot read blob {sha256}"), path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise StorageError(f"blob {sha256} is damaged on the disk", hint="upload it again")
        return path

    def path(self, sha256: str) -> Path:
        """The file, for streaming. Raises NotFoundError (also for what is no sha256)."""
        for _ in range(_LOOKS if _DIGEST.fullmatch(sha256) else 0):
            if self.has(sha256):
                return self._path(sha256)
            for aside in self.drafts.glob(f"{sha256}*"):  # whoever needs it may read it there
                return aside
        raise NotFoundError(f"no blob {sha256!r}")

    def has(self, sha256: str) -> bool:
        return _DIGEST.fullmatch(sha256) is not None and self._path(sha256).is_file()

    def renew(self, sha256: str) -> bool:
        """As `has`; a sweep spares what is there as if it had been stored now."""
        if not self.has(sha256):
            return False
        with disk.storage_errors(f"cannot renew blob {sha256}"):
            try:
                os.utime(self._path(sha256))
            except FileNotFoundError:  # swept meanwhile
                return False
        return True

    def size(self, sha256: str) -> int:
        """Bytes. Raises NotFoundError."""
        path = self.path(sha256)
        with disk.storage_errors(f"cannot look at blob {sha256}"):
            try:
                return path.stat().st_size
            except FileNotFoundError:  # swept meanwhile
                raise NotFoundError(f"no blob {sha256!r}") from None

    def remove(self, sha256: str, is_needed: Callable[[str], bool]) -> bool:
        """Remove a blob, unless it is needed: whoever made it so before storing it keeps it."""
        return self.has(sha256) and self._removed(self._path(sha256), is_needed, math.inf)

    def check_room(self, size: int) -> None:
        """Raises StorageError where `size` more bytes would exceed the quota or fill the disk."""
        with disk.storage_errors(f"cannot look at {self.root}"):
            free = shutil.disk_usage(self.root).free
        if free - size < self._min_free:
            raise StorageError(
                f"{free} bytes are free in {self.root}, and {self._min_free} must stay so",
                hint="free some space, or lower FARRIER_MIN_FREE_BYTES",
            )
        if self._quota and self.used() + size > self._quota:
            raise StorageError(
                f"the blob store would exceed its quota of {self._quota} bytes",
                hint="raise FARRIER_BLOB_QUOTA_BYTES, or lower FARRIER_BLOB_AGE_S",
            )

    def used(self) -> int:
        """Bytes of all blobs and drafts."""
        return sum(size for _, size, _ in self._files())

    def sweep(self, is_needed: Callable[[str], bool], older_than_s: float) -> int:
        """Remove drafts, and blobs that are not needed, that nobody wrote or renewed for so long;
        return bytes."""
        limit = time.time() - older_than_s
        removed = 0
        for path, size, modified in self._files():
            if modified >= limit:
                continue
            if path.parent == self.drafts and not _ASIDE.fullmatch(path.name):
                path.unlink(missing_ok=True)
            elif not self._removed(path, is_needed, limit):
                continue
            removed += size
        return removed

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """A context in which no process removes a blob; removals are left to a later sweep."""
        with self._lock(fcntl.LOCK_EX):
            yield

    def all(self) -> Iterator[tuple[str, Path]]:
        """Iterate over all blobs and their files, each once, including blobs that are put aside."""
        seen = set()
        for path, _, _ in self._files():
            found = _ASIDE.fullmatch(path.name)
            if found is not None and found[1] not in seen:
                seen.add(found[1])
                yield found[1], path

    @contextlib.contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """Lock the store against removals, or, shared, a removal against that. Raises
        BlockingIOError where it would have to wait, if `kind` says so."""
        with disk.storage_errors(f"cannot look at {self.root}"):
            lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, kind)
            yield
        finally:
            os.close(lock)

    def discard(self, sha256: str, is_needed: Callable[[str], bool], older_than_s: float) -> None:
        """Remove one blob as `sweep` does: where it is not needed, and was not written or renewed
        for so long."""
        if self.has(sha256):
            path, limit = self._path(sha256), time.time() - older_than_s
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    self._removed(path, is_needed, limit)

    def _removed(self, path: Path, is_needed: Callable[[str], bool], limit: float) -> bool:
        """Remove a blob, unless it is needed, or renewed since `limit`. It is put aside first, and
        looked at once more: whoever renewed it before finds it needed or young here, whoever comes
        later stores it anew. Each removal has a place of its own aside, so none removes what
        another one puts back. One that is killed in between leaves it aside, for the next sweep."""
        found = _ASIDE.fullmatch(path.name)
        assert found is not None
        sha256 = found[1]
        try:
            with self._lock(fcntl.LOCK_SH | fcntl.LOCK_NB):
                return self._removed_of(sha256, path, is_needed, limit)
        except BlockingIOError:  # a backup is being made
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
                    disk.publish(aside, self._path(sha256))
                    return False
                aside.unlink()
            except FileNotFoundError:  # another one was quicker
                return False
            return True

    def _path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def _publish(self, draft: Path, digest: str) -> str:
        # A whole blob stays the file that it is: a process within walls may have been given that.
        if self._is_whole(digest) and self.renew(digest):
            draft.unlink()
            disk.sync_name(self._path(digest))  # whoever stores it at the same time may not have
        else:
            disk.publish(draft, self._path(digest))
        return digest

    def _is_whole(self, digest: str) -> bool:
        try:
            self.verified(digest)
        except (NotFoundError, StorageError):
            return False
        return True

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """Every file with its size and time of modification; one that vanishes is left out."""
        for path in self.root.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                yield path, stat.st_size, stat.st_mtime

    @contextlib.contextmanager
    def _draft(self) -> Iterator[tuple[Path, int]]:
        path = self.drafts / secrets.token_hex(16)
        with disk.storage_errors("cannot store the blob"):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            yield path, descriptor
        finally:
            os.close(descriptor)
            path.unlink(missing_ok=True)  # gone already where it was published


def check_digest(found: str, expected: str | None) -> None:
    """Raises ConflictError where they differ."""
    if expected is not None and found != expected:
        raise ConflictError(
            f"the bytes have sha256 {found}, not {expected}", hint="send the file again"
        )


def digest_of(path: Path) -> str:
    """The sha256 of a file. Raises StorageError."""
    with disk.storage_errors(f"cannot read {path}"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
