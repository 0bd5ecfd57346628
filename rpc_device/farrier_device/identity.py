"""The identity of a device in its farm: its own secret, stored in the state folder, or the token
that all devices share.

The nonce of an enrolment is written to the disk before the request to the farm. If the answer is
lost or the agent dies, the agent repeats the same request and receives the same secret.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from farrier_device.connection import RefusedError, UnsupportedError, UsageError
from farrier_device.protocol import device_pb2, signing
from farrier_device.protocol.credentials import Bearer, Enrolled, Invited
from farrier_device.secret_file import FILE, SecretFile

if TYPE_CHECKING:
    from farrier_device.connection import Connection

log = logging.getLogger(__name__)

_NONCE_BYTES = 32


class Identity:
    """The identity of an agent's device. Only `settle` and `may_enrol_again` change the identity,
    while the caller holds the session's lock."""

    def __init__(
        self, name: str, *, state: Path | None = None, shared: str = "", enrolment: str = ""
    ) -> None:
        """Read the identity. `name` is the device's name according to the operator, or "" for the
        name in the enrolment token. Without a `state` folder the device uses the shared token and
        never enrols. Raises UsageError if the folder has the secret of another device or a
        malformed one, and if neither a secret nor a token is available."""
        self._name = name
        self._path = None if state is None else state / FILE
        self._shared = shared
        self._enrolment = enrolment
        self._is_lost = False  # The farm no longer knows the secret.
        self._kept = SecretFile() if self._path is None else _read(self._path)
        if self._own is None and not shared and not enrolment:
            raise UsageError(
                "this device is not enrolled; run `farrier devices add NAME` on the farm, and "
                "pass the token that it prints to --enrol"
            )
        if self._own is not None and name not in ("", self._own.device) and not self._is_invited:
            raise UsageError(
                f"{self._path} is the secret of the device {self._own.device}, but --name is "
                f"{name}; leave --name out, or give this agent its own --state"
            )

    @property
    def device(self) -> str:
        """The device's name; "" until an enrolment sets it."""
        return self._name if self._own is None else self._own.device

    @property
    def caller(self) -> Bearer | Enrolled:
        """Return the credential to present to the broker."""
        own = self._own
        if own is None:
            return Bearer(self._shared)
        return Enrolled.by(own.device, own.generation, own.secret)

    def settle(self, connection: Connection) -> None:
        """Enrol the device if it has no secret, or has an enrolment token that it has not used yet.
        With a broker that is too old for enrolment, the device uses the shared token. Raises
        UsageError if the enrolment is refused, and the errors of `Connection.enrol`."""
        if self._path is None or (self._own is not None and not self._is_invited):
            return
        token = _hashed(self._enrolment)
        if not self._kept.nonce or self._kept.nonce_token != token:
            nonce = secrets.token_hex(_NONCE_BYTES)
            self._keep(dataclasses.replace(self._kept, nonce=nonce, nonce_token=token))
        caller = Invited(self._enrolment) if self._enrolment else Bearer(self._shared)
        nonce_bytes = bytes.fromhex(self._kept.nonce)
        request = device_pb2.EnrolRequest(device_id=self._name, nonce=nonce_bytes)
        try:
            reply = connection.enrol(request, caller)
        except UnsupportedError:
            self._go_on_unenrolled()
            return
        except RefusedError as error:
            raise UsageError(f"the broker does not enrol this device: {error}") from None
        self._keep(SecretFile(reply.device_id, reply.generation, reply.secret, token))
        self._is_lost = False
        log.info("enrolled as %s", reply.device_id)

    def may_enrol_again(self) -> bool:
        """Prepare a new enrolment with the shared token, after the farm has lost this device's
        secret. Return True if the next `settle` will enrol. Return False if the device has no
        secret of its own, or no shared token."""
        if self._own is None or not self._shared:
            return False
        log.warning("the farm no longer knows the secret of %s: enrolling again", self.device)
        self._name, self._enrolment, self._is_lost = self.device, "", True
        return True

    def _go_on_unenrolled(self) -> None:
        if not self._shared or not self._name:
            raise UsageError(
                "the broker's version is too old for enrolment; update the farm's server, or "
                "pass --token-file and --name"
            )
        log.warning(
            "the broker's version is too old for enrolment: this agent continues "
            "with the shared token"
        )

    def verifies(self, batch: device_pb2.Batch) -> bool:
        """Return whether the farm has signed a batch for this device."""
        if self._own is None:
            return signing.verify(self._shared, batch.manifest, batch.signature)
        words = (batch.lease, batch.fence, batch.manifest, batch.signature)
        return signing.verify_batch(self._own.secret, *words)

    def signature(self, lease: str, fence: int, result: bytes) -> bytes:
        """Return the signature of a result for a lease; empty if the device has no secret."""
        if self._own is None:
            return b""
        return signing.sign_report(self._own.secret, lease, fence, result)

    @property
    def _own(self) -> SecretFile | None:
        """The device's own secret, or None."""
        return self._kept if self._kept.secret and not self._is_lost else None

    @property
    def _is_invited(self) -> bool:
        """Return whether the operator passed an enrolment token that the device has not used
        yet."""
        return self._enrolment != "" and self._kept.token != _hashed(self._enrolment)

    def _keep(self, kept: SecretFile) -> None:
        assert self._path is not None
        try:
            kept.write(self._path)
        except OSError as error:
            raise UsageError(
                f"cannot write the device's secret to {self._path}: {error.strerror}"
            ) from None
        self._kept = kept


def _read(path: Path) -> SecretFile:
    try:
        return SecretFile.read(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(
            f"{path} does not contain a device's secret ({error}); remove the file, and enrol "
            "the device again"
        ) from None


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest() if token else ""
