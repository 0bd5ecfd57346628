"""The registry of devices: who is connected, what it is, and how far it can be trusted."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from farrier.errors import NotFoundError, UsageError
from farrier.targets import called, parse_target
from farrier_farm.connection import Client
from farrier_farm.errors import DeviceAwayError, StaleSessionError
from farrier_farm.settings import Settings

LONGEST_REST_S = 30.0  # after many faults in a row, as in `devices.lua`


class DeviceState(enum.StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"  # finishes its lease, takes no other
    QUARANTINED = "quarantined"  # too many faults in a row; an operator releases it
    OFFLINE = "offline"  # no heartbeat for `device_expiry_s`


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A snapshot. `description` is what the agent said of itself: the fields of
    `farrier_device.describe.MachineDescription`, perhaps more."""

    id: str
    state: DeviceState
    description: dict[str, Any]
    session: str
    seen: float  # Unix seconds of the last sign of life
    lease: str | None  # id of the batch being measured
    measured: int  # batches
    faults: int
    faults_in_a_row: int
    resting: bool  # after a fault, for a while

    @property
    def connected(self) -> bool:
        return self.state is not DeviceState.OFFLINE

    @property
    def takes_work(self) -> bool:
        """Whether it may lease a batch now."""
        return self.state in (DeviceState.IDLE, DeviceState.BUSY) and not self.resting


class Devices:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        text = resources.files(__package__).joinpath("devices.lua").read_text()
        self._script = client.script(text)

    def connect(self, device_id: str, description: Mapping[str, Any], instance: str = "") -> str:
        """The session of this instance of the device's agent, opened if it has none (an instance
        without a name has none); that of any other instance is fenced out."""
        text = json.dumps(dict(description))
        return self._call("connect", device_id, secrets.token_hex(8), text, instance)

    def close_sessions(self, layers: str) -> list[str]:
        """Has the devices register again whose sandbox lacks one of `layers` (`seccomp+landlock`);
        returns their ids."""
        weak = [d.id for d in self.list() if d.session and missing_layers(layers, d.description)]
        for device_id in weak:
            self._call("close", device_id)
        return weak

    def heartbeat(self, device_id: str, session: str, *, draining: bool | None = None) -> Device:
        """A sign of life; None leaves `draining` as it is. Raises StaleSessionError."""
        self._call("heartbeat", device_id, session, "" if draining is None else "01"[draining])
        return self.get(device_id)

    def hold(self, device_id: str, session: str, batch_id: str) -> None:
        """Notes what the device measures. Raises StaleSessionError."""
        self._call("hold", device_id, session, batch_id)

    def settle(
        self, device_id: str, session: str, batch_id: str, fence: int, *, fault: bool
    ) -> None:
        """Counts an attempt at a batch that is over, once. Raises StaleSessionError."""
        self._call("settle", device_id, session, batch_id, str(fence), "01"[fault])

    def let_go(self, device_id: str, batch_id: str) -> None:
        """Notes that the device measures the batch no more, and counts nothing."""
        self._call("let_go", device_id, "", batch_id)

    def get(self, device_id: str) -> Device:
        """Raises NotFoundError."""
        fields: dict[str, str] = self._client.command("HGETALL", f"farrier:device:{device_id}")
        if not fields:
            raise NotFoundError(f"no device {device_id!r}")
        return self._device(device_id, fields)

    def list(self) -> list[Device]:
        """All that ever connected, by id."""
        ids: set[str] = self._client.command("SMEMBERS", "farrier:device")
        found = [(i, self._client.command("HGETALL", f"farrier:device:{i}")) for i in sorted(ids)]
        return [self._device(device_id, fields) for device_id, fields in found]

    def require(self, target: str) -> Sequence[Device]:
        """Connected devices that can run code for `target`; raises DeviceAwayError where there is
        none."""
        return _usable(target, self.list())

    def served(self, targets: Iterable[str]) -> Sequence[str]:
        """Those of the targets for which there is a device, as `require` sees it."""
        devices = self.list()
        served = []
        for target in targets:
            # a target that only a newer worker knows has no device either
            with contextlib.suppress(DeviceAwayError, UsageError):
                _usable(target, devices)
                served.append(target)
        return served

    def release(self, device_id: str) -> Device:
        """Ends a quarantine. Raises NotFoundError."""
        self.get(device_id)
        self._call("release", device_id)
        return self.get(device_id)

    def _call(self, operation: str, device_id: str, *args: str) -> str:
        keys = ["farrier:device", "farrier:settled"]
        answer = str(self._script(keys, [operation, device_id, *args]))
        if answer == "stale":
            raise StaleSessionError(
                f"device {device_id} has a newer session, or none", hint="connect again"
            )
        return answer

    def _device(self, device_id: str, fields: Mapping[str, str]) -> Device:
        seconds, microseconds = self._client.command("TIME")
        now = seconds + microseconds / 1e6
        seen = int(fields["seen"]) / 1000
        faults_in_a_row = int(fields.get("faults_in_a_row", "0"))
        # What lies in the future, because the clock was put back, says nothing.
        if abs(now - seen) > self._settings.device_expiry_s:
            state = DeviceState.OFFLINE
        elif faults_in_a_row >= self._settings.quarantine_faults:
            state = DeviceState.QUARANTINED
        elif fields["draining"] == "1":
            state = DeviceState.DRAINING
        else:
            state = DeviceState.BUSY if fields["lease"] else DeviceState.IDLE
        return Device(
            id=device_id,
            state=state,
            description=json.loads(fields["description"]),
            session=fields["session"],
            seen=seen,
            lease=fields["lease"] or None,
            measured=int(fields.get("measured", "0")),
            faults=int(fields.get("faults", "0")),
            faults_in_a_row=faults_in_a_row,
            resting=0 < int(fields.get("rest_until", "0")) / 1000 - now <= LONGEST_REST_S,
        )


def _usable(target: str, devices: Sequence[Device]) -> Sequence[Device]:
    """Those that are connected and can run code for `target`. Raises DeviceAwayError, UsageError
    for an unknown target."""
    need = requirement(target)
    able = [d for d in devices if d.connected and runs(need, d.description)]
    usable = [d for d in able if d.state is not DeviceState.QUARANTINED]
    if usable:
        return usable
    if able:
        names = ", ".join(device.id for device in able)
        raise DeviceAwayError(
            f"every device for {called(target)} is in quarantine: {names}",
            hint="see what is wrong with them, then `farrier devices release ID`",
        )
    others = ", ".join(d.id for d in devices if d.connected) or "none"
    raise DeviceAwayError(
        f"no device for {called(target)} is connected (connected: {others})",
        hint="start `farrier device` on a machine of that kind",
    )


def requirement(target: str) -> str:
    """What a device must have to run code for a target, as the name of a queue:
    `x86_64+avx2+fma`, an architecture and ISA extensions. `host` is the machine of the caller.

    Raises UsageError for an unknown target."""
    parsed = parse_target(target)
    return "+".join([parsed.arch, *sorted(parsed.required_features)])


def runs(need: str, description: Mapping[str, Any]) -> bool:
    """Whether a device of this description meets a requirement."""
    arch, *features = need.split("+")
    return description.get("arch") == arch and set(features) <= set(description.get("features", ()))


def missing_layers(required: str, description: Mapping[str, Any]) -> list[str]:
    """What a device's sandbox lacks of what is required, both as in `seccomp+landlock`."""
    reached = str(description.get("sandbox", "")).split("+")
    return sorted(set(filter(None, required.split("+"))) - set(reached))
