"""The queues of measurement batches, one a device class, on the lease layer that jobs use: what a
job does with them. `async_batches.py` has the other end, that of the brokers.

A batch belongs to one attempt of a job: it is dropped when the job ends or is taken over. A fault
of it as a whole is settled there, by whose it is.
"""

from __future__ import annotations

import json
import time

from farrier.errors import CancelledError
from farrier_device.measurement import (
    Blame,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    result_from_json,
    to_json,
)
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.leases.leases import Lease, LeasePolicy, Leases, new_id
from farrier_farm.leases.states import State
from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings

DOUBTED = "doubted"  # field of a batch: the device whose reference failed with it
FLOORS = "floors"  # field of a batch: the floors of its candidates, which no device is told
_KEPT_S = 86400.0  # a batch and its result, after its end


def policy(settings: Settings) -> LeasePolicy:
    """Of batches."""
    return LeasePolicy(
        lease_s=settings.lease_s,
        crashes=settings.batch_attempts,
        hint="look at the devices: `farrier devices`",
        events=100,
        events_s=_KEPT_S,
        ttl_s=_KEPT_S,
        refers=("blobs",),
    )


class Measurements:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.leases = Leases(client, "batch", policy(settings))

    def submit(
        self,
        request: MeasureRequest,
        place: MeasurementTarget,
        job: Lease | None = None,
        owner: str = "",
    ) -> str:
        """Queue a batch on behalf of a job's attempt, in the share of the job's owner, and return
        the batch's id. A batch of no job precedes all others."""
        fields = {
            "request": to_json(request.for_device()),
            "blobs": " ".join(sorted(request.blobs())),
            FLOORS: json.dumps(request.floors_ns),
        }
        if job is not None:
            fields |= {"job": job.item, "job_fence": str(job.fence)}
        group = job.item if job is not None else ""
        return self.leases.put(new_id(), place.queue, fields, group=group, share=owner)

    def wait(self, batch_id: str, timeout_s: float) -> MeasureResult | None:
        """The result, or None after `timeout_s`. Raises CancelledError, NotFoundError."""
        deadline = time.monotonic() + timeout_s
        newest = ""
        while True:
            state, queue = self.leases.read(batch_id, "state", "queue")
            match State(state):
                case State.SUCCEEDED:
                    [result] = self.leases.read(batch_id, "result")
                    return result_from_json(result)
                case State.DEAD:
                    reason, doubted = self.leases.read(batch_id, "last_crash", DOUBTED)
                    return _lost(reason, Blame.LIBRARY if doubted else Blame.DEVICE)
                case State.CANCELLED | State.FAILED:
                    raise CancelledError(f"batch {batch_id} was dropped")
                case State.QUEUED | State.RUNNING:
                    left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.leases.reap([queue])
            for event_id, _ in self.leases.events(batch_id, newest, min(left, 1.0), 100):
                newest = event_id

    def drop(self, job_id: str) -> int:
        """Cancel all batches of a job that have not ended; return how many."""
        batches = self.leases.members(group=job_id, limit=10_000)
        return sum(self.leases.cancel(batch) is State.CANCELLED for batch in batches)

    def cancel(self, batch_id: str) -> None:
        """Drop a batch; one that has ended stays as it is."""
        self.leases.cancel(batch_id)


def _lost(reason: str, blame: Blame) -> MeasureResult:
    """The result of a batch that no attempt could measure; `reason` names the last fault. It may be
    the library's where there was no second device to tell."""
    word = reason.partition(":")[0]
    fault = DeviceFault(word) if word in list(DeviceFault) else DeviceFault.LOST
    return MeasureResult(fault=fault, blame=blame, message=reason)
