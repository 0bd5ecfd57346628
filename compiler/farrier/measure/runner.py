"""Who runs a batch, and where its blobs go: the same for this machine and for the farm."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from farrier.progress.clock import Clock
from farrier_device.measurement import MeasureRequest, MeasureResult


class Keeps(Protocol):
    """Immutable bytes by sha256, to put there."""

    def put(self, data: bytes) -> str:
        """Store the bytes, unless they are there, and return their sha256 hex digest."""
        ...


class Blobs(Keeps, Protocol):
    """Immutable bytes by sha256: what a batch refers to is put here first."""

    def put(self, data: bytes | memoryview) -> str:
        """Store the bytes, unless they are there, and return their sha256 hex digest."""
        ...

    def lend(self, sha256: str, path: Path) -> None:
        """Make a file a blob that lies elsewhere, without a copy: it has the bytes of this digest,
        and outlives the batches that name it."""
        ...

    def path(self, sha256: str) -> Path:
        """The file with exactly the bytes of this digest; raises where there is none."""
        ...


class Runner(Protocol):
    """Runs batches, one after another or as the devices allow. Several threads may ask at once."""

    @property
    def devices(self) -> int | None:
        """How many devices measure now, each a batch at a time; None where this machine itself
        measures, which should do nothing else meanwhile."""
        ...

    def measure(
        self,
        request: MeasureRequest,
        blobs: Blobs,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """One result a candidate in the request's order, or a fault of the device without results.

        It never raises for what a candidate does, nor does that touch the other candidates: one
        that fails has a message and no samples, one that is OK has samples. A library that cannot
        be loaded rejects all of them. A blob that `blobs` lacks, and a library with other bytes
        than its name says, is the fault BROKEN, whose message names it; nothing is run. A batch
        whose `cancelled` is set ends within seconds, as the fault LOST where it has not ended
        before. `run_s` and `transfer_s` are no more than what the call takes.

        Raises FarrierError where there is nothing to measure on, or no wish to: NoDeviceError,
        StorageError, ServiceError, CancelledError.
        """
        ...

    def close(self) -> None:
        """Ends whatever the runner started; a second call does nothing. No batch may be measured
        meanwhile or later."""
        ...


def measure_by(
    clock: Clock,
    runner: Runner,
    request: MeasureRequest,
    blobs: Blobs,
    cancelled: threading.Event | None = None,
) -> MeasureResult:
    """The runner's result, and its time by the clock: what the device ran is spent on `measure`,
    what the blobs took on their way on `transfer`, the rest on `wait`, for a device above all."""
    begin = time.monotonic()
    result = runner.measure(request, blobs, cancelled)
    wait_s = time.monotonic() - begin - result.run_s - result.transfer_s
    spent = {"measure": result.run_s, "transfer": result.transfer_s, "wait": max(0.0, wait_s)}
    for kind, seconds in spent.items():
        clock.took(kind, seconds)
    return result
