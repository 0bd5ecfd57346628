"""The errors that only the farm raises, such as a lost lease, an unknown device, or a full
Redis."""

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
    """The error for a lease that expired, was taken over, or whose item reached a final state. Its
    holder has to stop work on the item."""

    code: ClassVar[str] = "stale-lease"


class StaleSessionError(ConflictError):
    """The error for a session that does not exist or is not the device's newest. The device has to
    open a new session."""

    code: ClassVar[str] = "stale-session"


class FencedOutError(StaleSessionError):
    """The error for a session that another instance of the device's agent has replaced. The agent
    has to stop."""


class UnknownDeviceError(AuthenticationError):
    """The error for a credential that does not belong to a device, or no longer does. The device
    has to enrol."""


class DeviceRefusedError(AuthenticationError):
    """The error for an authenticated caller that may not act as the device. The agent has to
    stop."""


class DeviceAwayError(NoDeviceError):
    """The error for a target whose devices cannot take work now: no device is connected, or each
    connected device is in quarantine. The same request may succeed later."""


class StoreFullError(ServiceError, StorageError):
    """The error for a write for which Redis has no room. Workers wait and continue when there is
    room; the message names the full disk or memory limit to users. `is_answer` is true if Redis
    itself reported the error: then Redis still answers reads."""

    code: ClassVar[str] = StorageError.code
    exit_code: ClassVar[int] = StorageError.exit_code
    http_status: ClassVar[int] = StorageError.http_status

    def __init__(self, message: str, *, hint: str = "", is_answer: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_answer = is_answer
