"""Measurement batches as brokers handle them, on an event loop. `measurements.py` contains the
functions for the jobs that wait for batches.

The effect of a fault of a whole batch depends on its cause, the blame (`measurement.Blame`):

    device   the fault counts against the device, which gets no batch for a while. The batch goes
             back to the queue for another attempt; after `batch_attempts` attempts the fault is the
             result of the batch
    library  as for the device; if a second device has the same fault, the fault is the result of
             the batch and counts against neither device
    agent    the batch goes to another device; this device gets no batch until its agent restarts
    farm     the fault is the result of the batch, so its job can store the blob again; but if all
             blobs of the batch are intact, the fault counts against the device

A result that no measurement can yield is a fault of the device as well. A time below the lower
bound of its candidate (`farrier.measure.floor`) is invented or comes from a broken clock, so a
device that is not trusted is put in quarantine.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import json
from collections.abc import Collection, Sequence

from farrier.errors import NotFoundError, StorageError, UsageError
from farrier_device.measurement import (
    Blame,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    implausible,
    impossible,
    request_from_json,
    to_json,
)
from farrier_farm.devices.sessions import Sessions
from farrier_farm.errors import StaleLeaseError, StaleSessionError
from farrier_farm.leases.async_leases import AsyncLeases
from farrier_farm.leases.leases import Lease
from farrier_farm.leases.states import State
from farrier_farm.measurements.measurements import DOUBTED, FLOORS, policy
from farrier_farm.redis.async_connection import AsyncClient
from farrier_farm.settings import Settings
from farrier_farm.storage.content import ContentStore


class Report(enum.StrEnum):
    """The answer to a device that reports the result of a batch."""

    ACCEPTED = "accepted"  # The result is recorded, now or by the same report before.
    STALE = "stale"  # The lease was lost, and the result is dropped.


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """A leased batch: the request to measure, and the lease (`lease.item` is the batch's id). The
    manifest is the text of the request as the job wrote it, which includes fields of newer
    versions."""

    lease: Lease
    manifest: str

    @property
    def request(self) -> MeasureRequest:
        return request_from_json(self.manifest)


class Batches:
    """The batches of a farm. Every method raises ServiceError if Redis is out of reach. The cost of
    each method in Redis does not depend on the number of devices or jobs."""

    def __init__(
        self, client: AsyncClient, settings: Settings, sessions: Sessions, blobs: ContentStore
    ) -> None:
        self.leases = AsyncLeases(client, "batch", policy(settings))
        self._client = client
        self._sessions = sessions
        self._blobs = blobs

    async def take(self, device_id: str, session: str, queues: Sequence[str]) -> Batch | None:
        """Lease the oldest batch of these queues to a device. Return None if no batch is queued, or
        if the device may not take batches now. Raises StaleSessionError. If a call is cancelled, it
        may still have leased a batch: return that batch with `hand_back`."""
        while True:
            lease = await self.leases.take(device_id, queues)
            if lease is None:
                return None
            manifest, job, fence = await self.leases.read(lease.item, "request", "job", "job_fence")
            if not await self._wanted(job, fence):
                await self.leases.cancel(lease.item)
                continue
            batch = Batch(lease, manifest)
            try:
                if await self._sessions.hold(device_id, session, lease.item):
                    return batch
            except StaleSessionError:
                await self.hand_back(batch)
                raise
            await self.hand_back(batch)
            return None

    async def hand_back(self, batch: Batch) -> None:
        """Put a batch back into the queue without counting a fault, because the device disconnected
        before it received the batch."""
        await self._sessions.let_go(batch.lease.owner, [batch.lease.item])
        with contextlib.suppress(StaleLeaseError):
            reason = f"{batch.lease.owner} left"
            await self.leases.give_back(batch.lease, crashed=False, reason=reason)

    async def renew_held(self, device_id: str, batch_ids: Collection[str]) -> list[str]:
        """Renew the device's leases of these batches; return the batches whose leases were lost.
        The caller has to check the session before."""
        if not batch_ids:
            return []
        gone = await self.leases.renew_held(device_id, batch_ids)
        if gone:
            await self._sessions.let_go(device_id, gone)
        return gone

    async def report(
        self, device_id: str, session: str, batch_id: str, fence: int, result: MeasureResult
    ) -> Report:
        """Store the result of a batch that the device reports. The call is idempotent: a repeated
        call continues where the interrupted one stopped. Raises StaleSessionError, and UsageError
        for a result that does not belong to the batch."""
        lease = Lease(item=batch_id, fence=fence, attempt=0, owner=device_id)
        await self._sessions.heartbeat(device_id, session)
        try:
            fields = await self.leases.read(
                batch_id, "request", DOUBTED, FLOORS, f"holder:{fence}", "owner"
            )
            manifest, doubted, floors, holder, owner = fields
            # A fence is a small number, so a device could guess the fence of another device's
            # lease. A broker older than the first of these two fields has stored only the second.
            if (holder or owner) != device_id:
                raise StaleLeaseError(f"{device_id} has never held batch {batch_id} in this way")
            # In a thread, because thousands of candidates would keep all other devices waiting.
            if not await asyncio.to_thread(_answers, result, manifest):
                raise UsageError(f"the result does not belong to batch {batch_id}")
            result = _believed(result, floors)
            if result.fault is not None and result.blame is Blame.FARM:
                result = await asyncio.to_thread(self._with_checked_blame, result, manifest)
            if result.fault is not None:
                await self._fail(lease, session, doubted or device_id, result)
            else:
                await self._finish(lease, result)
                await self._sessions.settle(device_id, session, batch_id, fence, fault=False)
        except (StaleLeaseError, NotFoundError):
            await self._sessions.let_go(device_id, [batch_id])
            return Report.STALE
        return Report.ACCEPTED

    def _with_checked_blame(self, result: MeasureResult, manifest: str) -> MeasureResult:
        """Check a result that blames the farm for a damaged or missing blob of the batch
        `manifest`. If the farm has all blobs of the batch, return the result with the device to
        blame instead; otherwise return `result`. Without this check, a device could end batches
        without a counted fault."""
        try:
            for sha256 in request_from_json(manifest).blobs():
                self._blobs.verified(sha256)
        except (NotFoundError, StorageError):
            return result
        said = f"the farm has all blobs of the batch, but the device reported: {result.message}"
        return dataclasses.replace(result, blame=Blame.DEVICE, message=said)

    async def _finish(self, lease: Lease, result: MeasureResult) -> None:
        # A device must not choose which other device confirms its result.
        attributed = dataclasses.replace(
            result, device=lease.owner, confirmed_by="", untrusted=False
        )
        text = to_json(attributed)
        await self.leases.finish(lease, State.SUCCEEDED, {"result": text})

    async def _fail(self, lease: Lease, session: str, doubted: str, result: MeasureResult) -> None:
        """Store the failure of a whole batch, according to the blame of `result`. `doubted` is the
        device that first reported a fault of the library for this batch, or the present device if
        there is none."""
        device_id, batch_id = lease.owner, lease.item
        reason = f"{result.fault}: {result.message} ({device_id})"
        if result.blame is Blame.FARM:
            await self._finish(lease, result)
            await self._sessions.let_go(device_id, [batch_id])
        elif result.blame is Blame.AGENT:
            await self._sessions.decline(device_id, session, batch_id, result.message)
            await self.leases.give_back(lease, crashed=False, reason=reason)
        elif result.blame is Blame.LIBRARY and doubted != device_id:
            await self._finish(lease, result)
            await self._sessions.acquit(doubted, batch_id)
            await self._sessions.let_go(device_id, [batch_id])
        else:
            doubts = {DOUBTED: device_id} if result.blame is Blame.LIBRARY else {}
            await self.leases.give_back(lease, crashed=True, reason=reason, fields=doubts)
            await self._sessions.settle(
                device_id,
                session,
                batch_id,
                lease.fence,
                fault=True,
                reason=f"{result.fault}: {result.message}",
                invented=result.fault is DeviceFault.IMPLAUSIBLE,
                perhaps_of_library=result.blame is Blame.LIBRARY,
            )

    async def _wanted(self, job: str, fence: str) -> bool:
        """Return whether the attempt at a job that requested a batch is still running."""
        if not job:
            return True
        fields = await self._client.command("HMGET", f"farrier:job:item:{job}", "state", "fence")
        return bool(fields == [State.RUNNING, fence])


def _believed(result: MeasureResult, floors: str) -> MeasureResult:
    """Return `result` if a measurement can have yielded it. Otherwise return a fault of the device;
    `floors` is the JSON list of the lower bounds of the candidates' times."""
    if result.fault is not None:  # Only the broker may report "implausible".
        fault = result.fault
        return dataclasses.replace(
            result, fault=DeviceFault.BROKEN if fault is DeviceFault.IMPLAUSIBLE else fault
        )
    if why := implausible(result, json.loads(floors or "[]")):
        return MeasureResult(fault=DeviceFault.IMPLAUSIBLE, message=why)
    if why := impossible(result):
        return MeasureResult(fault=DeviceFault.BROKEN, message=why)
    return result


def _answers(result: MeasureResult, manifest: str) -> bool:
    return result.answers(request_from_json(manifest))
