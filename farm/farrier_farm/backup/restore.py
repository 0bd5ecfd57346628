"""The restore of a farm from a backup into an empty home, for `farrier restore`.

Every file is read once, checked against its hash, and written to a folder next to the home. The
folder is renamed to the home when all files are correct, so an interrupted restore leaves no
partial farm.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from farrier.errors import ConflictError, StorageError, UsageError
from farrier_device.storage import durable
from farrier_farm import disk
from farrier_farm.backup.backup import (
    ARCHIVE,
    BLOBS,
    FORMAT,
    HOME,
    KEPT,
    MANIFEST,
    SNAPSHOT,
    Summary,
)
from farrier_farm.redis import embedded
from farrier_farm.redis.connection import DATA
from farrier_farm.roles.liveness import answers
from farrier_farm.settings import Settings

_BLOB = re.compile(rf"{BLOBS}/([0-9a-f]{{64}})")
_MOST_MANIFEST = 1 << 30  # Bytes; about 80 for each blob.
_PIECE = 1 << 20
# The append-only file of a server is a folder with a base file, which may be a snapshot, and a file
# of the later changes (Redis 7.0 and later).
_LOG = f"{DATA}/appendonlydir"
_BASE = "appendonly.aof.1.base.rdb"
_INCREMENT = "appendonly.aof.1.incr.aof"
_LOG_MANIFEST = f"file {_BASE} seq 1 type b\nfile {_INCREMENT} seq 1 type i\n"


def restore(source: Path, settings: Settings) -> Summary:
    """Restore the farm of a backup into `settings.home`. Raises ConflictError if the home is not
    empty, UsageError if the backup is not complete or the farm's Redis is not the embedded server,
    StorageError if the backup is damaged or the home cannot be written."""
    if settings.redis_url is not None:
        raise UsageError(
            "REDIS_URL names a separate Redis, but a restore fills the embedded one",
            hint=f"unset REDIS_URL; or load the {SNAPSHOT} of the backup into that Redis "
            "with its own tools, and restore the rest with --home into another home",
        )
    home = settings.home
    _check_is_free(home)
    staging = home.with_name(f".{home.name}.{secrets.token_hex(4)}")
    try:
        with disk.storage_errors(f"cannot restore {source} to {home}"):
            staging.mkdir(mode=0o700, parents=True)
            restored = _Restored(staging)
            try:
                for name, file in _files(source):
                    restored.take(name, file)
            except tarfile.TarError as error:
                raise UsageError(
                    f"{source} is not a complete backup: {error}",
                    hint=f"name a folder or {ARCHIVE} of `farrier backup`",
                ) from error
            summary = restored.finished(source)
            if home.exists():
                home.rmdir()
            staging.rename(home)
            durable.sync_directory(home.parent)
            return summary
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_is_free(home: Path) -> None:
    if answers(f"unix://{embedded.socket_path(home)}"):
        raise ConflictError(
            f"a farm runs in {home}", hint="stop it, and restore to a new home: --home DIR"
        )
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ConflictError(
            f"{home} is in use: it is not empty", hint="move it, or restore to a new home: --home"
        )


@dataclasses.dataclass
class _Restored:
    """The files that were restored so far, in a folder that will become a home."""

    root: Path
    files: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    manifest: dict[str, Any] | None = None

    def take(self, name: str, file: IO[bytes]) -> None:
        """Restore the file `name` of the backup, whose content is read from `file`. Raises
        UsageError for a name that backups do not contain."""
        if name == MANIFEST:
            self.manifest = _parsed(file.read(_MOST_MANIFEST))
            return
        path = self.root / _place_of(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as written:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
                written.write(piece)
            written.flush()
            os.fsync(written.fileno())
        self.files[name] = size, digest.hexdigest()

    def finished(self, source: Path) -> Summary:
        """Check the restored files against the manifest, and return their number and size. Raises
        UsageError for a backup that is not complete, StorageError for a damaged one."""
        if self.manifest is None:
            raise UsageError(
                f"{source} is not a complete backup: it has no {MANIFEST}",
                hint="the backup may be incomplete, or may not be a backup of Farrier: use "
                "another one",
            )
        said = {name: (int(n), str(sha)) for name, (n, sha) in self.manifest["files"].items()}
        blobs = self.manifest["blobs"]
        said |= {f"{BLOBS}/{sha256}": (int(n), str(sha256)) for sha256, n in blobs.items()}
        wrong = sorted(n for n in {*said, *self.files} if said.get(n) != self.files.get(n))
        if wrong or SNAPSHOT not in said:
            name = wrong[0] if wrong else SNAPSHOT
            how = "is missing" if name not in self.files else "is damaged"
            how = how if name in said else "does not belong to it"
            more = f" (and {len(wrong) - 1} more files)" if len(wrong) > 1 else ""
            raise StorageError(
                f"the backup {source} is damaged: {name} {how}{more}",
                hint="restore another backup; nothing was changed",
            )
        self._write_log()
        return Summary(len(blobs), sum(size for size, _ in self.files.values()))

    def _write_log(self) -> None:
        """Write an append-only log for the embedded server that starts with the snapshot of the
        backup."""
        folder = self.root / _LOG
        (folder / _INCREMENT).touch(mode=0o600)
        (folder / "appendonly.aof.manifest").write_text(_LOG_MANIFEST)
        for folder_path in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            durable.sync_directory(folder_path)


def _place_of(name: str) -> str:
    """Return the path, relative to a home, to which the file `name` of a backup is restored. Raises
    UsageError for a name that backups do not contain."""
    if name == SNAPSHOT:
        return f"{_LOG}/{_BASE}"
    if blob := _BLOB.fullmatch(name):
        return f"{BLOBS}/{blob[1][:2]}/{blob[1]}"
    kept = name.removeprefix(f"{HOME}/")
    if kept in KEPT and kept != name:
        return kept
    raise UsageError(
        f"no backup contains a file {name[:200]!r}", hint="is it a backup by `farrier backup`?"
    )


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(data)
        number = manifest["format"]
        _ = [(int(n), str(sha)) for n, sha in manifest["files"].values()]
        _ = [int(n) for n in manifest["blobs"].values()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(
            f"the {MANIFEST} of the backup is damaged: {error}",
            hint="restore another backup; nothing was changed",
        ) from error
    if number != FORMAT:
        raise UsageError(
            f"the backup has format {number}, and this Farrier reads {FORMAT}",
            hint=f"restore it with Farrier {manifest.get('farrier')}",
        )
    return manifest


def _files(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and content of each file of a backup. Raises UsageError if the source is not a
    backup."""
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    yield path.relative_to(source).as_posix(), file
        return
    if not source.exists():
        raise UsageError(
            f"there is no backup {source}", hint="name a folder or .tar of `farrier backup`"
        )
    with tarfile.open(source, "r:") as archive:
        for entry in archive:
            member = archive.extractfile(entry) if entry.isfile() else None
            if member is not None:
                yield entry.name, member
