"""The errors that only the farm raises: a lost lease, an unknown device, a full Redis."""

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
    """A lease that expired, was taken over, or whose item reached a final state: stop working on
    it."""

    code: ClassVar[str] = "stale-lease"


class StaleSessionError(ConflictError):
    """A session that is not the device's newest, or none: open a new session."""

    code: ClassVar[str] = "stale-session"


class FencedOutError(StaleSessionError):
    """A session that another instance of the device's agent has replaced: stop."""


class UnknownDeviceError(AuthenticationError):
    """A credential that belongs to no device, or no longer does: the device has to enrol."""


class DeviceRefusedError(AuthenticationError):
    """A caller that is recognised but may not act as the device: it stops."""


class DeviceAwayError(NoDeviceError):
    """No device of the target's kind is connected, or each is in quarantine, which may change."""


class StoreFullError(ServiceError, StorageError):
    """Redis lacks the room to store what it should acknowledge. Workers wait, as for any outage,
    and go on when there is room; users receive what lacks room, and where. `is_answer` is true if
    Redis itself reported it, and still answers reads."""

    code: ClassVar[str] = StorageError.code
    exit_code: ClassVar[int] = StorageError.exit_code
    http_status: ClassVar[int] = StorageError.http_status

    def __init__(self, message: str, *, hint: str = "", is_answer: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_answer = is_answer
