"""The part of enrolment that operators use: enrolment tokens, and the standing (paused, drained or
revoked) and tags of each device. The broker's part of enrolment is in `async_enrolments.py`.

A device enrols once, with a short-lived token that is bound to the device's name, and has its own
secret from then on. The secret is derived from the farm's key, the name and a random generation, so
the farm stores no secrets: Redis contains the generation, and the hash of the enrolment token.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from farrier.errors import ConflictError, NotFoundError, UsageError
from farrier_farm.devices.devices import KEYS, script
from farrier_farm.errors import StaleLeaseError
from farrier_farm.leases.leases import Lease, Leases
from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings

NAME = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}"
TAG = r"[A-Za-z0-9][A-Za-z0-9._:=-]{0,49}"
MOST_TAGS = 20
EXPIRY_S = 3600.0  # The validity of an enrolment token in seconds: enough to carry it to a board.
LONGEST_EXPIRY_S = 30 * 86400.0
PAUSED, DRAINED, REVOKED = "paused", "drained", "revoked"
_PREFIX = "fde_"


@dataclasses.dataclass(frozen=True, slots=True)
class Invitation:
    """An enrolment token. It is returned only at its creation; `expires` is in Unix seconds of
    Redis's clock."""

    name: str
    token: str
    expires: float


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """The facts about a device that are stored independently of its sessions."""

    enrolled: float | None  # Unix seconds; None for a device with only the shared token.
    standing: str  # Paused, drained, revoked or "".
    tags: list[str]


class Enrolments:
    """The enrolments of a farm. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings, batches: Leases) -> None:
        self._client = client
        self._script = client.script(script(settings))
        self._batches = batches

    def invite(self, name: str, *, expires_s: float = EXPIRY_S, again: bool = False) -> Invitation:
        """Create a token with which a device can enrol once under this name. With `again`, the name
        may belong to an enrolled device, whose secret stays valid until the new device enrols. An
        earlier unused token for the name becomes invalid. Raises UsageError for a malformed name or
        time, ConflictError for a name that belongs to an enrolled device."""
        check_name(name)
        if not 0 < expires_s <= LONGEST_EXPIRY_S:
            raise UsageError(
                f"the expiry of an enrolment token cannot be {expires_s:g} s",
                hint=f"it must be more than 0 and at most {LONGEST_EXPIRY_S / 86400:.0f} days",
            )
        token = _PREFIX + secrets.token_urlsafe(32)
        words = hashed(token), "01"[again], str(int(expires_s * 1000) or 1)
        word, *rest = self._call("invite", name, *words)
        if word == "taken":
            raise ConflictError(
                f"the device {name} is already enrolled",
                hint=f"farrier devices add {name} --again replaces it, farrier devices "
                f"remove {name} removes it",
            )
        return Invitation(name, token, int(rest[0]) / 1000)

    def pause(self, device_id: str) -> None:
        """Pause the device: it gets no new batch until `resume` is called. Raises NotFoundError,
        and ConflictError if the device is revoked."""
        self._set_standing(device_id, PAUSED)

    def drain(self, device_id: str) -> None:
        """Drain the device: it gets no new batch until `resume` is called or its agent restarts.
        Raises NotFoundError, and ConflictError if the device is revoked."""
        self._set_standing(device_id, DRAINED)

    def resume(self, device_id: str) -> None:
        """End the effect of `pause` or `drain`. Raises NotFoundError, and ConflictError if the
        device is revoked."""
        self._set_standing(device_id, "")

    def revoke(self, device_id: str) -> None:
        """End the device's session, and refuse the device until it enrols again with a newer token.
        Its batch goes back to the queue. Raises NotFoundError."""
        batch = self._set_standing(device_id, REVOKED)
        if not batch:
            return
        with contextlib.suppress(NotFoundError, StaleLeaseError):
            fields = self._batches.fields(batch)
            if fields.get("owner") == device_id:
                lease = Lease(batch, int(fields["fence"]), 0, device_id)
                reason = f"{device_id} was revoked"
                self._batches.give_back(lease, crashed=False, reason=reason)

    def tag(self, device_id: str, tags: Iterable[str]) -> None:
        """Replace the device's tags. Raises NotFoundError, UsageError."""
        wanted = sorted(set(tags))
        for tag in wanted:
            if not re.fullmatch(TAG, tag):
                raise UsageError(
                    f"{tag!r} is not a valid tag",
                    hint="a tag has at most 50 letters, digits and . _ : = -, and begins "
                    "with a letter or a digit",
                )
        if len(wanted) > MOST_TAGS:
            raise UsageError(f"a device has at most {MOST_TAGS} tags, not {len(wanted)}")
        self._known(device_id, self._call("tag", device_id, " ".join(wanted)))

    def remove(self, device_id: str) -> None:
        """Remove the device: its name is free again, and its secret becomes invalid. Raises
        NotFoundError, and ConflictError if the device is connected and not revoked."""
        answer = self._call("remove", device_id)
        if answer[0] == "there":
            raise ConflictError(
                f"the device {device_id} is connected",
                hint="stop its agent, or revoke the device first: farrier devices revoke "
                f"{device_id}",
            )
        self._known(device_id, answer)

    def about(self, device_id: str) -> About:
        """Return the facts about a device that are stored independently of its sessions. All fields
        are empty for an unknown device."""
        key = f"farrier:standing:{device_id}"
        words = self._client.command("HMGET", key, "enrolled", "standing", "tags")
        enrolled, standing, tags = words
        at = None if enrolled is None else int(enrolled) / 1000
        return About(at, standing or "", (tags or "").split())

    def standing(self, name: str) -> str | None:
        """Return the standing of an enrolled device: `paused`, `drained`, `revoked`, or "" for a
        device in normal operation. Return None for a device that is not enrolled."""
        key = f"farrier:standing:{name}"
        generation, standing = self._client.command("HMGET", key, "generation", "standing")
        return None if generation is None else standing or ""

    def _set_standing(self, device_id: str, standing: str) -> str:
        """Set the standing of a device. Return the id of the batch that the device is measuring."""
        answer = self._call("set_standing", device_id, standing)
        if answer[0] == "revoked":
            raise ConflictError(
                f"the device {device_id} is revoked",
                hint=f"farrier devices add {device_id} --again allows it to enrol again",
            )
        return str(self._known(device_id, answer)[1])

    def _known(self, device_id: str, answer: Sequence[Any]) -> Sequence[Any]:
        if answer[0] == "unknown":
            raise NotFoundError(
                f"no device {device_id!r}", hint="`farrier devices` lists the known devices"
            )
        return answer

    def _call(self, operation: str, device_id: str, *args: str) -> Sequence[Any]:
        answer: Sequence[Any] = self._script(KEYS, [operation, device_id, *args])
        return answer


def check_name(name: str) -> None:
    """Raise UsageError for a text that is not a valid device name."""
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"{name!r} is not a valid name of a device",
            hint="a name has at most 100 letters, digits and . _ : -, and begins with a "
            "letter or a digit",
        )


def hashed(secret: bytes | str) -> str:
    """Return the hash that the farm stores in place of an enrolment token or a nonce."""
    data = secret.encode() if isinstance(secret, str) else secret
    return hashlib.sha256(data).hexdigest()
