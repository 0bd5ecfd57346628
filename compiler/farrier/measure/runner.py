"""The contracts of a runner of batches and of the store of its blobs: the same for this machine and
for the farm."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from farrier.progress.clock import Clock
from farrier_device.measurement import MeasureRequest, MeasureResult


class Keeps(Protocol):
    """A store of immutable bytes by sha256."""

    def put(self, data: bytes) -> str:
        """Store the bytes, unless they are there, and return their sha256 hex digest."""
        ...


class Blobs(Keeps, Protocol):
    """Immutable bytes by sha256: the objects that a batch refers to are stored here first."""

    def put(self, data: bytes | memoryview) -> str:
        """Store the bytes, unless they are there, and return their sha256 hex digest."""
        ...

    def lend(self, sha256: str, path: Path) -> None:
        """Make a file elsewhere a blob, without a copy: its bytes have this digest, and it outlives
        the batches that name it."""
        ...

    def path(self, sha256: str) -> Path:
        """Return the file with exactly the bytes of this digest; raises if it does not exist."""
        ...


class Runner(Protocol):
    """Run batches, one after another or as the devices allow. Several threads may call it at
    once."""

    @property
    def devices(self) -> int | None:
        """The number of devices that measure now, each a batch at a time; None if this machine
        itself measures, which should do nothing else at the same time."""
        ...

    def measure(
        self,
        request: MeasureRequest,
        blobs: Blobs,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Return one result a candidate in the request's order, or a fault of the device without
        results.

        A candidate's failure raises nothing and does not touch the other candidates: its result has
        a message and no samples, an OK result has samples. A library that cannot be loaded rejects
        all of them. If `blobs` lacks a blob, or a library has other bytes than its name says, the
        fault is BROKEN, its message names it, and nothing is run. A batch whose `cancelled` is set
        ends within seconds, as the fault LOST if it has not ended before. `run_s` and `transfer_s`
        are at most the time of the call.

        Raises FarrierError if it cannot or should not measure: NoDeviceError, StorageError,
        ServiceError, CancelledError.
        """
        ...

    def close(self) -> None:
        """End everything that the runner started; a second call does nothing. No batch may be
        measured at the same time or later."""
        ...


def measure_by(
    clock: Clock,
    runner: Runner,
    request: MeasureRequest,
    blobs: Blobs,
    cancelled: threading.Event | None = None,
) -> MeasureResult:
    """Return the runner's result, and add its time to the clock: the device's run to `measure`, the
    transfer of blobs to `transfer`, the rest to `wait`, most of it for a device."""
    begin = time.monotonic()
    result = runner.measure(request, blobs, cancelled)
    wait_s = time.monotonic() - begin - result.run_s - result.transfer_s
    spent = {"measure": result.run_s, "transfer": result.transfer_s, "wait": max(0.0, wait_s)}
    for kind, seconds in spent.items():
        clock.took(kind, seconds)
    return result
