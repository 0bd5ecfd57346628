"""Blobs on this machine's disk, each in a file that is named by the sha256 of its bytes.

A bounded cache: what was used longest ago goes first. What is not yet here is fetched into a
`.part` file that survives a broken connection and gets its name only when its bytes prove right.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_NAME = re.compile(r"[0-9a-f]{64}")
_READ_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BlobMissingError(LookupError):
    """There is no blob of this digest here."""


class BlobMismatchError(Exception):
    """The bytes that arrived are not those that the digest names."""


class NoSpaceError(Exception):
    """The disk is full, or the blob is larger than the store may grow."""


class BlobStore:
    """The blobs under `root`, `max_bytes` of them at most (but for those that are held). A store
    that `lasts` holds whole blobs after a power cut, too, for which each waits for the disk."""

    def __init__(self, root: Path, max_bytes: int, *, lasts: bool = True) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._lasts = lasts
        self._held: list[frozenset[str]] = []
        self._lock = threading.RLock()
        root.mkdir(parents=True, exist_ok=True)

    def has(self, sha256: str) -> bool:
        return (self._root / _checked(sha256)).exists()

    def path(self, sha256: str) -> Path:
        """The blob's file. Raises BlobMissingError."""
        path = self._root / _checked(sha256)
        try:
            os.utime(path)  # used now: it goes last
        except FileNotFoundError:
            raise BlobMissingError(f"no blob {sha256}") from None
        return path

    def put(self, data: bytes | memoryview) -> str:
        """Store the bytes and return their sha256 hex digest. Raises NoSpaceError."""
        sha256 = hashlib.sha256(data).hexdigest()
        with self._lock:  # the part may be one that another thread is writing
            if not self.has(sha256):
                self._part(sha256).unlink(missing_ok=True)
                self._take(sha256, lambda offset: [data[offset:]], arrives=False)
        return sha256

    def receive(self, sha256: str, chunks_from: Callable[[int], Iterable[bytes]]) -> None:
        """Fetch a blob, unless it is here: `chunks_from(offset)` yields its bytes from there on.

        What it raises passes through, and a later call goes on where this one stopped. Raises
        BlobMismatchError and NoSpaceError, after either of which the next call starts anew.
        """
        self._take(sha256, chunks_from, arrives=True)

    def _take(
        self,
        sha256: str,
        chunks_from: Callable[[int], Iterable[bytes | memoryview]],
        *,
        arrives: bool,
    ) -> None:
        """As `receive`; bytes that do not arrive from elsewhere are those that were hashed."""
        with self._lock:
            if self.has(sha256):
                return
            part = self._part(sha256)
            try:
                self._append(part, chunks_from)
                if arrives and _digest(part) != sha256:
                    raise BlobMismatchError(f"blob {sha256} arrived with other bytes than it names")
                part.rename(self._root / sha256)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                part.unlink(missing_ok=True)
                raise NoSpaceError(f"no space for blob {sha256} in {self._root}") from None
            except (BlobMismatchError, NoSpaceError):
                part.unlink(missing_ok=True)
                raise
            self._evict(keep=sha256)

    @contextlib.contextmanager
    def holding(self, names: frozenset[str]) -> Iterator[None]:
        """Within, none of these blobs is evicted."""
        with self._lock:
            self._held.append(names)
        try:
            yield
        finally:
            with self._lock:
                self._held.remove(names)

    def _part(self, sha256: str) -> Path:
        return self._root / f"{_checked(sha256)}.part"

    def _append(
        self, part: Path, chunks_from: Callable[[int], Iterable[bytes | memoryview]]
    ) -> None:
        with part.open("ab") as file:
            for chunk in chunks_from(file.tell()):
                if file.tell() + len(chunk) > self._max_bytes:
                    raise NoSpaceError(
                        f"blob {part.stem} is larger than the store's {self._max_bytes} bytes"
                    )
                file.write(chunk)
            if self._lasts:
                file.flush()
                os.fsync(file.fileno())

    def _evict(self, keep: str) -> None:
        kept = frozenset({keep}).union(*self._held)
        entries = [(entry, entry.stat()) for entry in os.scandir(self._root)]
        total = sum(stat.st_size for _, stat in entries)
        for entry, stat in sorted(entries, key=lambda pair: pair[1].st_mtime_ns):
            if total <= self._max_bytes:
                return
            if entry.name not in kept:
                os.unlink(entry.path)
                total -= stat.st_size


def _checked(sha256: str) -> str:
    """A digest becomes a file name only if it is one."""
    if not _NAME.fullmatch(sha256):
        raise BlobMissingError(f"{sha256[:80]!r} is no sha256 digest")
    return sha256


def _digest(path: Path) -> str:
    state = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            state.update(chunk)
    return state.hexdigest()
