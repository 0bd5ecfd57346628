"""An index of the hashes of files, so that unchanged files are not hashed again.

A file is unchanged if its path leads to the same inode, with the same size and times. There is an
exception: the clocks of file systems have a coarse resolution, so a file that was written less than
`GRANULE_NS` before it was hashed may have changed again without a change of its times. Such a file
is hashed again, as git does.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from farrier.files.atomic import write_text_atomically
from farrier.files.mapped import MappedFile
from farrier.frontends.onnx.model.file import Model

# The resolution of times in FAT, the coarsest of file systems, in nanoseconds.
GRANULE_NS = 2_000_000_000
_PIECE = 1 << 20  # The bytes that are read and hashed at once.


def content_of(model: Model) -> str:
    """Return the content hash of a model, 64 hex digits, over its main file and the data files to
    which it refers. Raises InvalidModelError if one is missing or changes in the meantime;
    UsageError if one cannot be read."""
    state = hashlib.sha256(hashlib.sha256(model.message).digest())
    for location, file in sorted(model.external.items()):
        state.update(hashlib.sha256(location.encode()).digest() + _digest(file))
    model.check_unchanged()
    return state.hexdigest()


def _digest(file: MappedFile) -> bytes:
    state, at = hashlib.sha256(), 0
    while piece := file.read(at, _PIECE):  # Not `file.view`, whose pages would count as memory.
        state.update(piece)
        at += len(piece)
    return state.digest()


class FileIndex:
    """The content hashes of models by the path of their main file, stored as one small file each in
    `folder`.

    The entry of a model contains the path of each of its files, and the path to which it resolves.
    Both are compared, because symbolic links to the model, to its data, or in the folders above may
    be changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def known(self, path: Path) -> str | None:
        """Return the content hash of the model at `path` if its files have not changed; else
        None."""
        try:
            raw = json.loads(self._record(path).read_bytes())
            files, hashed_ns = raw["files"], int(raw["hashed_ns"])
            for location, place, *stamp in files:
                way = _file_of(path, location)
                now = _stamp(os.stat(way))
                if place != os.path.realpath(way) or stamp != now:
                    return None
                if now[3] + GRANULE_NS > hashed_ns:
                    return None
            return str(raw["content"]) if files else None
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None  # The record is absent or damaged.

    def learn(self, path: Path, model: Model) -> str:
        """Return the content hash of the model at `path`, and record it. Raises the errors of
        `content_of`, and StorageError if the hash cannot be recorded; `content_of` alone works
        then."""
        hashed_ns = time.time_ns()
        content = content_of(model)
        opened = {**({"": model.file} if model.file else {}), **model.external}
        files = [
            # The stamp is of the file that was hashed, whatever its path leads to by now.
            [location, os.path.realpath(_file_of(path, location)), *_stamp(file.stat)]
            for location, file in opened.items()
        ]
        record = {"content": content, "files": files, "hashed_ns": hashed_ns}
        write_text_atomically(self._record(path), json.dumps(record))
        return content

    def _record(self, path: Path) -> Path:
        way = os.fsencode(path.absolute())
        return self._folder / f"{hashlib.sha256(way).hexdigest()[:32]}.json"


def _file_of(path: Path, location: str) -> Path:
    """Return the path at which `Model` opens a data file that the model at `path` refers to as
    `location`. If `location` is "", return the path of the model's main file."""
    return path.parent / location if location else path


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
