"""What files contained when they were last hashed, so that unchanged ones are not hashed again.

A file is unchanged while its path leads to the same inode with the same size and times. A file that
was written less than `GRANULE_NS` before it was hashed may change once more without another time,
since clocks of file systems tick slowly: it is hashed again until it is older, as git does it.
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

GRANULE_NS = 2_000_000_000  # of FAT, the coarsest
_PIECE = 1 << 20  # bytes that are read before they are hashed


def content_of(model: Model) -> str:
    """64 hex digits over the message and the data files that it names. Raises InvalidModelError
    where one is missing, or changes meanwhile; UsageError where one cannot be read."""
    state = hashlib.sha256(hashlib.sha256(model.message).digest())
    for location, file in sorted(model.external.items()):
        state.update(hashlib.sha256(location.encode()).digest() + _digest(file))
    model.check_unchanged()
    return state.hexdigest()


def _digest(file: MappedFile) -> bytes:
    state, at = hashlib.sha256(), 0
    while piece := file.read(at, _PIECE):  # not `file.view`, whose pages would count as memory
        state.update(piece)
        at += len(piece)
    return state.digest()


class FileIndex:
    """Contents of models by the path of their message, one small file each in `folder`.

    A record holds each file by the way that leads to it, and where that way ends: links of the
    model, of its data and of folders above may each be turned to other files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def known(self, path: Path) -> str | None:
        """The content of the model at `path`, where its files are what they were; else None."""
        try:
            raw = json.loads(self._record(path).read_bytes())
            files, hashed_ns = raw["files"], int(raw["hashed_ns"])
            for location, place, *stamp in files:
                way = _way(path, location)
                now = _stamp(os.stat(way))
                if place != os.path.realpath(way) or stamp != now:
                    return None
                if now[3] + GRANULE_NS > hashed_ns:
                    return None
            return str(raw["content"]) if files else None
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None  # what cannot be read was never noted

    def learn(self, path: Path, model: Model) -> str:
        """The content of the model at `path`, which is noted. Raises as `content_of`, and
        StorageError where it cannot be noted; then `content_of` alone still says it."""
        hashed_ns = time.time_ns()
        content = content_of(model)
        opened = {**({"": model.file} if model.file else {}), **model.external}
        files = [
            # The stamp is of the file that was hashed, whatever its path leads to by now.
            [location, os.path.realpath(_way(path, location)), *_stamp(file.stat)]
            for location, file in opened.items()
        ]
        record = {"content": content, "files": files, "hashed_ns": hashed_ns}
        write_text_atomically(self._record(path), json.dumps(record))
        return content

    def _record(self, path: Path) -> Path:
        way = os.fsencode(path.absolute())
        return self._folder / f"{hashlib.sha256(way).hexdigest()[:32]}.json"


def _way(path: Path, location: str) -> Path:
    """How `Model` comes to the file of that location; "" is the message's."""
    return path.parent / location if location else path


def _stamp(found: os.stat_result) -> list[int]:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
