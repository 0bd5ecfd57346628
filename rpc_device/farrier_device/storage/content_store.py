"""Immutable files that are named by the sha256 of their bytes, so that damage can be detected."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from farrier_device.storage import durable
from farrier_device.storage.digest import digest_of, digest_of_file, is_digest
from farrier_device.storage.file_store import FileStore
from farrier_device.storage.limits import NoSpaceError

_PIECE = 1 << 20  # bytes


class BlobMissingError(LookupError):
    """The store contains no blob with this digest."""


class BlobMismatchError(Exception):
    """The digest of received bytes is not the expected one."""


class BlobDamagedError(Exception):
    """The digest of a blob's bytes on the disk differs from the blob's name."""


class ContentStore(FileStore):
    """A store of blobs, files named by their digest. A failed operation leaves no temporary file
    behind. Subclasses adapt the error messages to their users."""

    def path(self, sha256: str) -> Path:
        """Return the path of a blob's file. Raises BlobMissingError, also if the name is not a
        digest."""
        if not self.has(sha256):
            raise self._missing(sha256)
        return self._path(sha256)

    def verified(self, sha256: str) -> Path:
        """Return the path of a blob's file, after comparing the digest of its bytes with its name.
        Raises BlobMissingError, BlobDamagedError."""
        path = self.path(sha256)
        with self._errors(f"cannot read blob {sha256}"):
            digest = digest_of_file(path)
        if digest != sha256:
            raise self._damaged(sha256)
        return path

    def put(self, data: bytes | memoryview) -> str:
        """Store bytes and return their digest. Raises NoSpaceError."""
        sha256 = digest_of(data)
        with self._errors("cannot store the blob"):
            if self._is_settled(sha256):
                return sha256
        return self.put_stream([data])

    def put_file(self, path: Path, *, expected: str) -> str:
        """Store the content of a file as a blob and return its digest. Raises the errors of
        `put_stream`."""
        with path.open("rb") as file:
            return self.put_stream(iter(lambda: file.read(_PIECE), b""), expected=expected)

    def put_stream(
        self, chunks: Iterable[bytes | memoryview], *, expected: str | None = None
    ) -> str:
        """Store a sequence of chunks as one blob and return its digest. Raises NoSpaceError, and
        BlobMismatchError if the digest is not the expected one."""
        hasher = hashlib.sha256()
        with self._draft() as (draft, file):
            for chunk in chunks:
                hasher.update(chunk)
                self._limits.check_file(file.tell() + len(chunk))
                file.write(chunk)
            file.flush()
            self.check_room(0)
            return self.adopt(draft, expected, hasher.hexdigest())

    def adopt(self, draft: Path, expected: str | None = None, digest: str | None = None) -> str:
        """Make a complete file on the same disk a blob, by renaming it, and return its digest. If
        the caller passes the `digest`, it is not computed. Raises BlobMismatchError if the digest
        differs from `expected`."""
        with self._errors("cannot store the blob"):
            with draft.open("rb") as file:
                digest = digest or digest_of_file(file)
                self.check_digest(digest, expected)
                if self._durable:
                    os.fsync(file.fileno())
            if self._is_settled(digest):
                draft.unlink()
            else:
                self._publish(draft, digest)
        return digest

    def check_digest(self, digest: str, expected: str | None) -> None:
        """Raise BlobMismatchError unless `digest` equals the expected digest, if there is one."""
        if expected is not None and digest != expected:
            raise self._mismatch(digest, expected)

    def _is_settled(self, sha256: str) -> bool:
        """Return whether an undamaged and durable blob is stored, so that it need not be stored
        again. The existing file is kept, because a sandboxed process may have been granted access
        to it. The call counts as a use of the blob."""
        if not self._is_whole(sha256) or not self.touch(sha256):
            return False
        if self._durable:  # Whoever stores it at the same time may not have synced its name yet.
            durable.sync_name(self._path(sha256))
        return True

    def _is_whole(self, sha256: str) -> bool:
        """Return whether a blob is stored and undamaged."""
        with contextlib.suppress(OSError):
            return self.has(sha256) and digest_of_file(self._path(sha256)) == sha256
        return False

    @contextlib.contextmanager
    def _draft(self) -> Iterator[tuple[Path, IO[bytes]]]:
        """Return a context with a new temporary file, open for writing. The file is removed at the
        end unless it has been renamed to a blob."""
        self.check_room(0)
        path = self.drafts / os.urandom(16).hex()
        try:
            with (
                self._errors("cannot store the blob"),
                open(
                    os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
                ) as file,
            ):
                yield path, file
        finally:
            path.unlink(missing_ok=True)

    def _errors(self, action: str) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the OSError of a full disk becomes a NoSpaceError."""
        return _full_disk(f"not enough disk space for blobs in {self.root}")

    def _missing(self, sha256: str) -> Exception:
        if not is_digest(sha256):
            return BlobMissingError(f"{sha256[:80]!r} is not a sha256 digest")
        return BlobMissingError(f"there is no blob {sha256}")

    def _mismatch(self, digest: str, expected: str) -> Exception:
        return BlobMismatchError(
            f"the content that arrived for the blob {expected} does not have this hash"
        )

    def _damaged(self, sha256: str) -> Exception:
        return BlobDamagedError(f"the blob {sha256} is damaged on disk")


@contextlib.contextmanager
def _full_disk(message: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not durable.is_full(error):
            raise
        raise NoSpaceError(message) from None
