"""Device classes: the kinds of machines that this farm can compile for and measure on."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from farrier_farm.devices.classes import DeviceClass
from farrier_farm.devices.devices import Device
from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/classes", tags=["devices"])


class ClassView(BaseModel):
    """A device class: devices so similar that a measurement on one of them is valid for all."""

    id: str = Field(
        description="The id of the class. A job with the target `class:ID` is compiled for this "
        "class."
    )
    description: dict[str, Any] = Field(
        description="The description of one of the class's machines: arch, cpu, cores, …."
    )
    emulated: bool = Field(
        description="True if the devices are emulators, whose times differ from those of the "
        "hardware."
    )
    connected: int = Field(description="The number of connected devices of the class.")

    engines: dict[str, list[str]] = Field(
        description="The other inference engines with which models can be compared on a "
        "connected device: versions by name."
    )

    @classmethod
    def of(cls, device_class: DeviceClass, connected: Sequence[Device]) -> ClassView:
        versions = sorted({engine for device in connected for engine in device.engines.items()})
        engines: dict[str, list[str]] = {}
        for name, version in versions:
            engines.setdefault(name, []).append(version)
        return cls(
            id=device_class.id,
            description=dataclasses.asdict(device_class.description),
            emulated=device_class.emulated,
            connected=len(connected),
            engines=engines,
        )


class ClassList(BaseModel):
    """All classes to which a registered device has ever belonged."""

    classes: list[ClassView]


@router.get("", responses=documented(503))
def list_classes(farm: FarmDep) -> ClassList:
    """Return all device classes, including those without a connected device."""
    connected = collections.defaultdict[str, list[Device]](list)
    for device in farm.devices.connected():
        connected[device.device_class].append(device)
    classes = farm.devices.classes()
    return ClassList(
        classes=[ClassView.of(device_class, connected[device_class.id]) for device_class in classes]
    )
