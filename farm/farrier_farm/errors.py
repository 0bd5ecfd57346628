"""The errors that only the farm raises: a lease has been lost, a device does not exist, Redis has
no room."""

from __future__ import annotations

from typing import ClassVar

from farrier.errors import (
    AuthenticationError,
    ConflictError,
    NoDeviceError,
    ServiceError,
    StorageError,
)


class StaleLeaseError(ConflictError):
    """The lease expired, was taken over, or its item reached a final state: stop working on it."""

    code: ClassVar[str] = "stale-lease"


class StaleSessionError(ConflictError):
    """The device has opened a newer session, or none yet: open a new session."""

    code: ClassVar[str] = "stale-session"


class FencedOutError(StaleSessionError):
    """Another instance of the device's agent has opened a newer session: stop."""


class UnknownDeviceError(AuthenticationError):
    """The caller's credential belongs to no device, or no longer does: the device has to enrol."""


class DeviceRefusedError(AuthenticationError):
    """The caller is known, and may not act as the device: it stops."""


class DeviceAwayError(NoDeviceError):
    """No device of the target's kind is connected, or each is in quarantine: another time there may
    be one."""


class StoreFullError(ServiceError, StorageError):
    """Redis has no room to store what it is to acknowledge. Who works waits, as for any outage, and
    goes on when there is room; who asks is told what lacks room, and where. `is_answer` where Redis
    said so itself, and answers what only reads."""

    code: ClassVar[str] = StorageError.code
    exit_code: ClassVar[int] = StorageError.exit_code
    http_status: ClassVar[int] = StorageError.http_status

    def __init__(self, message: str, *, hint: str = "", is_answer: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_answer = is_answer
