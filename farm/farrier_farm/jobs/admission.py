"""Admission: the target of a job is resolved once, when the job is submitted, to the machine for
which code is generated and the devices that measure it.

| target | code for | measured by |
|---|---|---|
| a description, a machine's name | that machine | its class |
| `x86-64-v3`, an instruction set | a class that has it, with no other extension | that class |
| `webgpu:m1`, a GPU | a class of that GPU, with whatever host | that class |
| `rpi5+webgpu`, a GPU and its host | a class of that GPU with that host | that class |
| `class:ID` | the class | the class |
| `device:NAME` | the device's class | the device alone |
| `host`, or nothing | the only class that is connected | that class |

The command line and the SDK send a description of their own machine instead of `host`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.errors import NoDeviceError, NotFoundError, UsageError
from farrier.targets import KnownMachine, driver_and_device, parse_machine, to_text
from farrier.targets.registry import backend_for
from farrier_device.describe import MachineDescription
from farrier_farm.devices.classes import EMULATED, DeviceClass, MeasurementTarget
from farrier_farm.devices.devices import Device, Devices, DeviceState
from farrier_farm.devices.presence import ClassPresence
from farrier_farm.errors import DeviceAwayError

_LISTED = 8  # The most classes or devices that an error names.
_LOOKED_AT = 100  # The most devices of a class that are searched for the reason why none gets work.


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """The resolved target of a job. `target` is the JSON description of the machine for which code
    is generated; `place` are the devices that measure."""

    target: str
    place: MeasurementTarget


class Admission:
    """The resolver of job targets. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    def admit(self, target: str, *, measured: bool) -> Admitted:
        """Return the resolved target of a job, from its `target` in any form of the table above.
        `measured` states whether the job needs a device.

        Raises UsageError for an unknown target, NotFoundError for an unknown class or device.
        Raises DeviceAwayError if `target` is an instruction set or a GPU, `measured` is true, and
        no connected device runs code for it; the error names the connected classes.
        """
        kind, _, name = target.partition(":")
        if kind == "class":
            return _admitted(self._class(name))
        if kind == "device":
            named = self._devices.get(name)
            if not named.device_class:
                raise self._away(
                    f"{target} has not connected since the farm introduced device classes"
                )
            return _admitted(self._class(named.device_class), name)
        if target in ("", "host"):
            return _admitted(self._only_class())
        driver, device = driver_and_device(target)
        if driver == "host":  # Any host, as if no host were named.
            driver, target = "", device
        machine = parse_machine(target)
        host = parse_machine(driver) if driver else None
        if machine.generic and measured:
            return self._generic(target, machine, host)
        place = self._place_of(machine)
        if measured and _has_a_host(machine) and not self.is_served(place):
            return self._generic(target, machine, host)
        return Admitted(to_text(machine.description), place)

    def require(self, place: MeasurementTarget) -> None:
        """Raise DeviceAwayError unless a connected device of `place` (a device class or a single
        device) may get batches. The error names alternative targets."""
        if self.is_served(place):
            return
        devices = self._devices_of(place)
        if place.device and devices[0].device_class != place.device_class:
            raise DeviceAwayError(
                f"{_called(place)} is now of class:{devices[0].device_class}, but the job is "
                f"for class:{place.device_class}",
                hint="submit the job again, or restart the agent so that it reports its former "
                "machine",
            )
        revoked = DeviceState.REVOKED
        there = [device for device in devices if device.connected or device.state is revoked]
        if not there and not place.device:
            there = [*self._devices.revoked(place.device_class)]
        if there:
            raise _no_work(place, there)
        raise self._away(f"no device for {_called(place)} is connected")

    def is_served(self, place: MeasurementTarget) -> bool:
        """Return whether a connected device of `place` (a device class or a single device) may
        get batches. The check is a single script, whose cost does not depend on the number of
        devices."""
        return self._devices.is_there(place.device_class, place.device)

    def serving(self, place: MeasurementTarget) -> int:
        """Return the number of connected devices of `place` (a device class or a single device)
        that may get batches. The query is a single command, whose cost does not depend on the
        number of devices."""
        if place.device:
            return int(self.is_served(place))
        return self._devices.serving(place.device_class)

    def place_with(
        self, place: MeasurementTarget, engine: str, preferred: str = ""
    ) -> MeasurementTarget:
        """Return a single device of `place` (a device class or a single device) on which the
        inference engine `engine` is installed, to compare the engine with Farrier. The device
        `preferred` is returned if it has the engine.

        Raises NoDeviceError if no device has the engine; its hint states what to install. The query
        is a single script, whose cost does not depend on the number of devices.
        """
        devices = self._devices.with_engine(engine, place.device_class, place.device)
        if not devices:
            called = _called(place)
            who = f"{called} does not run" if place.device else f"no device of {called} runs"
            raise NoDeviceError(
                f"{who} {engine}, or it cannot get work at present",
                hint="on such a device: pip install 'farrier[device,engines]', and start "
                "its agent with --engines",
            )
        return MeasurementTarget(
            place.device_class, preferred if preferred in devices else devices[0]
        )

    def _devices_of(self, place: MeasurementTarget) -> Sequence[Device]:
        if not place.device:
            return self._devices.of_class(place.device_class, _LOOKED_AT)
        try:
            return [self._devices.get(place.device)]
        except NotFoundError:
            raise self._away(f"{_called(place)} was removed from the farm") from None

    def _class(self, class_id: str) -> DeviceClass:
        device_class = self._devices.device_class(class_id)
        if device_class is None:
            raise NotFoundError(
                f"there is no device class {class_id!r}", hint=_hint(self._connected())
            )
        return device_class

    def _place_of(self, machine: KnownMachine) -> MeasurementTarget:
        """Return the device class of a machine. If only emulators of the machine are connected,
        return the class of the emulators instead."""
        real = DeviceClass.of(machine.description)
        emulated = DeviceClass.of(dataclasses.replace(machine.description, emulated=True))
        is_there = [
            self.is_served(MeasurementTarget(candidate.id)) for candidate in (real, emulated)
        ]
        return MeasurementTarget(emulated.id if is_there == [False, True] else real.id)

    def _only_class(self) -> DeviceClass:
        there = self._connected()
        if len(there) == 1:
            return self._class(next(iter(there)))
        if not there:
            raise self._away("no device is connected, and the job names no target")
        raise UsageError(
            "the job names no target, and there are devices of several classes",
            hint=_hint(there),
        )

    def _generic(self, name: str, machine: KnownMachine, host: KnownMachine | None) -> Admitted:
        """Return a resolved target for an instruction set, or for a GPU and the `host` that drives
        the GPU (any host if None): a connected device class that runs this code.

        If several classes qualify, the one with the most devices that may get batches is returned.
        Classes of emulators rank after classes of real devices, and classes without an available
        device rank last. Raises DeviceAwayError if no class qualifies.
        """
        needed = set(machine.description.features)
        there = self._connected()

        def rank(candidate: DeviceClass) -> tuple[bool, bool, int, str]:
            serving = there[candidate.id].serving
            return serving == 0, candidate.id.endswith(EMULATED), -serving, candidate.id

        classes = [
            device_class for device_class in self._devices.classes() if device_class.id in there
        ]
        for device_class in sorted(classes, key=rank):
            have = device_class.description
            is_kind = have.arch == machine.description.arch and needed <= set(have.features)
            is_kind &= host is None or _is_driven_by(have, host)
            if is_kind and (machine.generic or have.cpu.startswith(machine.description.cpu)):
                limited = dataclasses.replace(have, features=machine.description.features)
                if host is not None:
                    limited = dataclasses.replace(limited, host=machine.description.host)
                return Admitted(to_text(limited), MeasurementTarget(device_class.id))
        raise self._away(f"no device that can run code for {name} is connected")

    def _connected(self) -> Mapping[str, ClassPresence]:
        """Return the presence of each class that has a connected device, by class id. Devices
        without a class, which an older broker registered, are not included."""
        return self._devices.presence.classes()

    def _away(self, message: str) -> DeviceAwayError:
        return DeviceAwayError(message, hint=_hint(self._connected()))


def _has_a_host(machine: KnownMachine) -> bool:
    """Return whether a machine is an accelerator, such as a GPU, that another machine drives."""
    target = backend_for(machine.description.arch).target(machine.description)
    return len(target.backend.parts(target)) > 1


def _is_driven_by(device: MachineDescription, host: KnownMachine) -> bool:
    """Return whether the machine that drives `device` can run code that was compiled for `host`."""
    if not device.host:
        return False
    have, wanted = parse_machine(device.host).description, host.description
    runs = have.arch == wanted.arch and set(wanted.features) <= set(have.features)
    return runs and (host.generic or have.cpu == wanted.cpu)


def _admitted(device_class: DeviceClass, device: str = "") -> Admitted:
    return Admitted(device_class.to_text(), MeasurementTarget(device_class.id, device))


def _no_work(place: MeasurementTarget, devices: Sequence[Device]) -> DeviceAwayError:
    """Return the error for `devices` none of which may get batches. The message states the reasons,
    and the hint the way to change this."""
    reasons = [_why_no_work(device) for device in devices[:_LISTED]]
    more = " and others" if len(devices) > _LISTED else ""
    causes = "; ".join(why for why, _ in reasons)
    ways_out = dict.fromkeys(way_out for _, way_out in reasons)
    return DeviceAwayError(
        f"no device for {_called(place)} can get work: {causes}{more}", hint="; ".join(ways_out)
    )


def _why_no_work(device: Device) -> tuple[str, str]:
    """Return the reason why a device may not get batches, and a hint that states how to change
    this."""
    name = device.id
    resume = f"`farrier devices resume {name}`"
    match device.state:
        case DeviceState.QUARANTINED:
            last = f" (the last fault: {device.last_fault})" if device.last_fault else ""
            release = f"find the cause of its faults, then `farrier devices release {name}`"
            return f"{name} is in quarantine{last}", release
        case DeviceState.UNFIT:
            return f"{name} cannot measure: {device.unfit}", f"restart the agent of {name}"
        case DeviceState.PAUSED:
            return f"{name} is paused", resume
        case DeviceState.REVOKED:
            again = f"`farrier devices add {name} --again` allows it to return"
            return f"{name} was revoked", again
        case _ if device.standing:
            return f"{name} is drained", f"restart its agent, or {resume}"
        case DeviceState.DRAINING:
            why = f"{name} accepts no work: it is draining, or cannot measure"
            return why, f"see the log of the agent of {name}"
        case _:
            return f"{name} accepted no work just now", "`farrier devices` shows its state"


def _called(place: MeasurementTarget) -> str:
    return f"device:{place.device}" if place.device else f"class:{place.device_class}"


def _hint(there: Mapping[str, ClassPresence]) -> str:
    """Return a hint that lists the connected device classes in `there`, any of which can be named
    as target."""
    if not there:
        return "start `farrier device` on a machine of that kind"
    counts = {class_id: there[class_id].connected for class_id in sorted(there)[:_LISTED]}
    shown = [f"class:{class_id} ({count} connected)" for class_id, count in counts.items()]
    more = f" and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
    return (
        f"connected are {', '.join(shown)}{more}; or start `farrier device` on a machine of "
        "that kind"
    )
