"""Immutable files with names, in a folder that several processes may share.

A file is written as a draft, synced, and takes its name at once, so that whoever sees the name sees
the whole file. `content_store.ContentStore` names files by their content.
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
    """The paths of files and drafts below a store's root. Files of other names are not the store's.

    `names` and `drafts` are the patterns of their names. A file lies in a folder that the first
    `fan_out` characters of its name name, and ends with `suffix`; drafts lie in `draft_folder`.
    """

    names: str = r"[0-9a-f]{64}"
    drafts: str = r"[0-9a-f]{32}"
    fan_out: int = 0
    suffix: str = ""
    draft_folder: str = ""

    def path(self, name: str) -> Path:
        """The path of a file of the store."""
        return Path(name[: self.fan_out], f"{name}{self.suffix}")

    def is_name(self, name: str) -> bool:
        """Return whether a file of the store may have the name: only then it becomes a path."""
        return re.fullmatch(self.names, name) is not None

    def is_draft(self, name: str) -> bool:
        """Return whether a draft may have the name."""
        return re.fullmatch(self.drafts, name) is not None


class FileStore:
    """The files under `root`. Files are on the disk when a call returns, unless the store is not
    `durable`. Limits are checked, and files removed, as `limits` says."""

    def __init__(
        self, root: Path, layout: Layout, limits: Limits | None = None, *, durable: bool = True
    ) -> None:
        self.root = root
        self.drafts = root / layout.draft_folder
        self._layout = layout
        self._limits = limits or Limits()
        self._durable = durable

    def has(self, name: str) -> bool:
        """Return whether a file is here."""
        return self._layout.is_name(name) and self._path(name).is_file()

    def touch(self, name: str) -> bool:
        """Note a use of a file, which then is the last to be removed; return whether it is here.
        Raises OSError."""
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
        """Iterate over the drafts: files in the making, and what processes that died have left."""
        for path in _paths(self.drafts):
            if self._layout.is_draft(path.name):
                yield from self._stored(path.name, path)

    def used(self) -> int:
        """The bytes of all files and drafts."""
        return sum(file.nbytes for file in [*self.files(), *self.unfinished()])

    def check_room(self, nbytes: int) -> None:
        """Raise an error of the limits if `nbytes` more do not fit."""
        self._limits.check_room(self, nbytes)

    def evict(self, kept: Collection[str] = ()) -> None:
        """Remove files until the others are within the limits, but none of those in `kept`. Raises
        OSError."""
        for file in self._limits.surplus(self._evictable(), kept):
            self._remove(file)

    def remove_unfinished(self, before: float) -> int:
        """Remove the drafts that nobody has written to since then; return their bytes."""
        removed = 0
        for draft in self.unfinished():
            if draft.used < before:
                draft.path.unlink(missing_ok=True)
                removed += draft.nbytes
        return removed

    def last_use(self, path: Path, stat: os.stat_result) -> float:
        """The last use of a file, in seconds since the epoch."""
        return stat.st_mtime

    def _evictable(self) -> Iterator[StoredFile]:
        return self.files()

    def _remove(self, file: StoredFile) -> None:
        file.path.unlink(missing_ok=True)

    def _publish(self, draft: Path, name: str) -> None:
        """Give a draft its name. The same bytes may be published twice."""
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
    """Return the files of a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_file()]
    except OSError:
        return []
