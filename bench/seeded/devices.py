"""The devices of a seeded farm: idle, busy, quarantined, hot, unsuitable, emulated,
disconnected."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence
from typing import Any

from farrier.targets import parse_machine, to_text
from farrier_device.describe import MachineDescription
from farrier_farm.broker import DeviceSide
from farrier_farm.devices.classes import DeviceClass, MeasurementTarget
from farrier_farm.farm import Farm
from farrier_farm.jobs.admission import Admitted

MACHINES = ("rpi4", "rpi5", "graviton3", "jetson-orin", "x86-64-v3")
AWAY = "graviton4"  # A machine without devices.
_BATCHES = 12  # The batches in each history.

_FAULT = "drifted: the reference took 1.34 times what it took before; <b>cool the board</b>"
_UNFIT = "its agent is of version 0.3 and knows no bf16; update it: pip install -U farrier"


@dataclasses.dataclass(slots=True)
class SeededDevice:
    """A device to seed, and the state in which it is shown."""

    id: str
    machine: MachineDescription
    mood: str  # One of idle, busy, hot, quarantined, unfit, draining and offline.
    session: str = ""


def machine_of(name: str, *, emulated: bool = False) -> MachineDescription:
    return dataclasses.replace(parse_machine(name).description, emulated=emulated)


def admitted_on(name: str) -> Admitted:
    """Return the resolved target of a job for a class of machines, which need not be connected."""
    machine = machine_of(name)
    return Admitted(to_text(machine), MeasurementTarget(DeviceClass.of(machine).id))


def planned(count: int) -> list[SeededDevice]:
    """Return `count` devices to seed: most are idle or busy, and some are in each of the other
    states."""
    moods = ["busy", "idle", "hot", "busy", "idle", "quarantined", "idle", "busy", "offline"]
    moods += ["idle", "unfit", "draining"]
    devices = []
    for number in range(count):
        name = MACHINES[number % len(MACHINES)]
        emulated = number % 13 == 12
        kind = f"{name}-qemu" if emulated else name
        machine = machine_of(name, emulated=emulated)
        devices.append(SeededDevice(f"{kind}-{number:03d}", machine, moods[number % len(moods)]))
    return devices


class Fleet:
    """Seeded devices, which stay connected while `beat` is called every few seconds."""

    def __init__(self, farm: Farm, devices: Sequence[SeededDevice], draw: random.Random) -> None:
        self._farm = farm
        self._devices = devices
        self._draw = draw
        self._side = DeviceSide.of(farm)
        self._fence = 0

    async def connect(self) -> None:
        """Register all devices, with a history of batches."""
        for device in self._devices:
            said = {**dataclasses.asdict(device.machine), "version": "0.4.0", "sandbox": "seccomp"}
            device.session = await self._side.sessions.connect(device.id, said, "seeded")
            if device.mood != "offline":
                for _ in range(_BATCHES):
                    await self._measure(device, self._draw.uniform(0.5, 40))
            await self._take_up(device)
        await self.beat()

    async def beat(self) -> None:
        """Send a heartbeat for all connected devices, and renew the leases of busy ones."""
        for device in self._devices:
            if device.mood == "offline":
                continue
            if device.mood == "busy":
                await self._measure(device, self._draw.uniform(2, 5))
                await self._hold(device)
            await self._side.sessions.heartbeat(
                device.id,
                device.session,
                draining=device.mood == "draining" or None,
                health=self._health(device),
            )

    async def close(self) -> None:
        await self._side.close()

    async def _take_up(self, device: SeededDevice) -> None:
        sessions, words = self._side.sessions, (device.id, device.session)
        match device.mood:
            case "busy":
                await self._hold(device)
            case "quarantined":
                for _ in range(self._farm.settings.quarantine_faults):
                    self._fence += 1
                    batch = await self._hold(device)
                    await sessions.settle(*words, batch, self._fence, fault=True, reason=_FAULT)
            case "unfit":
                await sessions.decline(*words, await self._hold(device), _UNFIT)
            case "offline":  # It was seen an hour ago.
                key, seen = f"farrier:device:{device.id}", int((time.time() - 3600) * 1000)
                self._farm.client.command("HSET", key, "seen", seen)

    async def _hold(self, device: SeededDevice) -> str:
        self._fence += 1
        batch = f"seeded-{device.id}-{self._fence}"
        await self._side.sessions.hold(device.id, device.session, batch)
        return batch

    async def _measure(self, device: SeededDevice, seconds: float) -> None:
        """Lease and finish a batch for a device, with times as if it had begun `seconds` ago."""
        batch = await self._hold(device)
        key, held = f"farrier:device:{device.id}", int((time.time() - seconds) * 1000)
        self._farm.client.command("HSET", key, "held", held)
        words = (device.id, device.session, batch, self._fence)
        await self._side.sessions.settle(*words, fault=False)

    def _health(self, device: SeededDevice) -> dict[str, Any]:
        celsius = self._draw.uniform(81, 86) if device.mood == "hot" else self._draw.uniform(38, 62)
        health: dict[str, Any] = {
            "celsius": round(celsius, 1),
            "limit_celsius": 80.0,
            "clock_mhz": 1200 if device.mood == "hot" else 1800,
            "max_clock_mhz": 1800,
        }
        if device.mood == "hot":
            health |= {"throttled": "soft temperature limit", "throttles": 17, "waits": "to cool"}
        return health
