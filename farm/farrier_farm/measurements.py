"""The queue of measurement batches, one per kind of device, on the lease layer that jobs use.

A batch belongs to one attempt of a job: it is dropped when the job ends or is taken over. A fault
of the device sends it to another attempt, on whichever device asks next (the faulty one rests);
after `batch_attempts` of them the batch's result is that fault."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import time
from collections.abc import Iterable

from farrier.errors import CancelledError, NotFoundError, UsageError
from farrier_device.measurement import (
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    request_from_json,
    result_from_json,
    to_json,
)
from farrier_farm.connection import Client
from farrier_farm.devices import Devices, requirement, runs
from farrier_farm.errors import StaleLeaseError, StaleSessionError
from farrier_farm.jobs import Jobs
from farrier_farm.leases import Lease, LeasePolicy, Leases, new_id
from farrier_farm.settings import Settings
from farrier_farm.states import State

_KEPT_S = 86400.0  # a batch and its result, after its end
_NEW_QUEUE_S = 1.0  # a waiting device looks for new queues this often


class Report(enum.StrEnum):
    """What became of a reported result."""

    ACCEPTED = "accepted"  # recorded, now or by the same report before
    STALE = "stale"  # the lease was lost; the result is dropped


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """A leased batch: what to measure, and the lease (`lease.item` is the batch's id). The manifest
    is the request's text as the job wrote it, with what only a newer version knows of."""

    lease: Lease
    manifest: str

    @property
    def request(self) -> MeasureRequest:
        return request_from_json(self.manifest)


class Measurements:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings, jobs: Jobs, devices: Devices) -> None:
        policy = LeasePolicy(
            lease_s=settings.lease_s,
            crashes=settings.batch_attempts,
            hint="look at the devices: `farrier devices`",
            events=100,
            events_s=_KEPT_S,
            ttl_s=_KEPT_S,
            refers=("blobs",),
        )
        self.leases = Leases(client, "batch", policy)
        self._jobs = jobs
        self._devices = devices

    def submit(self, request: MeasureRequest, target: str, job: Lease | None = None) -> str:
        """Queues a batch on behalf of a job's attempt and returns the batch's id."""
        fields = {"request": to_json(request), "blobs": " ".join(sorted(request.blobs()))}
        if job is not None:
            fields |= {"job": job.item, "job_fence": str(job.fence)}
        group = job.item if job is not None else ""
        return self.leases.put(new_id(), requirement(target), fields, group=group)

    def wait(self, batch_id: str, timeout_s: float) -> MeasureResult | None:
        """The result, or None after `timeout_s`. Raises CancelledError, NotFoundError."""
        deadline = time.monotonic() + timeout_s
        newest = ""
        while True:
            fields = self.leases.fields(batch_id)
            match State(fields["state"]):
                case State.SUCCEEDED:
                    return result_from_json(fields["result"])
                case State.DEAD:
                    return _lost(fields["last_crash"])
                case State.CANCELLED | State.FAILED:
                    raise CancelledError(f"batch {batch_id} was dropped")
                case State.QUEUED | State.RUNNING:
                    left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.leases.reap([fields["queue"]])
            for event_id, _ in self.leases.events(batch_id, newest, min(left, 1.0), 100):
                newest = event_id

    def lease(self, device_id: str, session: str, timeout_s: float) -> Batch | None:
        """The next batch that the device can run. Raises StaleSessionError."""
        deadline = time.monotonic() + timeout_s
        while True:
            device = self._devices.heartbeat(device_id, session)
            able = device.description if device.takes_work else {}
            queues = [queue for queue in self.leases.queues() if runs(queue, able)]
            left = deadline - time.monotonic()
            lease = self.leases.take(device_id, queues, max(0.0, min(left, _NEW_QUEUE_S)))
            if lease is not None:
                batch = self._handed_out(lease, session)
                if batch is not None:
                    return batch
            elif left <= 0:
                return None

    def _handed_out(self, lease: Lease, session: str) -> Batch | None:
        """The batch of a new lease, noted as what the device measures; None where nobody wants it.
        Raises StaleSessionError, and the batch is in the queue again."""
        fields = self.leases.fields(lease.item)
        if not self._wanted(fields):
            self.leases.cancel(lease.item)
            return None
        batch = Batch(lease, fields["request"])
        try:
            self._devices.hold(lease.owner, session, lease.item)
        except StaleSessionError:
            self.hand_back(batch)
            raise
        return batch

    def renew_held(self, device_id: str, batch_ids: Iterable[str]) -> list[str]:
        """Renews the device's leases of these batches; returns those that it holds no more. The
        caller has checked the session."""
        gone = []
        for batch_id in batch_ids:
            try:
                fields = self.leases.fields(batch_id)
                if fields.get("owner") != device_id:
                    raise self.leases.unknown(batch_id)
                self.leases.renew(_lease(device_id, batch_id, int(fields["fence"])))
            except (StaleLeaseError, NotFoundError):
                self._devices.let_go(device_id, batch_id)
                gone.append(batch_id)
        return gone

    def hand_back(self, batch: Batch) -> None:
        """Back to the queue: the device left before it heard of the batch, and is not to blame."""
        self._devices.let_go(batch.lease.owner, batch.lease.item)
        with contextlib.suppress(StaleLeaseError):
            reason = f"{batch.lease.owner} left"
            self.leases.give_back(batch.lease, crashed=False, reason=reason)

    def report(
        self, device_id: str, session: str, batch_id: str, fence: int, result: MeasureResult
    ) -> Report:
        """Idempotent, and it goes on where an earlier call broke off. A fault of the device sends
        the batch to another attempt. Raises StaleSessionError, and UsageError for what is no result
        of the batch."""
        lease = _lease(device_id, batch_id, fence)
        self._devices.heartbeat(device_id, session)
        try:
            request = request_from_json(self.leases.fields(batch_id)["request"])
            if not result.answers(request):
                raise UsageError(f"the result is not one of batch {batch_id}")
            if result.fault is not None:
                reason = f"{result.fault}: {result.message} ({device_id})"
                self.leases.give_back(lease, crashed=True, reason=reason)
            else:
                complete = dataclasses.replace(result, device=device_id)
                self.leases.finish(lease, State.SUCCEEDED, {"result": to_json(complete)})
            faulted = result.fault is not None
            self._devices.settle(device_id, session, batch_id, fence, fault=faulted)
        except (StaleLeaseError, NotFoundError):
            self._devices.let_go(device_id, batch_id)
            return Report.STALE
        return Report.ACCEPTED

    def drop(self, job_id: str) -> int:
        """Cancels all batches of a job that have not ended; returns how many."""
        batches = self.leases.members(group=job_id, limit=10_000)
        return sum(self.leases.cancel(batch) is State.CANCELLED for batch in batches)

    def cancel(self, batch_id: str) -> None:
        """Drops a batch; one that has ended stays as it is."""
        self.leases.cancel(batch_id)

    def _wanted(self, fields: dict[str, str]) -> bool:
        """Whether the attempt that asked for a batch still runs."""
        if "job" not in fields:
            return True
        job = self._jobs.leases.fields(fields["job"])
        return job["state"] == State.RUNNING and job["fence"] == fields["job_fence"]


def _lease(device_id: str, batch_id: str, fence: int) -> Lease:
    return Lease(item=batch_id, fence=fence, attempt=0, owner=device_id)


def _lost(reason: str) -> MeasureResult:
    """The result of a batch that no attempt could measure; `reason` names the last fault."""
    word = reason.partition(":")[0]
    fault = DeviceFault(word) if word in list(DeviceFault) else DeviceFault.LOST
    return MeasureResult(fault=fault, message=reason)
