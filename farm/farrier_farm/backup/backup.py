"""The backup of a running farm, for `farrier backup`; `restore.py` reads the result.

A backup is a new folder, or a new tar archive if the target's name ends in `.tar`:

    redis.rdb        the contents of Redis at one moment (`Client.snapshot`)
    blobs/<sha256>   every blob at that moment; in a folder, hard links if the file system has them
    home/<name>      tokens, users, the signing key, the secret of the farm's agent: mode 0600
    backup.json      format, version, time, and the SHA-256 of every file except the blobs, which
                     are named by theirs. This file is written last: a backup without it is not
                     complete

The backup contains every blob that the snapshot of Redis refers to: blobs are stored before
anything refers to them, and no blob is removed while `ContentStore.keeping` is held.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from farrier.errors import ConflictError, StorageError
from farrier_device.storage import durable
from farrier_device.storage.digest import digest_of, digest_of_file
from farrier_farm import disk
from farrier_farm.farm import Farm

FORMAT = 1
MANIFEST, SNAPSHOT, BLOBS, HOME = "backup.json", "redis.rdb", "blobs", "home"
ARCHIVE = ".tar"
# The files of the home that Redis does not contain and that cannot be created again.
KEPT = (
    "user.token",
    "device.token",
    "device.key",
    "users.json",
    "signing.key",
    "signing.retired",
    "audit.pending",
    "device/identity.json",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """The number of blobs of a backup, and the total number of bytes."""

    blobs: int
    nbytes: int  # of all files

    def __str__(self) -> str:
        return f"{self.blobs} blobs, {self.nbytes / 1e6:.2f} MB in all"


class _Place(Protocol):
    """The folder or archive to which a backup is written."""

    def add_file(self, name: str, source: Path) -> None: ...

    def add_bytes(self, name: str, data: bytes) -> None: ...

    def finish(self, manifest: bytes) -> None: ...


def back_up(farm: Farm, target: Path) -> Summary:
    """Write a backup of a farm to `target`. Raises ConflictError if `target` exists, StorageError
    if the backup cannot be written (an incomplete one is removed), ServiceError if Redis does not
    send its snapshot."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConflictError(f"{target} already exists", hint="name a new folder or .tar file")
    existed = target.exists()
    try:
        with disk.storage_errors(f"cannot write {target}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            place = _Archive(target) if target.suffix == ARCHIVE else _Folder(target)
            manifest, summary = _written(farm, place, target.parent)
            place.finish(json.dumps(manifest, indent=1).encode())
            return summary
    except BaseException:
        _removed(target, existed)
        raise


def _written(farm: Farm, place: _Place, temporary: Path) -> tuple[dict[str, Any], Summary]:
    """Write everything except the manifest to `place`, the folder or archive of the backup. Return
    the manifest and the totals. The snapshot of Redis is first written to a temporary file in the
    folder `temporary`."""
    files: dict[str, tuple[int, str]] = {}
    with (
        farm.blobs.keeping(),
        tempfile.NamedTemporaryFile(dir=temporary, prefix=".farrier-") as snapshot,
    ):
        farm.client.snapshot(snapshot)
        snapshot.flush()
        snapshot.seek(0)
        digest = digest_of_file(snapshot)
        files[SNAPSHOT] = snapshot.tell(), digest
        place.add_file(SNAPSHOT, Path(snapshot.name))
        for name in KEPT:
            with contextlib.suppress(FileNotFoundError):
                data = (farm.settings.home / name).read_bytes()
                files[f"{HOME}/{name}"] = len(data), digest_of(data)
                place.add_bytes(f"{HOME}/{name}", data)
        blobs: dict[str, int] = {}
        for sha256, path in farm.blobs.all():
            blobs[sha256] = path.stat().st_size
            place.add_file(f"{BLOBS}/{sha256}", path)
    manifest = {
        "format": FORMAT,
        "farrier": importlib.metadata.version("farrier"),
        "created": time.time(),
        "files": files,
        "blobs": blobs,
    }
    return manifest, Summary(len(blobs), sum(n for n, _ in files.values()) + sum(blobs.values()))


class _Folder:
    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, exist_ok=True)

    def add_file(self, name: str, source: Path) -> None:
        path = self._path(name)
        try:
            os.link(source, path)
        except OSError:  # The source is on another disk, or its file system has no links.
            with source.open("rb") as read, _private(path) as written:
                shutil.copyfileobj(read, written, 1 << 20)

    def add_bytes(self, name: str, data: bytes) -> None:
        with _private(self._path(name)) as file:
            file.write(data)

    def finish(self, manifest: bytes) -> None:
        for folder in {self._root, *(path.parent for path in self._root.rglob("*"))}:
            durable.sync_directory(folder)
        self.add_bytes(MANIFEST, manifest)
        durable.sync_name(self._root / MANIFEST)

    def _path(self, name: str) -> Path:
        path = self._root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path


class _Archive:
    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb", opener=_for_this_user)  # noqa: SIM115 (`finish` closes both)
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)

    def add_file(self, name: str, source: Path) -> None:
        with source.open("rb") as file:
            self._add(name, os.fstat(file.fileno()).st_size, file)

    def add_bytes(self, name: str, data: bytes) -> None:
        self._add(name, len(data), io.BytesIO(data))

    def _add(self, name: str, size: int, file: IO[bytes]) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = size, 0o600, int(time.time())
        self._tar.addfile(entry, file)

    def finish(self, manifest: bytes) -> None:
        self.add_bytes(MANIFEST, manifest)
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


@contextlib.contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """Return a context with a new file that only the user of this process can read. At its end, the
    file is synced to disk."""
    with open(path, "xb", opener=_for_this_user) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _removed(target: Path, existed: bool) -> None:
    """Remove an incomplete backup. If its folder existed before the backup, the folder stays,
    empty."""
    with contextlib.suppress(OSError, StorageError):
        if target.is_dir():
            shutil.rmtree(target)
            if existed:
                target.mkdir(mode=0o700)
        else:
            target.unlink(missing_ok=True)
