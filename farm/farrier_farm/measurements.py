"""The queue of measurement batches, one per target, on the lease layer that jobs use."""

from __future__ import annotations

import dataclasses
import enum

from farrier_device.measurement import MeasureRequest, MeasureResult
from farrier_farm.leases import Lease


class Report(enum.StrEnum):
    """What became of a reported result."""

    ACCEPTED = "accepted"  # recorded, now or by the same report before
    STALE = "stale"  # the lease was lost; the result is dropped


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """A leased batch: what to measure, and the lease (`lease.item` is the batch's id)."""

    lease: Lease
    request: MeasureRequest
    target: str
    job: str


class Measurements:
    def submit(self, request: MeasureRequest, target: str, job: Lease | None = None) -> str:
        """Queues a batch on behalf of a job's attempt and returns the batch's id."""
        raise NotImplementedError

    def wait(self, batch_id: str, timeout_s: float) -> MeasureResult | None:
        """The result, or None after `timeout_s`. Raises CancelledError, NotFoundError."""
        raise NotImplementedError

    def lease(self, device_id: str, session: str, timeout_s: float) -> Batch | None:
        """The next batch that the device can run. Raises StaleSessionError."""
        raise NotImplementedError

    def renew(self, device_id: str, session: str, batch_id: str, fence: int) -> None:
        """Raises StaleLeaseError (stop measuring) or StaleSessionError."""
        raise NotImplementedError

    def report(
        self, device_id: str, session: str, batch_id: str, fence: int, result: MeasureResult
    ) -> Report:
        """Idempotent. A fault of the device sends the batch to another attempt."""
        raise NotImplementedError

    def drop(self, job_id: str) -> int:
        """Cancels all batches of a job that have not ended; returns how many."""
        raise NotImplementedError
