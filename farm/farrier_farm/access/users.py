"""The users of a farm, each with a token; `farrier tokens` creates and revokes the tokens.

<home>/users.json   {name: {"sha256": of the token, "created": Unix seconds, "role", "group",
                    "expires": Unix seconds or null}}, mode 0600

A token is long and random, so its hash does not reveal it. A caller with the installation's own
token (`tokens.py`) is the user `default`, an admin. The name of a user is stored as the owner of
jobs; role and group determine the user's rights (`farrier_server.access`). Entries of versions
without roles belong to admins, because every token had all rights in those versions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import fcntl
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from farrier.errors import ConflictError, NotFoundError, StorageError, UsageError
from farrier_device.storage import durable
from farrier_farm import disk

DEFAULT = "default"
NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
LATEST = 253_402_300_799.0  # Unix seconds of the last second of the year 9999
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_WITHIN = re.compile(r"([0-9]{1,9})([mhdw])")


class Role(enum.StrEnum):
    """The role of a user. Each role has the rights of all roles before it."""

    USER = "user"  # Jobs, models and artifacts of their own.
    OPERATOR = "operator"  # Devices, the shared records, the cost model, and the state of all jobs.
    ADMIN = "admin"  # everything, tokens included

    def includes(self, least: Role) -> bool:
        """Return whether this role has all rights of the role `least`."""
        order = list(Role)
        return order.index(self) >= order.index(least)


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A user who has a token."""

    name: str
    sha256: str  # of the token
    created: float  # Unix seconds, of the token
    role: Role = Role.ADMIN
    group: str = ""  # The group whose members share their jobs; empty for none.
    expires: float | None = None  # Unix seconds

    @property
    def has_expired(self) -> bool:
        return self.expires is not None and self.expires <= time.time()


THE_DEFAULT = User(DEFAULT, "", 0.0)
"""The user who has the installation's own token."""

_ByName = dict[str, User]
_ByHash = dict[str, User]  # of their tokens


class Users:
    """The users of a farm. Safe to share between threads, and between processes with the same home:
    each call sees all changes so far. Every method raises StorageError if the file cannot be read
    or written."""

    def __init__(self, home: Path) -> None:
        self._path = home / "users.json"
        # The version of the file that was read last, with its users.
        self._read: tuple[object, _ByName, _ByHash] = (None, {}, {})

    def add(
        self,
        name: str,
        role: Role = Role.USER,
        *,
        group: str = "",
        expires: float | None = None,
    ) -> str:
        """Add a user and return the user's token, which is not stored. Raises UsageError for a
        malformed name or group or an expiry in the past, ConflictError for a name that is in
        use."""
        _check_name(name, "user")
        _check_group(group)
        _check_time(expires)
        if name == DEFAULT:
            raise ConflictError(
                f"{DEFAULT!r} is the name of the user with the installation's own token",
                hint="choose another name",
            )
        token = secrets.token_urlsafe(32)
        with self._changed() as users:
            if name in users:
                raise ConflictError(
                    f"the user {name!r} has a token",
                    hint=f"farrier tokens rotate {name} replaces it, farrier tokens remove "
                    f"{name} revokes it",
                )
            users[name] = User(name, _hash(token), time.time(), role, group, expires)
        return token

    def rotate(self, name: str, *, expires: float | None = None, for_ever: bool = False) -> str:
        """Replace a user's token, which becomes invalid, and return the new token. The expiry stays
        the same, unless `expires` or `for_ever` is set. Raises NotFoundError, and UsageError for an
        expiry in the past."""
        _check_time(expires)
        token = secrets.token_urlsafe(32)
        with self._changed() as users:
            user = users.get(name)
            if user is None:
                raise _unknown(name)
            if user.has_expired and expires is None and not for_ever:
                raise UsageError(
                    f"the token of {name} has expired, and its replacement would expire at the "
                    "same time",
                    hint="set the new token's expiry: --expires 30d",
                )
            until = None if for_ever else user.expires if expires is None else expires
            users[name] = dataclasses.replace(
                user, sha256=_hash(token), created=time.time(), expires=until
            )
        return token

    def remove(self, name: str) -> None:
        """Remove a user, whose token becomes invalid. Jobs keep the name of their owner. Raises
        NotFoundError."""
        with self._changed() as users:
            if name not in users:
                raise _unknown(name)
            del users[name]

    def list(self) -> list[User]:
        """Return the users, sorted by name."""
        return sorted(self._users()[0].values(), key=lambda user: user.name)

    def named(self, name: str) -> User | None:
        """Return the user of that name, or None. The user's token may have expired."""
        return THE_DEFAULT if name == DEFAULT else self._users()[0].get(name)

    def members(self, group: str) -> frozenset[str]:
        """Return the names of the users of a group; for the empty group, an empty set."""
        if not group:
            return frozenset()
        return frozenset(name for name, user in self._users()[0].items() if user.group == group)

    def who_has(self, token: str) -> User | None:
        """Return the user who has this token, or None. The token may have expired."""
        digest = _hash(token)
        user = self._users()[1].get(digest)
        return user if user is not None and hmac.compare_digest(user.sha256, digest) else None

    def _users(self) -> tuple[_ByName, _ByHash]:
        """Return the users by name and by the hash of the token. The file is read only if it has
        changed."""
        with disk.storage_errors(f"cannot read {self._path}"):
            try:
                stat = self._path.stat()
            except FileNotFoundError:
                return {}, {}
            version = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            last, by_name, by_hash = self._read
            if last != version:
                by_name = self._load()
                by_hash = {user.sha256: user for user in by_name.values()}
                self._read = version, by_name, by_hash
            return by_name, by_hash

    def _load(self) -> dict[str, User]:
        """Read the users from the file, by name."""
        with disk.storage_errors(f"cannot read {self._path}"):
            try:
                raw = json.loads(self._path.read_text())
                return {name: _read(name, fields) for name, fields in raw.items()}
            except FileNotFoundError:
                return {}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StorageError(
                    f"{self._path} is damaged: {error}",
                    hint="restore it, or remove it and make the tokens anew: farrier tokens add",
                ) from error

    @contextlib.contextmanager
    def _changed(self) -> Iterator[dict[str, User]]:
        """Return a context with the users by name, whose changes are written to disk at the end."""
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
        raw = {user.name: _written(user) for user in users.values()}
        with durable.replacing(self._path) as file:
            file.write(json.dumps(raw, indent=1).encode())
        durable.sync_name(self._path)


def read_expiry(text: str) -> float | None:
    """Return the expiry that `text` states, in Unix seconds: a duration from now (`30d`, `12h`) or
    a date in UTC (`2030-01-31`, `2030-01-31T12:00`). Return None for `never`. Raises UsageError."""
    if text == "never":
        return None
    if match := _WITHIN.fullmatch(text):
        return time.time() + int(match[1]) * _UNITS[match[2]]
    try:
        moment = datetime.datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not a valid expiry time",
            hint="allowed are a duration (90m, 12h, 30d, 8w), a date (2030-01-31), or never",
        ) from None


def _read(name: str, fields: Mapping[str, Any]) -> User:
    expires = fields.get("expires")
    return User(
        name,
        str(fields["sha256"]),
        float(fields["created"]),
        Role(fields.get("role", Role.ADMIN)),
        str(fields.get("group", "")),
        None if expires is None else float(expires),
    )


def _written(user: User) -> dict[str, Any]:
    fields = dataclasses.asdict(user)
    del fields["name"]
    return fields


def _check_name(name: str, what: str) -> None:
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"{name!r} is not a name for a {what}",
            hint="a name has at most 64 letters, digits and . _ @ -, and begins with a "
            "letter or a digit",
        )


def _check_group(group: str) -> None:
    if group:
        _check_name(group, "group")


def _check_time(expires: float | None) -> None:
    if expires is None:
        return
    if not math.isfinite(expires) or expires > LATEST:
        raise UsageError("the token would expire after the year 9999", hint="say never")
    if expires <= time.time():
        raise UsageError(
            "the token would have expired already",
            hint="choose a time in the future, such as 30d; is the clock of this machine right?",
        )


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"no user {name!r} has a token", hint="farrier tokens list shows the users who have a token"
    )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
