"""The cache entries on disk: read, write and evict them, with several processes at once.

    entries/KEY.farrier   an artifact, written completely and renamed into place
    entries/KEY.json      its seal: the file's size, time and inode when this machine wrote it or
                          checked its hashes, a description for people, and the warnings of the
                          compilation; the time of the seal file is the time of the last use
    locks/KEY.lock        held by the process that compiles the entry
    files/*.json          the content hashes of files (`files.py`)

Files of other names are somebody else's, and stay.

An entry with a valid seal is mapped without a check of its parameters' hash. An entry that is
removed or replaced stays valid for processes that have mapped it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from farrier.errors import ArtifactError, StorageError
from farrier.files.atomic import write_text_atomically
from farrier.runtime.artifact import Artifact, check_params, load_mapped
from farrier_device.storage.file_store import FileStore, Layout
from farrier_device.storage.limits import LeastRecentlyUsed, Limits, StoredFile

WAIT_S = 600.0  # The longest wait for another process that compiles the same, in seconds.
_PATIENCE_S = 1.0  # The seconds of waiting before a message explains it.
_PAUSE_S = 0.05
_ATTEMPTS = 3  # Reads of an entry that changes while it is read.
_LEFT_OVER_S = 3600.0  # An older unfinished file was left by a process that died; in seconds.
_FORGOTTEN_S = 90 * 86400.0
_KEY, _PATH_DIGEST = r"[0-9a-f]{64}", r"[0-9a-f]{32}"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One line of the output of `farrier cache show`; `used` is in seconds since the epoch."""

    key: str
    nbytes: int
    used: float
    model: str = ""
    target: str = ""


class _Entries(FileStore):
    """The artifact files of the cache. Each has a seal, a small file with the state in which it was
    checked, whose time is the time of the entry's last use."""

    def path(self, key: str) -> Path:
        return self._path(key)

    def seal(self, key: str) -> Path:
        return self._path(key).with_suffix(".json")

    def last_use(self, path: Path, stat: os.stat_result) -> float:
        seal = _stat(path.with_suffix(".json"))
        return (seal or stat).st_mtime

    def discard(self, key: str) -> None:
        """Remove the artifact of an entry and its seal, if they exist."""
        for path in (self.path(key), self.seal(key)):
            with contextlib.suppress(OSError):
                path.unlink()

    def _remove(self, file: StoredFile) -> None:
        self.discard(file.name)


class Store:
    """The entries in `folder`, whose total size is limited to `limit_bytes`; 0: no limit."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        limits = LeastRecentlyUsed(limit_bytes) if limit_bytes > 0 else Limits()
        self._entries = _Entries(folder / "entries", _layout(_KEY, ".farrier"), limits)
        # Farrier's other files in the folders; all files beyond these are somebody else's.
        self._own_files = (
            FileStore(folder / "entries", _layout(_KEY, ".json")),
            FileStore(folder / "files", _layout(_PATH_DIGEST, ".json")),
            FileStore(folder / "locks", _layout(_KEY, ".lock")),
        )

    def open(self) -> None:
        """Create the folder and its subfolders, which only this user can access. Raises
        StorageError if that fails, or if other users could write code into one of them."""
        for folder in (self.folder, *(store.root for store in self._own_files)):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                status = folder.stat()
            except OSError as error:
                raise StorageError(
                    f"no cache in {folder}: {error.strerror}", hint="FARRIER_CACHE names another"
                ) from error
            _check_is_ours(folder, status)

    def get(self, key: str) -> Artifact | None:
        """Return the entry; None if it does not exist. Raises ArtifactError if it is damaged."""
        path = self._entries.path(key)
        for _ in range(_ATTEMPTS):
            status = _stat(path)
            if status is None:
                return None
            try:
                return self._load(key, path, status)
            except ArtifactError:
                now = _stat(path)
                if now is not None and _stamp(now) == _stamp(status):
                    raise
                # Another process has removed or replaced it meanwhile.
        return None

    def _load(self, key: str, path: Path, status: os.stat_result) -> Artifact:
        seal = self._entries.seal(key)
        if _read(seal).get("stamp") != _stamp(status):
            check_params(path)
            self._write_seal(key, status, _about(seal), self.warnings(key))
        artifact = load_mapped(path)
        with contextlib.suppress(OSError):  # The disk may be read-only.
            os.utime(seal)
        return artifact

    def warnings(self, key: str) -> list[str]:
        """Return the warnings of the compilation that produced the entry."""
        raw = _read(self._entries.seal(key)).get("warnings")
        return [str(message) for message in raw] if isinstance(raw, list) else []

    def put(
        self, key: str, artifact: Artifact, about: dict[str, str], warnings: Sequence[str] = ()
    ) -> None:
        """Write an entry, and remove the entries that were used least recently until the limit is
        met. Raises StorageError if the disk is full, if this entry alone exceeds the limit, or if
        another process removes it."""
        artifact.save(self._entries.path(key))
        status = _stat(self._entries.path(key))
        if status is None:
            raise StorageError(
                f"{self._entries.path(key)} was removed as soon as it was written",
                hint="did farrier cache clear run just now? the next session keeps it",
            )
        if 0 < self.limit_bytes < status.st_size:
            self.discard(key)
            raise StorageError(
                f"the compiled model takes {status.st_size} bytes, and the cache "
                f"{self.limit_bytes} at most",
                hint="raise FARRIER_CACHE_BYTES",
            )
        self._write_seal(key, status, about, warnings)
        self._entries.evict({key})
        self._remove_leftovers()

    def discard(self, key: str) -> None:
        """Remove an entry, if it exists."""
        self._entries.discard(key)

    @contextlib.contextmanager
    def making(self, key: str, warn: Callable[[str], None]) -> Iterator[None]:
        """Hold the lock of an entry within the `with` block, so that only one process and thread
        compiles it.

        Other processes and threads wait until the holder finishes or dies, for at most `WAIT_S`
        seconds, and report by `warn` that they wait. If the file system does not support locks,
        they do not wait.
        """
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                place = self.folder / "locks"
                place.mkdir(mode=0o700, exist_ok=True)
                file = held.enter_context((place / f"{key}.lock").open("wb"))
                _lock(file, warn)
            yield

    def entries(self) -> list[Entry]:
        """Return all entries, the most recently used first."""
        entries = []
        for file in self._entries.files():
            about = _about(self._entries.seal(file.name))
            words = (str(about.get(word, "")) for word in ("model", "target"))
            entries.append(Entry(file.name, file.nbytes, file.used, *words))
        return sorted(entries, key=lambda entry: -entry.used)

    def verify(self) -> list[tuple[Entry, str]]:
        """Check every entry against its hashes; remove the damaged ones, and return each with the
        reason."""
        damaged = []
        for entry in self.entries():
            try:
                check_params(self._entries.path(entry.key))
            except ArtifactError as error:
                self.discard(entry.key)
                damaged.append((entry, error.message))
        return damaged

    def clear(self) -> int:
        """Remove all of Farrier's files, and folders that are empty then; return the size in bytes
        of the removed entries. Raises StorageError."""
        nbytes = sum(file.nbytes for file in self._entries.files())
        for store in (self._entries, *self._own_files):
            try:
                for file in [*store.files(), *store.unfinished()]:
                    file.path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(
                    f"cannot remove {error.filename}: {error.strerror}", hint="who owns it?"
                ) from error
            with contextlib.suppress(
                OSError
            ):  # The folder does not exist, or contains files that are not Farrier's.
                store.root.rmdir()
        return nbytes

    def _remove_leftovers(self) -> None:
        """Remove files that dead processes left, and files that have not been used for a long
        time."""
        now = time.time()
        with contextlib.suppress(OSError):
            for store in (self._entries, *self._own_files):
                store.remove_unfinished(now - _LEFT_OVER_S)
            for store in self._own_files:
                for file in store.files():
                    is_seal = file.path.with_suffix(".farrier").exists()
                    if not is_seal and file.used < now - _FORGOTTEN_S:
                        file.path.unlink(missing_ok=True)

    def _write_seal(
        self, key: str, status: os.stat_result, about: dict[str, str], warnings: Sequence[str]
    ) -> None:
        text = json.dumps({"stamp": _stamp(status), "about": about, "warnings": list(warnings)})
        with contextlib.suppress(StorageError):  # Without it, the entry is hashed when it is read.
            write_text_atomically(self._entries.seal(key), text)


def _layout(names: str, suffix: str) -> Layout:
    """Return the layout of files that `durable.replacing` writes, by which unfinished ones (drafts)
    are recognized."""
    drafts = rf"\.{names}{re.escape(suffix)}\.[a-z0-9_]{{8}}"
    return Layout(names, drafts, suffix=suffix)


def _check_is_ours(folder: Path, status: os.stat_result) -> None:
    """Raise StorageError if other users could write code into the folder, because entries are
    executed."""
    if status.st_uid not in (0, os.geteuid()):
        whose, way_out = "belongs to another user", ""
    elif status.st_mode & stat.S_IWOTH:
        whose, way_out = "is writable for everybody", f"chmod go-w {folder}, or "
    elif status.st_mode & stat.S_IWGRP:
        whose, way_out = "is writable for its group", f"chmod go-w {folder}, or "
    else:
        return
    raise StorageError(
        f"no cache in {folder}: it {whose}, who could put code into it",
        hint=f"{way_out}name another with FARRIER_CACHE",
    )


def _lock(file: IO[bytes], warn: Callable[[str], None]) -> None:
    """Take the file's lock, or give up after `WAIT_S`. Raises OSError if locks do not work."""
    start, is_told = time.monotonic(), False
    while (waited := time.monotonic() - start) < WAIT_S:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if waited > _PATIENCE_S and not is_told:
                is_told = True
                warn(
                    f"another process compiles the same model, and holds {file.name}: this one "
                    f"waits for it, {WAIT_S:.0f} s at most (FARRIER_CACHE=off never waits)"
                )
            time.sleep(_PAUSE_S)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]


def _read(path: Path) -> dict[str, Any]:
    """Return the content of the JSON file of an entry, its seal; {} if it is missing or damaged."""
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _about(seal: Path) -> dict[str, str]:
    about = _read(seal).get("about")
    return about if isinstance(about, dict) else {}
