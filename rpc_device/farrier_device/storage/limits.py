"""The limits of a file store: a policy object that the code which opens the store passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farrier_device.storage.file_store import FileStore


class NoSpaceError(Exception):
    """The disk is full, or a file is larger than the limit of its store."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredFile:
    """A file or draft of a store; `used` is the time of its last use, in seconds since the
    epoch."""

    name: str
    path: Path
    nbytes: int
    used: float


class Limits:
    """The base class of policies, which imposes no limits; subclasses add some."""

    def check_file(self, nbytes: int) -> None:
        """Raise an error if a file of `nbytes` is too large for the store, even if the store is
        empty."""

    def check_room(self, store: FileStore, nbytes: int) -> None:
        """Raise an error if the store has no room for `nbytes` more."""

    def surplus(self, files: Iterable[StoredFile], kept: Collection[str]) -> list[StoredFile]:
        """Return the files to remove so that the remaining ones are within the limits. A file whose
        name is in `kept` is never returned."""
        return []


@dataclasses.dataclass(frozen=True)
class LeastRecentlyUsed(Limits):
    """A limit of `max_bytes` for the total size of all files: the least recently used files are
    removed first."""

    max_bytes: int

    def check_file(self, nbytes: int) -> None:
        if nbytes > self.max_bytes:
            raise NoSpaceError(
                f"{nbytes} bytes are more than the {self.max_bytes} bytes that the store may use"
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
