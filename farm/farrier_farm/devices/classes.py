"""Device classes: the devices of a class are so similar that a measurement on one of them is valid
for all.

A class has a compile `Target`. The id of the class is the name of its queue of measurement batches,
and the target's fingerprint selects the tuning records. The class of a device follows from the
machine that the device reports, or from the machine that its operator states (`farrier-device
--machine`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from farrier.errors import UsageError
from farrier.targets import Target, parse_machine, to_text
from farrier.targets.registry import backend_for
from farrier_device import codec
from farrier_device.describe import MachineDescription

_PLAIN = re.compile(r"[^a-z0-9]+")
_LONGEST = 40  # The most characters of a processor's name.
_DEVICE = "device:"
EMULATED = "-emulated"


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of devices. `description` is the description of a device of the class, without the
    memory size, on which no measurement depends."""

    id: str
    description: MachineDescription

    @property
    def target(self) -> Target:
        return _target(self.description)

    @property
    def emulated(self) -> bool:
        """Return whether the devices of the class are emulators, whose times differ from those of
        the hardware."""
        return self.description.emulated

    def to_text(self) -> str:
        """Return the description as JSON text, for `--target` and `from_text`."""
        return to_text(self.description)

    @classmethod
    def of(cls, machine: MachineDescription) -> DeviceClass:
        """Return the class of a machine. Its id, such as `cortex-a76-4c-1f0c9a7b`, consists of the
        processor and the number of cores, for readability, and of a digest of everything on which
        times depend. Raises UsageError for a machine for which no code can be generated."""
        description = dataclasses.replace(machine, memory_bytes=0)
        name = _PLAIN.sub("-", (machine.cpu or machine.arch).lower()).strip("-")[:_LONGEST]
        digest = _target(description).fingerprint[:8]
        mark = EMULATED if machine.emulated else ""
        return cls(f"{name.strip('-')}-{machine.cores}c-{digest}{mark}", description)

    @classmethod
    def from_text(cls, class_id: str, text: str) -> DeviceClass:
        """Return the class with this id from its stored JSON description."""
        return cls(class_id, parse_machine(text).description)


@dataclasses.dataclass(frozen=True, slots=True)
class MeasurementTarget:
    """The devices that measure a job's batches: any device of a class, or a particular device."""

    device_class: str
    device: str = ""

    @property
    def queue(self) -> str:
        """Return the name of the queue of batches for these devices. The queue of a particular
        device contains the name of its class, so that a device that reconnects as another machine
        measures no batch for its former class."""
        if not self.device:
            return self.device_class
        return f"{_DEVICE}{self.device_class}:{self.device}"

    @property
    def emulated(self) -> bool:
        return self.device_class.endswith(EMULATED)

    @classmethod
    def of_queue(cls, queue: str) -> MeasurementTarget:
        """Return the target whose batches are in a queue."""
        if not queue.startswith(_DEVICE):
            return cls(queue)
        device_class, _, device = queue.removeprefix(_DEVICE).partition(":")
        return cls(device_class, device)


def class_of_device(device: str, said: Mapping[str, Any]) -> DeviceClass:
    """Return the class of a device. `said` is the report of its agent: the fields of
    `MachineDescription`, and `machine` if the operator states the machine by name or description.

    Raises UsageError for a machine for which no code can be generated, and for a reported machine
    that contradicts the stated one.
    """
    try:
        here = codec.decode(MachineDescription, said)
    except ValueError as error:
        raise UsageError(
            f"the description that the device {device} reports is malformed: {error}"
        ) from None
    stated = str(said.get("machine", ""))
    if not stated:
        return DeviceClass.of(here)
    machine = parse_machine(stated)
    if machine.generic:
        raise UsageError(
            f"the device {device} is stated to be {stated}, which is an instruction set, not a "
            "machine",
            hint="use --machine with a machine that `farrier targets` lists, or with "
            "FILE.json, a description of one",
        )
    _check_can_be(device, here, machine.description)
    emulated = here.emulated or machine.description.emulated
    host = here.host or machine.description.host
    return DeviceClass.of(dataclasses.replace(machine.description, emulated=emulated, host=host))


def _check_can_be(device: str, here: MachineDescription, stated: MachineDescription) -> None:
    """Raise UsageError if code for the stated machine does not run on the reported machine
    `here`."""
    if here.arch != stated.arch:
        raise UsageError(
            f"the device {device} has the architecture {here.arch}, but is stated to be a "
            f"{stated.cpu}, which has {stated.arch}"
        )
    lacks = sorted(_target(stated).required_features - set(here.features))
    if lacks:
        raise UsageError(
            f"the device {device} is stated to be a {stated.cpu}, but lacks its features "
            f"{', '.join(lacks)}",
            hint="start its agent without --machine, so that it detects the machine itself",
        )


def _target(description: MachineDescription) -> Target:
    return backend_for(description.arch).target(description)
