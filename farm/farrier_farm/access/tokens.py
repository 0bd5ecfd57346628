"""The two tokens of an installation, for users (REST) and for devices (gRPC), and the key from
which the secrets of its devices are derived. No device has access to that key."""

from __future__ import annotations

import enum
import hmac
import secrets
from pathlib import Path

from farrier.errors import StorageError
from farrier_device.storage import durable
from farrier_farm import disk
from farrier_farm.settings import Settings


class TokenRole(enum.StrEnum):
    USER = "user"
    DEVICE = "device"


def load_token(settings: Settings, role: TokenRole, *, create: bool = False) -> str | None:
    """Return the token of a role (user or device): the token in the settings, else the content of
    the token file that the settings name, else the content of `<home>/<role>.token`. If `create` is
    true, the last file is created if it is missing (mode 0600). Return None if the installation has
    no token.

    Raises StorageError if a token file that the settings name is missing, if a token file cannot be
    read, or if the directory cannot be written.
    """
    token, named = _of(settings, role)
    if token:
        return token
    path = named or settings.home / f"{role}.token"
    with disk.storage_errors(f"cannot read the token file {path}"):
        try:
            return path.read_text().strip() or None
        except FileNotFoundError:
            if named is not None:
                raise StorageError(f"the token file {path} does not exist") from None
    return _create(path) if create else None


def device_key(settings: Settings) -> str:
    """Return the key in `<home>/device.key`; create the file if it is missing (mode 0600). Raises
    StorageError."""
    path = settings.home / "device.key"
    with disk.storage_errors(f"cannot read the key {path}"):
        try:
            key = path.read_text().strip()
        except FileNotFoundError:
            return _create(path)
    if not key:
        raise StorageError(
            f"the key {path} is empty",
            hint="restore it; or remove it, and enrol all devices again",
        )
    return key


def whereabouts(settings: Settings, role: TokenRole) -> str:
    """Return a description, for messages to users, of the setting or file from which `load_token`
    reads the token."""
    token, named = _of(settings, role)
    if token:
        return "of the environment"
    return f"in {named or settings.home / f'{role}.token'}"


def matches(candidate: str, token: str) -> bool:
    """Compare two tokens in constant time."""
    return hmac.compare_digest(candidate.encode(), token.encode())


def token_file(settings: Settings, role: TokenRole) -> Path:
    """Return the path of a file with the token that `load_token` returns, for programs that read a
    token from a file. A token in the settings is written to `<home>/<role>.given.token`. Raises
    StorageError."""
    token, named = _of(settings, role)
    if not token:
        return named or settings.home / f"{role}.token"
    path = settings.home / f"{role}.given.token"
    with disk.storage_errors(f"cannot write the token file {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with durable.replacing(path) as file:
            file.write(f"{token}\n".encode())
    return path


def _of(settings: Settings, role: TokenRole) -> tuple[str | None, Path | None]:
    """Return the token that the settings contain for a role, and the path of the token file that
    they name; None for a missing value."""
    return {
        TokenRole.USER: (settings.token, settings.token_file),
        TokenRole.DEVICE: (settings.device_token, settings.device_token_file),
    }[role]


def _create(path: Path) -> str:
    """Create a token file and return its token. If two processes create the file at once, both
    return the same token."""
    token = secrets.token_urlsafe(32)
    with disk.storage_errors(f"cannot write the token file {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not durable.create(path, f"{token}\n".encode()):
            return path.read_text().strip()
    return token
