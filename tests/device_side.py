"""The broker's side of devices, for tests that have no event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from farrier_device.protocol.credentials import Bearer
from farrier_farm.broker import DeviceSide
from farrier_farm.devices.async_enrolments import Enrolling, OwnSecret, Secrets
from farrier_farm.farm import Farm
from farrier_farm.measurements.async_batches import Batch
from farrier_server.broker.dispatcher import Dispatcher


class BlockingDeviceSide:
    """The methods of `Sessions` and of `Batches`, and `lease`, for threads: their loop runs in one
    of its own."""

    def __init__(self, farm: Farm) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.side = self._run(self._open(farm))
        self._enrolling = Enrolling(self.side.client, farm.settings, Secrets("a key"))

    def lease(self, device_id: str, session: str, wait_s: float) -> Batch | None:
        """The next batch of a device, as a broker hands it out."""
        batch: Batch | None = self._run(self._dispatcher.next(device_id, session, wait_s))
        return batch

    def enrol(self, device_id: str) -> str:
        """Enrol a device; return the generation of its secret."""
        caller, nonce = Bearer("shared"), device_id.encode().ljust(16)
        own: OwnSecret = self._run(self._enrolling.enrol(caller, device_id, nonce))
        return own.generation

    def __getattr__(self, name: str) -> Callable[..., Any]:
        owner = self.side.sessions if hasattr(self.side.sessions, name) else self.side.batches
        method = getattr(owner, name)
        return lambda *args, **named: self._run(method(*args, **named))

    def __enter__(self) -> BlockingDeviceSide:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self, farm: Farm) -> DeviceSide:
        side = DeviceSide.of(farm)
        self._dispatcher = Dispatcher(side)
        self._dispatching = asyncio.create_task(self._dispatcher.run())
        return side

    async def _end(self) -> None:
        self._dispatching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._dispatching
        await self._dispatcher.close()
        await self.side.close()

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
