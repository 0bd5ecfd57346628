"""The key with which a farm signs the artifacts of its jobs; `farrier keys` shows it.

<home>/signing.key       the private key: Ed25519, PKCS #8 in PEM, mode 0600
<home>/signing.retired   the earlier public keys, one per line, so that a user who trusts one of
                         them learns that it belonged to this farm

The first process that needs the key creates it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from farrier.artifact.signature import PublicKey, SigningKey
from farrier.errors import StorageError, UsageError, not_installed
from farrier_device.storage import durable
from farrier_farm import disk

KEY, RETIRED = "signing.key", "signing.retired"


class Keys:
    """The signing keys of a farm's home. Safe to share between threads, and between processes with
    the same home: each call sees all changes so far. Every method raises StorageError if a file
    cannot be read or written, and UsageError if the package `cryptography` is missing."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / KEY

    def current(self) -> SigningKey:
        """Return the present signing key; create it if there is none."""
        with _packages():
            key = self._read()
            while key is None:
                self._create()
                key = self._read()
            return key

    def retired(self) -> list[PublicKey]:
        """Return the public keys that were used before the present key, the latest first."""
        try:
            with disk.storage_errors(f"cannot read {self._home / RETIRED}"):
                return PublicKey.all_of_text((self._home / RETIRED).read_text())[::-1]
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise
        except ValueError as error:
            raise StorageError(
                f"{self._home / RETIRED} is damaged: {error}", hint="restore it, or remove it"
            ) from error

    def rotate(self) -> SigningKey:
        """Replace the signing key by a new one, and retire the old key; signatures of the old key
        stay valid."""
        with _packages(), self._changing():
            before = self._read()
            if before is not None:
                self._retire(before.public)
            key = SigningKey.new()
            with disk.storage_errors(f"cannot write {self._path}"):
                with durable.replacing(self._path) as file:
                    file.write(key.pem)
                durable.sync_name(self._path)
            return key

    def _read(self) -> SigningKey | None:
        with disk.storage_errors(f"cannot read {self._path}"):
            try:
                return SigningKey.of_pem(self._path.read_bytes())
            except FileNotFoundError:
                return None
            except UsageError as error:
                raise StorageError(
                    f"{self._path} is {error.message}",
                    hint="restore it; or remove it, so that the farm makes a new key, "
                    "which all clients must then trust",
                ) from error

    def _create(self) -> None:
        """Create a signing key, unless another process does so at the same time."""
        with disk.storage_errors(f"cannot write {self._path}"):
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.create(self._path, SigningKey.new().pem)
            durable.sync_directory(self._home)

    def _retire(self, key: PublicKey) -> None:
        day = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        path = self._home / RETIRED
        with disk.storage_errors(f"cannot write {path}"):
            durable.append(path, f"{key} retired {day}\n".encode(), mode=0o644)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Return a context in which no other process changes the keys."""
        with disk.storage_errors(f"cannot write in {self._home}"):
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._home / "signing.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(lock)


@contextlib.contextmanager
def _packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
