"""The limits of a store: a policy that the one who opens the store hands in."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farrier_device.storage.file_store import FileStore


class NoSpaceError(Exception):
    """The disk is full, or a file is larger than its store may grow."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store, or a draft of one; `used` is the last use, in seconds since the epoch."""

    name: str
    path: Path
    nbytes: int
    used: float


class Limits:
    """No limits; a subclass has some."""

    def check_file(self, nbytes: int) -> None:
        """Raise an error for a file that is too large for the store, whatever else it holds."""

    def check_room(self, store: FileStore, nbytes: int) -> None:
        """Raise an error if the store has no room for `nbytes` more."""

    def surplus(self, files: Iterable[StoredFile], kept: Collection[str]) -> list[StoredFile]:
        """Return the files to remove, so that the others are within the limits. Files whose name is
        in `kept` stay in any case."""
        return []


@dataclasses.dataclass(frozen=True)
class LeastRecentlyUsed(Limits):
    """All files take `max_bytes` together at most: the least recently used go first."""

    max_bytes: int

    def check_file(self, nbytes: int) -> None:
        if nbytes > self.max_bytes:
            raise NoSpaceError(
                f"{nbytes} bytes are more than the {self.max_bytes} bytes that the store may hold"
            )

    def surplus(self, files: Iterable[StoredFile], kept: Collection[str]) -> list[StoredFile]:
        oldest_first = sorted(files, key=lambda file: file.used)
        total = sum(file.nbytes for file in oldest_first)
        surplus = []
        for file in oldest_first:
            if total <= self.max_bytes:
                break
            if file.name not in kept:
                surplus.append(file)
                total -= file.nbytes
        return surplus
