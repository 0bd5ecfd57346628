"""The queues of measurement batches, one for each device class, in the lease layer that jobs also
use. This module contains the functions for jobs; `async_batches.py` contains the functions for
brokers.

A batch belongs to an attempt at a job: it is dropped when the job ends or another worker takes
over. If a whole batch fails, the brokers decide whether it is tried again, depending on the cause.
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

DOUBTED = "doubted"  # The field of a batch with the device whose reference failed together with it.
# The field of a batch with the floors of its candidates, which devices do not get.
FLOORS = "floors"
_KEPT_S = 86400.0  # The time for which a batch and its result are kept after its end.


def policy(settings: Settings) -> LeasePolicy:
    """Return the lease policy of batches."""
    return LeasePolicy(
        lease_s=settings.lease_s,
        crashes=settings.batch_attempts,
        hint="see the state of the devices: `farrier devices`",
        events=100,
        events_s=_KEPT_S,
        ttl_s=_KEPT_S,
        refers=("blobs",),
    )


class Measurements:
    """The batches that jobs submit. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.leases = Leases(client, "batch", policy(settings))

    def submit(
        self,
        request: MeasureRequest,
        place: MeasurementTarget,
        job: Lease | None = None,
        owner: str = "",
    ) -> str:
        """Queue a batch for an attempt at a job, and return the batch's id. The batch counts as the
        job owner's in the fair order of batches. A batch without a job precedes all others."""
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
        """Wait until a batch ends and return its result. Return None if it has not ended after
        `timeout_s`. Raises CancelledError for a cancelled batch, NotFoundError."""
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
        """Cancel all batches of a job that have not ended; return their number."""
        batches = self.leases.members(group=job_id, limit=10_000)
        return sum(self.leases.cancel(batch) is State.CANCELLED for batch in batches)

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch, unless it has ended."""
        self.leases.cancel(batch_id)


def _lost(reason: str, blame: Blame) -> MeasureResult:
    """Return the result of a batch for which all attempts failed. `reason` is the text of the last
    fault, such as `crashed: …`. `blame` is the library if a single device has tried the batch and
    reported a fault of the library."""
    word = reason.partition(":")[0]
    fault = DeviceFault(word) if word in list(DeviceFault) else DeviceFault.LOST
    return MeasureResult(fault=fault, blame=blame, message=reason)
