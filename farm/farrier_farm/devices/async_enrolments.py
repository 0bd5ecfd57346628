"""The broker's part of the enrolment of devices, in which a device gets its own secret; for an
event loop."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import secrets
from typing import Any

from farrier.errors import UsageError
from farrier_device.protocol.credentials import Bearer, Enrolled, Invited
from farrier_farm.access import tokens
from farrier_farm.devices.devices import KEYS, script
from farrier_farm.devices.enrolments import check_name, hashed
from farrier_farm.errors import DeviceRefusedError, UnknownDeviceError
from farrier_farm.redis.async_connection import AsyncClient
from farrier_farm.settings import Settings

_PURPOSE = b"farrier-device-secret-v1"
_NONCE_BYTES = 16  # Long enough that no two nonces are ever the same.


@dataclasses.dataclass(frozen=True, slots=True)
class OwnSecret:
    """The secret of a device, which brokers derive from the farm's key."""

    device: str
    generation: str
    secret: str = dataclasses.field(repr=False)


class Secrets:
    """The secrets of a farm's devices, by device name and generation, a random text that each
    enrolment creates."""

    def __init__(self, key: str) -> None:
        self._key = hmac.digest(key.encode(), _PURPOSE, hashlib.sha256)

    def of(self, device: str, generation: str) -> OwnSecret:
        text = f"{len(device)}:{device}:{generation}".encode()
        secret = hmac.new(self._key, text, hashlib.sha256).hexdigest()
        return OwnSecret(device, generation, secret)

    def proven(self, caller: Enrolled) -> OwnSecret | None:
        """Return the secret of the device that `caller` claims to be. Return None if `caller` does
        not prove that it has this secret."""
        own = self.of(caller.device, caller.generation)
        return own if caller.proves(own.secret) else None


class Enrolling:
    """The enrolment of devices. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: AsyncClient, settings: Settings, its_secrets: Secrets) -> None:
        self._script = client.script(script(settings))
        self._secrets = its_secrets
        self._is_open = settings.open_enrolment

    async def enrol(self, caller: Bearer | Invited, device: str, nonce: bytes) -> OwnSecret:
        """Enrol a device and return its new secret; a repeated call with the same nonce returns the
        same secret. The caller has checked the shared token if `caller` uses it. Raises UsageError
        for a malformed request, UnknownDeviceError for an unknown token, and DeviceRefusedError for
        a token that is no longer valid or a name that belongs to another device."""
        if len(nonce) < _NONCE_BYTES:
            raise UsageError(f"the nonce has {len(nonce)} bytes, but must have {_NONCE_BYTES}")
        token = hashed(caller.token) if isinstance(caller, Invited) else ""
        if device or not token:
            check_name(device)
        if not token and not self._is_open:
            raise DeviceRefusedError(
                f"the device {device} needs an enrolment token on this farm",
                hint=f"farrier devices add {device} makes one",
            )
        words = [device, hashed(nonce), token, secrets.token_hex(8)]
        word, *rest = await self._script(KEYS, ["enrol", *words])
        if word != "ok":
            raise _refusal(word, device, *rest)
        return self._secrets.of(str(rest[0]), str(rest[1]))


def _refusal(word: str, device: str, *about: Any) -> Exception:
    """Return the error for a device that cannot enrol. `word` is the reason that the Lua script
    returned, such as `expired`; `about` are its further values. The hint states how the device can
    enrol."""
    named = str(about[0]) if about else device
    shown = named or "NAME"
    anew = f"farrier devices add {device or 'NAME'} makes a new one"
    match word:
        case "no-invitation":
            return UnknownDeviceError(
                "this enrolment token is unknown or invalid: a later token may have replaced "
                "it, or the device was revoked or removed",
                hint=anew,
            )
        case "used":
            return DeviceRefusedError(f"the enrolment token was already used by {named}", hint=anew)
        case "expired":
            ago = int(about[0]) / 1000
            return DeviceRefusedError(f"the enrolment token expired {ago:.0f} s ago", hint=anew)
        case "named":
            return DeviceRefusedError(
                f"the enrolment token is for the device {named}, not for {device}",
                hint=f"use --name {named}, or omit --name",
            )
        case "invited":
            return DeviceRefusedError(
                f"the name {named} is reserved for the device that has its enrolment token",
                hint="start the agent with --enrol TOKEN",
            )
        case "revoked":
            return DeviceRefusedError(
                f"the device {named} was revoked",
                hint=f"to let it return: farrier devices add {shown} --again",
            )
        case "owned":
            return DeviceRefusedError(
                f"a device has already enrolled as {named}",
                hint="choose another --name for this device; if it is the same device: "
                f"farrier devices remove {shown}, or farrier devices add {shown} --again, "
                "and enrol again",
            )
        case _:
            return UsageError(
                "neither the enrolment token nor the agent states the name of the device",
                hint="start the agent with --name NAME",
            )


def is_shared(caller: Bearer, token: str) -> bool:
    """Return whether the caller has the token that the farm's devices share."""
    return tokens.matches(caller.token, token)
