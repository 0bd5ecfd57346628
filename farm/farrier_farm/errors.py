"""What only the farm raises: a holder holds nothing any more, or a device is not there."""

from __future__ import annotations

from typing import ClassVar

from farrier.errors import ConflictError, NoDeviceError


class StaleLeaseError(ConflictError):
    """The lease expired, was taken over, or its item reached a final state: stop working on it."""

    code: ClassVar[str] = "stale-lease"


class StaleSessionError(ConflictError):
    """The device has opened a newer session, or none yet: open a new session."""

    code: ClassVar[str] = "stale-session"


class FencedOutError(StaleSessionError):
    """Another instance of the device's agent has opened a newer session: stop."""


class DeviceAwayError(NoDeviceError):
    """No device of the target's kind is connected, or each is in quarantine: another time there may
    be one."""
