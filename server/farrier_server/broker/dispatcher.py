"""The dispatcher: the only part of a broker that waits for batches and hands them to devices.

A waiting device causes no work in Redis. The dispatcher reads the announcements of new batches of
all queues in one blocking read. For each batch it wakes the device that has waited longest for that
queue, and the call of that device then leases the batch itself. Some batches are not announced,
because their lease expired or the announcement was trimmed from the stream before it was read: a
sweep, once a second, discovers them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from farrier.errors import FarrierError
from farrier_farm.broker import DeviceSide
from farrier_farm.devices.sessions import Standing
from farrier_farm.measurements.async_batches import Batch

_SWEEP_S = 1.0
_log = logging.getLogger(__name__)


class _Waiter:
    """A call in which a device waits for a batch. Until the call is woken, it stands in the waiting
    list of each queue of its device."""

    def __init__(self) -> None:
        self.awake = asyncio.Event()
        self.queues: tuple[str, ...] = ()  # The queues in whose waiting lists it is.
        # The queue for whose batch it was woken, until it tries to lease the batch.
        self.woken_for = ""
        self.ended = False


class Dispatcher:
    """The dispatcher of batches to waiting devices, on one event loop. The broker runs the method
    `run` as a task of that loop until it stops."""

    def __init__(self, device_side: DeviceSide) -> None:
        self._sessions = device_side.sessions
        self._batches = device_side.batches
        # The waiting calls by queue, the longest wait first.
        self._lines: dict[str, dict[_Waiter, None]] = {}
        self._waiting: dict[str, _Waiter] = {}  # The newest call of each device.
        self._handing_back: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def run(self) -> None:
        """Wake waiting devices until this task is cancelled."""
        loop = asyncio.get_running_loop()
        newest, swept, silent = "", float("-inf"), False
        while True:
            try:
                newest = newest or await self._batches.leases.newest()
                if loop.time() - swept >= _SWEEP_S:
                    swept = loop.time()
                    await self._sessions.look()
                    for queue in await self._batches.leases.sweep():
                        self._wake_one(queue)
                left = max(0.0, swept + _SWEEP_S - loop.time())
                queues, newest = await self._batches.leases.news(newest, left)
                for queue in queues:
                    self._wake_one(queue)
                silent = False
            except FarrierError as error:
                if not silent:
                    _log.warning("no batches can be assigned: %s", error)
                silent = True
                await asyncio.sleep(_SWEEP_S)
            # An unexpected error must not end the loop: calls would then find batches only when
            # they begin.
            except Exception:
                _log.exception("the dispatcher fails")
                await asyncio.sleep(_SWEEP_S)

    async def next(self, device: str, session: str, wait_s: float) -> Batch | None:
        """Lease the next batch to a device and return it. Return None if no batch becomes available
        within `wait_s`, if the device makes another call, or if the broker stops. If the call is
        cancelled while it leases a batch, the batch goes back to the queue at once. Raises
        StaleSessionError."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        with self._waiter(device) as waiter:
            while True:
                waiter.awake.clear()
                until = end
                standing = await self._sessions.heartbeat(device, session)
                if standing.takes_work:
                    # The call joins the waiting lists before it tries to lease a batch, so that a
                    # batch that arrives meanwhile wakes it.
                    self._line_up(waiter, standing.queues)
                    batch = await self._taken(device, session, standing.queues)
                    if batch is not None:
                        return batch
                else:
                    self._pass_on(waiter)
                    if not standing.barred:
                        until = min(end, loop.time() + standing.rest_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await waiter.awake.wait()
                if waiter.ended or self._stopping or loop.time() >= end:
                    return None

    def heard(self, device: str, standing: Standing) -> None:
        """Update the waiting lists after a heartbeat. If the device has become able or unable to
        take batches, its waiting call is woken to consider this."""
        waiter = self._waiting.get(device)
        if waiter is not None and standing.takes_work != bool(waiter.queues):
            self._leave_line(waiter)
            waiter.awake.set()

    def stop(self) -> None:
        """End the waits of all calls."""
        self._stopping = True
        for waiter in self._waiting.values():
            waiter.awake.set()

    async def close(self) -> None:
        """Wait until the batches that were leased for cancelled calls are back in their queues."""
        await asyncio.gather(*self._handing_back)

    @contextlib.contextmanager
    def _waiter(self, device: str) -> Iterator[_Waiter]:
        """Return a context in which a new call of a device waits. An older call of the same device
        ends, since its client has gone."""
        older = self._waiting.get(device)
        if older is not None:
            older.ended = True
            older.awake.set()
        waiter = self._waiting[device] = _Waiter()
        try:
            yield waiter
        finally:
            self._leave_line(waiter)
            self._pass_on(waiter)
            if self._waiting.get(device) is waiter:
                del self._waiting[device]

    def _line_up(self, waiter: _Waiter, queues: tuple[str, ...]) -> None:
        waiter.queues, waiter.woken_for = queues, ""
        for queue in queues:
            self._lines.setdefault(queue, {})[waiter] = None

    def _leave_line(self, waiter: _Waiter) -> None:
        for queue in waiter.queues:
            del self._lines[queue][waiter]
            if not self._lines[queue]:
                del self._lines[queue]
        waiter.queues = ()

    def _wake_one(self, queue: str) -> None:
        """Wake the device that has waited longest for a batch of a queue."""
        line = self._lines.get(queue)
        if line:
            waiter = next(iter(line))
            self._leave_line(waiter)
            waiter.woken_for = queue
            waiter.awake.set()

    def _pass_on(self, waiter: _Waiter) -> None:
        """Wake another waiting call in place of `waiter`, if `waiter` was woken for a batch and has
        ended without trying to lease it."""
        queue, waiter.woken_for = waiter.woken_for, ""
        if queue:
            self._wake_one(queue)

    async def _taken(self, device: str, session: str, queues: tuple[str, ...]) -> Batch | None:
        taking = asyncio.ensure_future(self._batches.take(device, session, queues))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            task = asyncio.create_task(self._hand_back(taking))
            self._handing_back.add(task)
            task.add_done_callback(self._handing_back.discard)
            raise

    async def _hand_back(self, taking: asyncio.Future[Batch | None]) -> None:
        try:
            batch = await taking
            if batch is not None:
                await self._batches.hand_back(batch)
        except FarrierError as error:  # The batch is leased again after its lease expires.
            _log.warning(
                "a batch that was leased for a disconnected device was not "
                "returned to the queue: %s",
                error,
            )
