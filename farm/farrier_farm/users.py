"""The named users of a farm, each with a token; `farrier tokens` makes and revokes them.

<home>/users.json   {name: {"sha256": of the token, "created": Unix seconds}}, mode 0600

A token is random and long, so its hash tells nothing of it. Whoever has the installation's own
token (`tokens.py`) is the user `default`. The name says whose a job is, and so in whose share it
counts; it keeps nobody from anything."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import ConflictError, NotFoundError, StorageError, UsageError
from farrier_farm import disk

DEFAULT = "default"
NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    name: str
    sha256: str  # of the token
    created: float  # Unix seconds


_ByName = dict[str, User]
_ByHash = dict[str, User]  # of their tokens


class Users:
    """Safe to share between threads, and between processes of one home: each call sees what any of
    them has changed. Every method raises StorageError where the file cannot be read or written."""

    def __init__(self, home: Path) -> None:
        self._path = home / "users.json"
        self._read: tuple[object, _ByName, _ByHash] = (None, {}, {})  # a version of the file

    def add(self, name: str) -> str:
        """Makes a user and returns the token, which is kept nowhere. Raises UsageError for what is
        no name, ConflictError for one that is taken."""
        if not re.fullmatch(NAME, name):
            raise UsageError(
                f"{name!r} is no name of a user",
                hint="64 letters, digits and . _ @ - at most, the first a letter or a digit",
            )
        if name == DEFAULT:
            raise ConflictError(
                f"{DEFAULT!r} is who has the installation's own token", hint="choose another name"
            )
        token = secrets.token_urlsafe(32)
        with self._changed() as users:
            if name in users:
                raise ConflictError(
                    f"the user {name!r} has a token", hint=f"farrier tokens remove {name}"
                )
            users[name] = User(name, _hash(token), time.time())
        return token

    def remove(self, name: str) -> None:
        """Revokes the user's token; jobs keep the name of their owner. Raises NotFoundError."""
        with self._changed() as users:
            if name not in users:
                raise NotFoundError(
                    f"no user {name!r} has a token", hint="farrier tokens list shows who has one"
                )
            del users[name]

    def list(self) -> list[User]:
        """By name."""
        return sorted(self._users()[0].values(), key=lambda user: user.name)

    def named(self, name: str) -> User | None:
        """None where nobody of that name has a token."""
        return self._users()[0].get(name)

    def owner_of(self, token: str) -> str | None:
        """The name of the user who has this token; None where nobody has."""
        digest = _hash(token)
        user = self._users()[1].get(digest)
        return user.name if user is not None and hmac.compare_digest(user.sha256, digest) else None

    def _users(self) -> tuple[_ByName, _ByHash]:
        """The file is read where it has changed."""
        with disk.storage_errors(f"cannot read {self._path}"):
            try:
                stat = self._path.stat()
            except FileNotFoundError:
                return {}, {}
            version = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            known, by_name, by_hash = self._read
            if known != version:
                by_name = self._load()
                by_hash = {user.sha256: user for user in by_name.values()}
                self._read = version, by_name, by_hash
            return by_name, by_hash

    def _load(self) -> dict[str, User]:
        """By name."""
        with disk.storage_errors(f"cannot read {self._path}"):
            try:
                raw = json.loads(self._path.read_text())
                return {
                    name: User(name, str(user["sha256"]), float(user["created"]))
                    for name, user in raw.items()
                }
            except FileNotFoundError:
                return {}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StorageError(
                    f"{self._path} is damaged: {error}",
                    hint="restore it, or remove it and make the tokens anew: farrier tokens add",
                ) from error

    @contextlib.contextmanager
    def _changed(self) -> Iterator[dict[str, User]]:
        """The users by name, to be changed; what changed is on the disk at the end."""
        with disk.storage_errors(f"cannot write {self._path}"):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            users = self._load()
            yield users
            with disk.storage_errors(f"cannot write {self._path}"):
                self._write(users)
        finally:
            os.close(lock)

    def _write(self, users: dict[str, User]) -> None:
        raw = {u.name: {"sha256": u.sha256, "created": u.created} for u in users.values()}
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            disk.write_all(descriptor, json.dumps(raw, indent=1).encode())
            os.fsync(descriptor)
            disk.publish(draft, self._path)
        finally:
            os.close(descriptor)
            draft.unlink(missing_ok=True)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
