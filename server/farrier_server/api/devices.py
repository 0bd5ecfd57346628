"""Devices: the machines that measure."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from farrier_farm import devices
from farrier_farm.devices import DeviceState
from farrier_server.context import FarmDep
from farrier_server.finite import finite
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/devices", tags=["devices"])


class DeviceView(BaseModel):
    """A device as it stands."""

    id: str
    state: DeviceState
    description: dict[str, Any] = Field(description="what its agent says: arch, cpu, features, …")
    seen: float = Field(description="Unix seconds of the last heartbeat")
    lease: str | None = Field(description="the measurement batch in hand")
    measured: int = Field(description="batches")
    faults: int = Field(description="batches lost to the device: drift, crashes of its agent")

    @classmethod
    def of(cls, device: devices.Device) -> DeviceView:
        return cls(
            id=device.id,
            state=device.state,
            description=finite(device.description),
            seen=device.seen,
            lease=device.lease,
            measured=device.measured,
            faults=device.faults,
        )


class DeviceList(BaseModel):
    """Every device that was ever registered and not forgotten."""

    devices: list[DeviceView]


@router.get("", responses=documented(503))
def list_devices(farm: FarmDep) -> DeviceList:
    """All devices, connected or not."""
    return DeviceList(devices=[DeviceView.of(device) for device in farm.devices.list()])
