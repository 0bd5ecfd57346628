"""The blobs on a device's disk, each in a file that is named by the sha256 of its bytes.

The store is a bounded cache that evicts the least recently used blob. While a blob is being
fetched, its bytes are in a `.part` file, which survives a broken connection; the file gets its
final name once the digest of its bytes is right.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from farrier_device.storage.content_store import (
    BlobMismatchError,
    BlobMissingError,
    ContentStore,
)
from farrier_device.storage.file_store import Layout
from farrier_device.storage.limits import LeastRecentlyUsed, NoSpaceError, StoredFile

__all__ = ["BlobMismatchError", "BlobMissingError", "BlobStore", "NoSpaceError"]

_LAYOUT = Layout(drafts=r"[0-9a-f]{64}\.part|[0-9a-f]{32}")


class BlobStore(ContentStore):
    """The blobs under `root`, for the threads of one process. Blobs that are not held (`holding`)
    take at most `max_bytes`; the least recently used are evicted. Blobs are not checked for damage
    when they are read, because runners check the bytes that they run."""

    def __init__(self, root: Path, max_bytes: int, *, durable: bool = True) -> None:
        super().__init__(root, _LAYOUT, LeastRecentlyUsed(max_bytes), durable=durable)
        self._held: list[frozenset[str]] = []
        self._lock = threading.RLock()
        root.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Return the path of a blob's file, and mark the blob as used. Raises BlobMissingError."""
        if not self.touch(sha256):
            raise self._missing(sha256)
        return self._path(sha256)

    def put(self, data: bytes | memoryview) -> str:
        """Store the bytes and return their sha256 hex digest. Raises NoSpaceError."""
        with self._lock:
            sha256 = super().put(data)
            self.evict({sha256})
        return sha256

    def receive(self, sha256: str, chunks_from: Callable[[int], Iterable[bytes]]) -> None:
        """Fetch a blob, unless it is stored already: `chunks_from(offset)` must yield the blob's
        bytes from that offset on.

        Exceptions of `chunks_from` propagate, and a later call continues at the same offset. Raises
        BlobMismatchError and NoSpaceError, after which the next call starts from the beginning.
        """
        if not self._layout.is_name(sha256):
            raise self._missing(sha256)
        with self._lock:
            if self.has(sha256):
                return
            part = self.root / f"{sha256}.part"
            try:
                self._append(part, chunks_from)
                self.adopt(part, sha256)
            except (BlobMismatchError, NoSpaceError):
                part.unlink(missing_ok=True)
                raise
            self.evict({sha256})

    @contextlib.contextmanager
    def holding(self, names: frozenset[str]) -> Iterator[None]:
        """Return a context during which none of these blobs is evicted."""
        with self._lock:
            self._held.append(names)
        try:
            yield
        finally:
            with self._lock:
                self._held.remove(names)

    def evict(self, kept: Collection[str] = ()) -> None:
        super().evict(frozenset(kept).union(*self._held))

    def _append(self, part: Path, chunks_from: Callable[[int], Iterable[bytes]]) -> None:
        with self._errors("cannot store the blob"), part.open("ab") as file:
            for chunk in chunks_from(file.tell()):
                self._limits.check_file(file.tell() + len(chunk))
                file.write(chunk)

    def _evictable(self) -> Iterator[StoredFile]:
        return itertools.chain(self.files(), self.unfinished())

    def _is_whole(self, sha256: str) -> bool:
        return self.has(sha256)
