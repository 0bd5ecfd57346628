"""Write an initramfs from a folder, in the cpio format "newc" that the Linux kernel unpacks.

Source: Linux `Documentation/driver-api/early-userspace/buffer-format.rst`.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_ALIGNMENT = 4


class Writer:
    """A writer of a cpio archive in which root owns all files."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._inode = 0

    def tree(self, folder: Path, to: str = "", without: frozenset[str] = frozenset()) -> None:
        """Add a folder and everything below it, at `to` in the archive. `without` has the names of
        folders, or paths below `folder`, that are left out."""
        if to:
            self.folder(to)
        for path in _below(folder, "", without):
            name = f"{to}/{path}".lstrip("/")
            self._copy(folder / path, name)

    def folder(self, name: str) -> None:
        """Add an empty folder; its parent must have been added."""
        self._head(name, stat.S_IFDIR | 0o755, 0, 0)

    def text(self, name: str, text: str, mode: int = 0o644) -> None:
        """Add a file with this text."""
        data = text.encode()
        self._head(name, stat.S_IFREG | mode, len(data), 0)
        self._file.write(data)
        self._pad()

    def device(self, name: str, major: int, minor: int) -> None:
        """Add a character device."""
        self._head(name, stat.S_IFCHR | 0o600, 0, 0, (major, minor))

    def end(self) -> None:
        """Write the archive's trailer."""
        self._head("TRAILER!!!", 0, 0, 0)

    def _copy(self, path: Path, name: str) -> None:
        status = path.lstat()
        modified = int(status.st_mtime)
        if stat.S_ISLNK(status.st_mode):
            data = os.readlink(path).encode()
            self._head(name, status.st_mode, len(data), modified)
            self._file.write(data)
        elif stat.S_ISREG(status.st_mode):
            self._head(name, status.st_mode, status.st_size, modified)
            with path.open("rb") as source:
                shutil.copyfileobj(source, self._file, 1 << 20)
        elif stat.S_ISDIR(status.st_mode):
            self._head(name, status.st_mode, 0, modified)
        self._pad()

    def _head(
        self, name: str, mode: int, size: int, modified: int, device: tuple[int, int] = (0, 0)
    ) -> None:
        self._inode += 1
        raw = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = (self._inode, mode, 0, 0, links, modified, size, 0, 0, *device, len(raw), 0)
        self._file.write(b"070701" + b"".join(b"%08X" % field for field in fields) + raw)
        self._pad()

    def _pad(self) -> None:
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))


def _below(folder: Path, place: str, without: frozenset[str]) -> Iterator[str]:
    """Yield all paths below `folder`, parents first."""
    for entry in sorted(os.scandir(folder / place), key=lambda item: item.name):
        path = f"{place}/{entry.name}".lstrip("/")
        if entry.is_dir(follow_symlinks=False):
            if entry.name in without or path in without:
                continue
            yield path
            yield from _below(folder, path, without)
        else:
            yield path
