"""The registry of devices: the connection, machine, state and trust of each device."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import ConflictError, NotFoundError
from farrier_farm.devices.classes import EMULATED, DeviceClass
from farrier_farm.devices.history import HISTORY, HISTORY_KEPT
from farrier_farm.devices.presence import Presence
from farrier_farm.events.farm_events import NEWS, NEWS_KEPT
from farrier_farm.redis.connection import Client
from farrier_farm.redis.scripts import read_scripts
from farrier_farm.settings import Settings

_CLASSES = "farrier:classes"
KEYS = ("farrier:device", "farrier:settled", _CLASSES, "farrier:connected")  # of `devices.lua`
_BY_NAME = "farrier:devices"
_PARTS = ("history", "throughput", "devices", "enrolments")
_CALL = "\nreturn operations[ARGV[1]]()\n"
# The mark for trusted devices, which is stored in the same set as the names of inference engines.
# No such name begins with a plus.
_TRUSTED = "+trusted"
_STANDINGS = ("busy", "quarantined", "emulated")
BUSY_MINUTES = 10
LONGEST_REST_S = 30.0  # The longest pause, after many consecutive faults.


class DeviceState(enum.StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"  # It finishes its batch and gets no other.
    # An operator drained it, and it has no batch. Ends when its agent restarts.
    DRAINED = "drained"
    PAUSED = "paused"  # An operator paused it, so it gets no new batch.
    REVOKED = "revoked"  # An operator revoked it, so it has to enrol again.
    QUARANTINED = "quarantined"  # It had too many consecutive faults; an operator releases it.
    # Its agent cannot measure a batch because of its version or token. Ends when the agent
    # restarts.
    UNFIT = "unfit"
    OFFLINE = "offline"  # It sent no heartbeat for `device_expiry_s`.


@dataclasses.dataclass(frozen=True, slots=True)
class LoadMinute:
    """The batches and the busy time of a device in the minute that began at `time`, in Unix
    seconds."""

    time: float
    batches: int  # Batches measured to the end.
    busy_s: float  # Seconds in which it had a batch.


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceCounts:
    """The number of connected devices at a Unix time, and how many of them have a batch, are in
    quarantine, or are emulated."""

    time: float
    connected: int
    busy: int
    quarantined: int
    emulated: int


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A snapshot of a device. `description` is the report of its agent: the fields of
    `farrier_device.describe.MachineDescription`, perhaps with fields of newer versions."""

    id: str
    device_class: str  # The id of its class; "" if a broker older than classes registered it.
    state: DeviceState
    description: dict[str, Any]
    session: str
    seen: float  # Unix seconds of the last sign of life
    lease: str | None  # The id of the batch being measured.
    measured: int  # batches
    faults: int
    faults_in_a_row: int
    resting: bool  # It pauses for a while after a fault.
    # Temperature and clock, as far as it reports them: fields of the message Health.
    health: dict[str, Any]
    unfit: str = ""  # The reason if its agent is unfit.
    trusted: bool = False  # An operator vouches for its measurements.
    busy: float = 0.0  # The share of the last `BUSY_MINUTES` in which it had a batch.
    load: Sequence[LoadMinute] = ()  # The last half hour; minutes without work are missing.
    enrolled: float | None = None  # Unix seconds; None for a device with only the shared token.
    last_fault: str = ""  # A description of the last fault.
    standing: str = ""  # Set by an operator: paused, drained or revoked.
    tags: Sequence[str] = ()  # by an operator

    @property
    def engines(self) -> Mapping[str, str]:
        """Inference engines other than Farrier that are installed on the device, with which models
        can be compared: version by name."""
        versions = self.description.get("engines")
        return {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {}

    @property
    def connected(self) -> bool:
        return self.state not in (DeviceState.OFFLINE, DeviceState.REVOKED)

    @property
    def takes_work(self) -> bool:
        """Return whether the device may lease a batch now."""
        return self.state in (DeviceState.IDLE, DeviceState.BUSY) and not self.resting


class Devices:
    """The devices of a farm. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._script = client.script(script(settings))
        self.presence = Presence(client, settings)

    def get(self, device_id: str) -> Device:
        """Return a device. Raises NotFoundError."""
        fields, about = self._client.commands(_snapshot(device_id))
        if not fields:
            raise NotFoundError(
                f"no device {device_id!r}", hint="`farrier devices` lists the known devices"
            )
        return self._device(device_id, fields, about, self._now())

    def list(self) -> list[Device]:
        """Return all devices that have ever connected, sorted by id."""
        ids = sorted(self._client.command("SMEMBERS", "farrier:device"))
        return [*self._snapshots(ids)]

    def page(self, *, limit: int, after: str = "") -> tuple[Sequence[Device], str]:
        """Return at most `limit` devices whose ids follow `after`, sorted by id, and the `after` to
        pass for the next page; "" on the last page."""
        self._adopt()
        first = f"({after}" if after else "-"
        ids = self._client.command("ZRANGE", _BY_NAME, first, "+", "BYLEX", "LIMIT", 0, limit + 1)
        page = ids[:limit]
        return self._snapshots(page), page[-1] if len(ids) > limit else ""

    def _adopt(self) -> None:
        """Add devices that were registered by an older version to the list from which pages are
        read."""
        counts = self._client.commands([("SCARD", "farrier:device"), ("ZCARD", _BY_NAME)])
        if counts[0] != counts[1]:
            for device_id in self._client.command("SMEMBERS", "farrier:device"):
                self._client.command("ZADD", _BY_NAME, 0, device_id)

    def beating(self) -> int:
        """Return the number of connected devices, including devices in quarantine."""
        return int(self._client.command("ZCARD", "farrier:beating"))

    def counts(self) -> DeviceCounts:
        """Return the number of connected devices by state, in two round trips to Redis."""
        now, expiry = self._now(), self._settings.device_expiry_s
        bounds = [int((now - expiry) * 1000), int((now + expiry) * 1000)]
        sets = ("farrier:beating", *(f"{_BY_NAME}:{name}" for name in _STANDINGS))
        answers = self._client.commands(("ZCOUNT", key, *bounds) for key in sets)
        return DeviceCounts(now, *map(int, answers))

    def serving(self, class_id: str) -> int:
        """Return the number of devices of a class that are connected and not in quarantine."""
        now, expiry = self._now(), self._settings.device_expiry_s
        bounds = [int((now - expiry) * 1000), int((now + expiry) * 1000)]
        return int(self._client.command("ZCOUNT", f"farrier:connected:{class_id}", *bounds))

    def is_there(self, class_id: str, device_id: str = "") -> bool:
        """Return whether any device of the class is connected and may get batches. With
        `device_id`, return whether that device of the class is. The check is a single script, whose
        cost does not depend on the number of devices."""
        return bool(self._call("is_there", device_id, class_id)[1] == "1")

    def with_engine(self, engine: str, class_id: str, device_id: str = "") -> Sequence[str]:
        """Return the ids of some devices of a class that may get batches and have the inference
        engine `engine` installed, the device with the latest heartbeat first. With `device_id`,
        return only that device, or no device if it does not qualify. The query is a single script,
        whose cost does not depend on the number of devices."""
        names: Sequence[str] = self._call("with_engine", device_id, class_id, engine)[1]
        return names

    def measuring(self, class_id: str, *, trusted: bool = False) -> Sequence[str]:
        """Return the ids of some devices of a class that may get batches, the device with the
        latest heartbeat first. With `trusted`, return only trusted devices. The query is a single
        script, whose cost does not depend on the number of devices."""
        return self.with_engine(_TRUSTED if trusted else "", class_id)

    def of_class(self, class_id: str, limit: int) -> Sequence[Device]:
        """Return the connected devices of a class with the latest heartbeats, at most `limit`,
        sorted by id."""
        return self._snapshots(self.presence.devices(class_id, limit))

    def revoked(self, class_id: str) -> Sequence[Device]:
        """Return the revoked devices of a class, sorted by id."""
        devices = self._snapshots(self._client.command("SMEMBERS", "farrier:devices:revoked"))
        return [device for device in devices if device.device_class == class_id]

    def connected(self) -> Sequence[Device]:
        """Return the connected devices, sorted by id."""
        ids = self._client.command("ZRANGE", "farrier:beating", 0, -1)
        return [device for device in self._snapshots(ids) if device.connected]

    def _snapshots(self, device_ids: Sequence[str]) -> Sequence[Device]:
        """Return a snapshot of each registered device among `device_ids`, sorted by id, in two
        round trips to Redis."""
        ids = sorted(device_ids)
        answers = self._client.commands(command for entry in ids for command in _snapshot(entry))
        now = self._now()
        each = zip(ids, answers[::2], answers[1::2], strict=True)
        return [self._device(*entry, now) for entry in each if entry[1]]

    def classes(self) -> Sequence[DeviceClass]:
        """Return all classes to which a device has ever belonged, sorted by id."""
        texts: dict[str, str] = self._client.command("HGETALL", _CLASSES)
        return [DeviceClass.from_text(class_id, text) for class_id, text in sorted(texts.items())]

    def device_class(self, class_id: str) -> DeviceClass | None:
        """Return a device class, or None if no device has ever belonged to it."""
        text = self._client.command("HGET", _CLASSES, class_id)
        return None if text is None else DeviceClass.from_text(class_id, text)

    def release(self, device_id: str) -> Device:
        """End a device's quarantine or unfit state. Raises NotFoundError."""
        self.get(device_id)
        self._call("release", device_id)
        return self.get(device_id)

    def trust(self, device_id: str, trusted: bool = True) -> Device:
        """Store whether an operator trusts a device's measurements. Raises NotFoundError, and
        ConflictError for a device without a secret of its own, because another device could use its
        name later."""
        self.get(device_id)
        self._trust(device_id, "01"[trusted])
        return self.get(device_id)

    def trust_own(self, device_id: str) -> None:
        """Trust the device that was started together with the farm, unless an operator has
        already decided whether to trust it. Raises ConflictError for a device without a secret
        of its own."""
        self._trust(device_id, "")

    def are_trusted(self, device_ids: Sequence[str]) -> Sequence[bool]:
        """Return, for each of these devices, whether it is trusted, in one round trip to Redis."""
        answers = self._client.commands(
            ("HGET", f"farrier:device:{item}", "trusted") for item in device_ids
        )
        return [item == "1" for item in answers]

    def _trust(self, device_id: str, how: str) -> None:
        if self._call("trust", device_id, how)[0] == "unenrolled":
            raise ConflictError(
                f"the device {device_id} is not enrolled: any holder of the shared device token "
                "can claim its name",
                hint=f"update its agent, or enrol the device: farrier devices add {device_id}",
            )

    def _call(self, operation: str, device_id: str, *args: str) -> Sequence[Any]:
        answer: Sequence[Any] = self._script(KEYS, [operation, device_id, *args])
        return answer

    def _now(self) -> float:
        seconds, microseconds = self._client.command("TIME")
        return float(seconds + microseconds / 1e6)

    def _device(
        self, device_id: str, fields: Mapping[str, str], about: Mapping[str, str], now: float
    ) -> Device:
        seen = int(fields["seen"]) / 1000
        faults_in_a_row = int(fields.get("faults_in_a_row", "0"))
        standing = about.get("standing", "")
        # A time in the future, after the clock was put back, is ignored.
        if standing == "revoked":
            state = DeviceState.REVOKED
        elif abs(now - seen) > self._settings.device_expiry_s:
            state = DeviceState.OFFLINE
        elif faults_in_a_row >= self._settings.quarantine_faults:
            state = DeviceState.QUARANTINED
        elif fields.get("unfit"):
            state = DeviceState.UNFIT
        elif standing == "paused":
            state = DeviceState.PAUSED
        elif standing == "drained":
            state = DeviceState.DRAINING if fields["lease"] else DeviceState.DRAINED
        elif fields["draining"] == "1":
            state = DeviceState.DRAINING
        else:
            state = DeviceState.BUSY if fields["lease"] else DeviceState.IDLE
        load = _load(fields.get("load", ""))
        return Device(
            id=device_id,
            device_class=fields.get("class", ""),
            state=state,
            description=json.loads(fields["description"]),
            session=fields["session"],
            seen=seen,
            lease=fields["lease"] or None,
            measured=int(fields.get("measured", "0")),
            faults=int(fields.get("faults", "0")),
            faults_in_a_row=faults_in_a_row,
            unfit=fields.get("unfit", ""),
            trusted=fields.get("trusted") == "1",
            health=json.loads(fields.get("health", "{}")),
            busy=_busy(load, int(fields.get("held", "0")) / 1000 if fields["lease"] else None, now),
            load=load,
            resting=0 < int(fields.get("rest_until", "0")) / 1000 - now <= LONGEST_REST_S,
            enrolled=int(about["enrolled"]) / 1000 if "enrolled" in about else None,
            last_fault=fields.get("last_fault", ""),
            standing=standing,
            tags=tuple(about.get("tags", "").split()),
        )


def _snapshot(device_id: str) -> list[tuple[str, str]]:
    """Return the Redis commands that read the data of a device; their answers become one
    `Device`."""
    return [
        ("HGETALL", f"farrier:device:{device_id}"),
        ("HGETALL", f"farrier:standing:{device_id}"),
    ]


def _load(text: str) -> list[LoadMinute]:
    each = [map(int, word.split(":")) for word in text.split()]
    return [LoadMinute(minute * 60.0, batches, busy / 1000) for minute, batches, busy in each]


def _busy(load: Sequence[LoadMinute], held: float | None, now: float) -> float:
    """Return the fraction of the last minutes, including the present minute, for which a device had
    a batch. `held` is the time at which it got its present batch, or None if it has no batch."""
    begin = (now // 60 - BUSY_MINUTES + 1) * 60
    busy = sum(minute.busy_s for minute in load if begin <= minute.time <= now)
    if held is not None:
        busy += max(0.0, now - max(held, begin))
    return min(busy / (now - begin), 1.0)


def script(settings: Settings) -> str:
    """Return the text of the Lua script `devices.lua`, with the values of these settings."""
    limits = {
        "quarantine_faults": settings.quarantine_faults,
        "expiry_ms": int(settings.device_expiry_s * 1000),
        "longest_rest_ms": int(LONGEST_REST_S * 1000),
        "emulated": f"'{EMULATED}'",
        "trusted": f"'{_TRUSTED}'",
        "history": f"'{HISTORY}'",
        "history_kept": HISTORY_KEPT,
        "news": f"'{NEWS}'",
        "news_kept": NEWS_KEPT,
    }
    policy = ", ".join(f"{name} = {value}" for name, value in limits.items())
    return f"local POLICY = {{{policy}}}\n{read_scripts(*_PARTS)}{_CALL}"


def missing_layers(required: str, description: Mapping[str, Any]) -> list[str]:
    """Return the required sandbox layers that a device lacks; `required` has the form
    `seccomp+landlock`."""
    reached = str(description.get("sandbox", "")).split("+")
    return sorted(set(filter(None, required.split("+"))) - set(reached))
