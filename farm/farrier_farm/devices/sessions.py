"""The sessions of devices, as brokers store them in the registry; for an event loop."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from farrier_device.baseline.engines import NAMES
from farrier_farm.devices.classes import MeasurementTarget, class_of_device
from farrier_farm.devices.devices import KEYS, script
from farrier_farm.errors import (
    DeviceRefusedError,
    FencedOutError,
    StaleSessionError,
    UnknownDeviceError,
)
from farrier_farm.redis.async_connection import AsyncClient
from farrier_farm.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """The answer to a heartbeat: the queues from which a device may lease batches, and whether it
    may lease a batch now."""

    queues: tuple[str, ...]  # The queues of its batches: that of its class, and its own.
    barred: bool  # It takes no work, because it drains, is in quarantine or unfit.
    rest_s: float  # The seconds for which it takes no work after a fault.

    @property
    def takes_work(self) -> bool:
        return not self.barred and self.rest_s <= 0


def generation_of(session: str) -> str:
    """Return the generation of the secret with which a session was opened; "" for the shared
    token."""
    return session.partition(".")[2]


class Sessions:
    """The sessions of devices. Every method raises ServiceError if Redis is out of reach. Methods
    that take a session raise StaleSessionError if the session is not the device's newest,
    FencedOutError if the newest was opened by another instance of the device's agent."""

    def __init__(self, client: AsyncClient, settings: Settings) -> None:
        self._script = client.script(script(settings))

    async def connect(
        self,
        device_id: str,
        description: Mapping[str, Any],
        instance: str = "",
        generation: str = "",
    ) -> str:
        """Return the session of an instance of the device's agent, identified by the random text
        `instance`; open one if the instance has none or `instance` is "". The session of any other
        instance of the agent becomes invalid. `generation` is the generation of the caller's
        secret; "" for the shared token.

        Raises UsageError for a machine that has no device class (`class_of_device`),
        DeviceRefusedError if the device is revoked or its name belongs to another device,
        UnknownDeviceError if the secret no longer belongs to a device.
        """
        said = json.dumps(dict(description))
        its_class = class_of_device(device_id, json.loads(said))
        engines = " ".join(engine for engine in NAMES if engine in description.get("engines", ()))
        session = secrets.token_hex(8) + (f".{generation}" if generation else "")
        words = [session, said, instance, its_class.id, its_class.to_text(), engines]
        return str((await self._call("connect", device_id, *words, generation))[1])

    async def close(self, device_id: str) -> None:
        """Close the device's session. The device then has to register again."""
        await self._call("close", device_id)

    async def heartbeat(
        self,
        device_id: str,
        session: str,
        *,
        draining: bool | None = None,
        health: Mapping[str, Any] | None = None,
    ) -> Standing:
        """Store the time of a heartbeat, and return the device's standing. `draining` and `health`
        replace the stored values unless they are None."""
        said = ["" if draining is None else "01"[draining], json.dumps(health) if health else ""]
        _, its_class, barred, rest_ms = await self._call("heartbeat", device_id, session, *said)
        queues = (str(its_class), MeasurementTarget(str(its_class), device_id).queue)
        return Standing(queues, barred == "1", int(rest_ms) / 1000)

    async def hold(self, device_id: str, session: str, batch_id: str) -> bool:
        """Store that the device measures this batch, and return True. If the device may not take
        batches now, change nothing and return False."""
        word, *_ = await self._call("hold", device_id, session, batch_id)
        return bool(word == "ok")

    async def settle(
        self,
        device_id: str,
        session: str,
        batch_id: str,
        fence: int,
        *,
        fault: bool,
        reason: str = "",
        invented: bool = False,
        perhaps_of_library: bool = False,
    ) -> None:
        """Count a finished attempt at a batch for the statistics of its device. A repeated call for
        the same attempt counts only once.

        If the attempt failed because of the device (`fault`), `reason` describes the failure. An
        `invented` result, which no measurement can yield, puts a device that is not trusted in
        quarantine. If the fault may also be caused by the measured library (`perhaps_of_library`),
        further such faults in the same job do not count towards quarantine.
        """
        words = (str(fence), "01"[fault], reason, "01"[invented], "01"[perhaps_of_library])
        await self._call("settle", device_id, session, batch_id, *words)

    async def let_go(self, device_id: str, batch_ids: Iterable[str]) -> None:
        """Store that the device no longer measures these batches. No attempt and no fault is
        counted."""
        await self._call("let_go", device_id, *batch_ids)

    async def decline(self, device_id: str, session: str, batch_id: str, reason: str) -> None:
        """Store that the device's agent cannot measure a batch, with the `reason`. The device no
        longer holds the batch, and is unfit until another agent registers."""
        await self._call("decline", device_id, session, batch_id, reason)

    async def acquit(self, device_id: str, batch_id: str) -> None:
        """Remove the fault that this batch has counted against a device. A repeated call changes
        nothing."""
        await self._call("acquit", device_id, batch_id)

    async def may_read(self, device_id: str, session: str, sha256: str) -> bool:
        """Store that the device is alive now. Return whether the batch that the device measures
        refers to the blob `sha256`."""
        return bool((await self._call("may_read", device_id, session, sha256))[1] == "1")

    async def look(self) -> None:
        """Mark each device whose last heartbeat or call is too old as disconnected."""
        await self._call("look", "")

    async def _call(self, operation: str, device_id: str, *args: str) -> list[Any]:
        answer: list[Any] = await self._script(KEYS, [operation, device_id, *args])
        match answer[0]:
            case "fenced":
                raise FencedOutError(f"device {device_id} has a newer session")
            case "unknown":
                raise StaleSessionError(f"device {device_id} has no session", hint="connect again")
            case "revoked":
                raise DeviceRefusedError(
                    f"the device {device_id} was revoked",
                    hint=f"to let it return: farrier devices add {device_id} --again",
                )
            case "owned":
                raise DeviceRefusedError(
                    f"the name {device_id} belongs to a device with its own secret, which this "
                    "agent does not have",
                    hint="choose another --name; if this is the same device: farrier "
                    f"devices add {device_id} --again",
                )
            case "unenrolled":
                raise UnknownDeviceError(
                    f"the secret of the device {device_id} is no longer valid: the device was "
                    "removed, or has enrolled again elsewhere",
                    hint=f"farrier devices add {device_id} makes a token for --enrol",
                )
        return answer
