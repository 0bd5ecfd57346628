"""Immutable named files, in a folder that several processes may share.

A file is written as a draft (under a temporary name), synced, and renamed atomically, so that a
process that sees the file's name sees the complete file. `content_store.ContentStore` names files
by their content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from farrier_device.storage import durable
from farrier_device.storage.limits import Limits, StoredFile


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The paths of files and drafts below a store's root. Files with other names do not belong to
    the store.

    `names` and `drafts` are the patterns of their names. A file is in a subfolder whose name is the
    first `fan_out` characters of the file's name, and ends with `suffix`; drafts are in
    `draft_folder`.
    """

    names: str = r"[0-9a-f]{64}"
    drafts: str = r"[0-9a-f]{32}"
    fan_out: int = 0
    suffix: str = ""
    draft_folder: str = ""

    def path(self, name: str) -> Path:
        """Return the path of the store's file with this name."""
        return Path(name[: self.fan_out], f"{name}{self.suffix}")

    def is_name(self, name: str) -> bool:
        """Return whether a file of the store may have this name; only such a name may become part
        of a path."""
        return re.fullmatch(self.names, name) is not None

    def is_draft(self, name: str) -> bool:
        """Return whether a draft may have this name."""
        return re.fullmatch(self.drafts, name) is not None


class FileStore:
    """The files under `root`. With `durable`, a file is on the disk when the call that stores it
    returns. `limits` determines which files are accepted and which are removed."""

    def __init__(
        self, root: Path, layout: Layout, limits: Limits | None = None, *, durable: bool = True
    ) -> None:
        self.root = root
        self.drafts = root / layout.draft_folder
        self._layout = layout
        self._limits = limits or Limits()
        self._durable = durable

    def has(self, name: str) -> bool:
        """Return whether the store contains a file with this name."""
        return self._layout.is_name(name) and self._path(name).is_file()

    def touch(self, name: str) -> bool:
        """Record a use of a file, so that it is evicted last; return whether the store contains the
        file. Raises OSError."""
        if not self._layout.is_name(name):
            return False
        try:
            os.utime(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def files(self) -> Iterator[StoredFile]:
        """Iterate over the files that are complete."""
        for folder in self.root.glob("*") if self._layout.fan_out else [self.root]:
            for path in _paths(folder):
                name = path.name.removesuffix(self._layout.suffix)
                if self._layout.is_name(name) and self._path(name) == path:
                    yield from self._stored(name, path)

    def unfinished(self) -> Iterator[StoredFile]:
        """Iterate over the drafts: files that are being written, and the leftovers of processes
        that died."""
        for path in _paths(self.drafts):
            if self._layout.is_draft(path.name):
                yield from self._stored(path.name, path)

    def used(self) -> int:
        """The size in bytes of all files and drafts."""
        return sum(file.nbytes for file in [*self.files(), *self.unfinished()])

    def check_room(self, nbytes: int) -> None:
        """Raise an error of `limits` if `nbytes` more do not fit."""
        self._limits.check_room(self, nbytes)

    def evict(self, kept: Collection[str] = ()) -> None:
        """Remove files until the store is within its limits, but none whose name is in `kept`.
        Raises OSError."""
        for file in self._limits.surplus(self._evictable(), kept):
            self._remove(file)

    def remove_unfinished(self, before: float) -> int:
        """Remove the drafts that were last written before the time `before`; return their total
        size in bytes."""
        removed = 0
        for draft in self.unfinished():
            if draft.used < before:
                draft.path.unlink(missing_ok=True)
                removed += draft.nbytes
        return removed

    def last_use(self, path: Path, stat: os.stat_result) -> float:
        """Return the time of the last use of a file, in seconds since the epoch."""
        return stat.st_mtime

    def _evictable(self) -> Iterator[StoredFile]:
        return self.files()

    def _remove(self, file: StoredFile) -> None:
        file.path.unlink(missing_ok=True)

    def _publish(self, draft: Path, name: str) -> None:
        """Rename a draft to its final name, which may exist already with the same bytes."""
        path = self._path(name)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft.replace(path)
        if self._durable:
            durable.sync_name(path)

    def _path(self, name: str) -> Path:
        return self.root / self._layout.path(name)

    def _stored(self, name: str, path: Path) -> Iterator[StoredFile]:
        with contextlib.suppress(FileNotFoundError):  # Another process has removed it meanwhile.
            stat = path.stat()
            yield StoredFile(name, path, stat.st_size, self.last_use(path, stat))


def _paths(folder: Path) -> list[Path]:
    """Return the paths in a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_file()]
    except OSError:
        return []
