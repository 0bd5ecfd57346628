"""The registry of devices: who is connected, what it is, and how far it can be trusted."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


class DeviceState(enum.StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"  # finishes its lease, takes no other
    QUARANTINED = "quarantined"  # too many faults in a row; an operator releases it
    OFFLINE = "offline"  # no heartbeat for `device_expiry_s`


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A snapshot. `description` is what the agent said of itself: `arch`, `cpu`, `features`, …"""

    id: str
    state: DeviceState
    description: dict[str, Any]
    session: str
    seen: float  # Unix seconds of the last heartbeat
    lease: str | None  # id of the batch being measured
    measured: int  # batches
    faults: int
    faults_in_a_row: int


class Devices:
    def connect(self, device_id: str, description: dict[str, Any]) -> str:
        """Opens a session and returns its id; the device's earlier session is fenced out."""
        raise NotImplementedError

    def heartbeat(self, device_id: str, session: str, *, draining: bool = False) -> Device:
        """Raises StaleSessionError."""
        raise NotImplementedError

    def disconnect(self, device_id: str, session: str) -> None:
        """Says goodbye; a stale session is ignored."""
        raise NotImplementedError

    def get(self, device_id: str) -> Device:
        """Raises NotFoundError."""
        raise NotImplementedError

    def list(self) -> list[Device]:
        raise NotImplementedError

    def require(self, target: str) -> list[Device]:
        """Connected devices that can run code for `target`; raises NoDeviceError where there is none."""
        raise NotImplementedError

    def release(self, device_id: str) -> Device:
        """Ends a quarantine."""
        raise NotImplementedError

    def forget(self, device_id: str) -> None:
        """Removes a device that is offline; ConflictError for one that is connected."""
        raise NotImplementedError


def compatible(target: str, description: dict[str, Any]) -> bool:
    """Whether code for `target` runs on a device of this description."""
    raise NotImplementedError
