"""The sessions of devices: what a broker notes in the registry, on an event loop."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from farrier_device.engines import NAMES
from farrier_farm.async_connection import AsyncClient
from farrier_farm.classes import Place, class_of_device
from farrier_farm.devices import KEYS, script
from farrier_farm.errors import FencedOutError, StaleSessionError
from farrier_farm.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """What a device may do now."""

    queues: tuple[str, ...]  # of its batches: those of its class, and those for it alone
    barred: bool  # it takes no work: it drains, is in quarantine or unfit
    rest_s: float  # after a fault: how long it takes none

    @property
    def takes_work(self) -> bool:
        return not self.barred and self.rest_s <= 0


class Sessions:
    """Every method raises ServiceError where Redis is out of reach. Those that take a session raise
    StaleSessionError where it is not the device's newest, FencedOutError where another is open."""

    def __init__(self, client: AsyncClient, settings: Settings) -> None:
        self._script = client.script(script(settings))

    async def connect(
        self, device_id: str, description: Mapping[str, Any], instance: str = ""
    ) -> str:
        """The session of this instance of the device's agent, opened if it has none (an instance
        without a name has none); that of any other instance is fenced out. Raises UsageError as
        `class_of_device` does."""
        said = json.dumps(dict(description))
        its_class = class_of_device(device_id, json.loads(said))
        engines = " ".join(one for one in NAMES if one in description.get("engines", ()))
        words = [secrets.token_hex(8), said, instance, its_class.id, its_class.to_text(), engines]
        return str((await self._call("connect", device_id, *words))[1])

    async def close(self, device_id: str) -> None:
        """Has the device register again."""
        await self._call("close", device_id)

    async def heartbeat(
        self,
        device_id: str,
        session: str,
        *,
        draining: bool | None = None,
        health: Mapping[str, Any] | None = None,
    ) -> Standing:
        """A sign of life; None, and no health, leave what it was."""
        said = ["" if draining is None else "01"[draining], json.dumps(health) if health else ""]
        _, its_class, barred, rest_ms = await self._call("heartbeat", device_id, session, *said)
        queues = (str(its_class), Place(str(its_class), device_id).queue)
        return Standing(queues, barred == "1", int(rest_ms) / 1000)

    async def hold(self, device_id: str, session: str, batch_id: str) -> bool:
        """Notes what the device measures; False where it takes no work by now."""
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
    ) -> None:
        """Counts an attempt at a batch that is over, once; `reason` says what a fault was. One that
        was `invented` puts a device that is not trusted in quarantine."""
        words = (str(fence), "01"[fault], reason, "01"[invented])
        await self._call("settle", device_id, session, batch_id, *words)

    async def let_go(self, device_id: str, batch_ids: Iterable[str]) -> None:
        """Notes that the device measures these batches no more, and counts nothing."""
        await self._call("let_go", device_id, *batch_ids)

    async def decline(self, device_id: str, session: str, batch_id: str, reason: str) -> None:
        """Notes why the device's agent is unfit for a batch, which it measures no more; ends when
        another agent registers."""
        await self._call("decline", device_id, session, batch_id, reason)

    async def acquit(self, device_id: str, batch_id: str) -> None:
        """Takes back the fault that a batch counted, once."""
        await self._call("acquit", device_id, batch_id)

    async def look(self) -> None:
        """Notes which devices were not seen for too long."""
        await self._call("look", "")

    async def _call(self, operation: str, device_id: str, *args: str) -> list[Any]:
        answer: list[Any] = await self._script(KEYS, [operation, device_id, *args])
        match answer[0]:
            case "fenced":
                raise FencedOutError(f"device {device_id} has a newer session")
            case "unknown":
                raise StaleSessionError(f"device {device_id} has no session", hint="connect again")
        return answer
