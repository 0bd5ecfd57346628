"""Devices: the machines that measure."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from farrier_farm import devices
from farrier_farm.devices import DeviceState
from farrier_server.context import FarmDep
from farrier_server.finite import finite
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/devices", tags=["devices"])
DeviceId = Annotated[str, Path(description="of the device", max_length=100)]


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
    """Every device that was ever registered."""

    devices: list[DeviceView]


@router.get("", responses=documented(503))
def list_devices(farm: FarmDep) -> DeviceList:
    """All devices, connected or not."""
    return DeviceList(devices=[DeviceView.of(device) for device in farm.devices.list()])


@router.post("/{device_id}/release", responses=documented(404, 503))
def release_device(device_id: DeviceId, farm: FarmDep) -> DeviceView:
    """Ends a device's quarantine: whoever looked after it says that it measures well again."""
    return DeviceView.of(farm.devices.release(device_id))
