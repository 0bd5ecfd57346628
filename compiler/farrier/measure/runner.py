"""The interfaces of a runner of batches and of the blob store that goes with it, which are the same
for this machine and for the farm.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from farrier.progress.clock import Clock
from farrier_device.measurement import MeasureRequest, MeasureResult


class Keeps(Protocol):
    """A store of immutable bytes by sha256, to which blobs can only be added."""

    def put(self, data: bytes) -> str:
        """Store the bytes unless they are stored already, and return their sha256 as hex digits."""
        ...


class Blobs(Keeps, Protocol):
    """A store of immutable bytes by sha256; the objects to which a batch refers are stored there
    first."""

    def put(self, data: bytes | memoryview) -> str:
        """Store the bytes unless they are stored already, and return their sha256 as hex digits."""
        ...

    def lend(self, sha256: str, path: Path) -> None:
        """Register an existing file as a blob without copying it. The file must have this digest
        and must exist as long as batches refer to the blob."""
        ...

    def path(self, sha256: str) -> Path:
        """Return the path of a file whose content has this digest; raises an error if there is
        none."""
        ...


class Runner(Protocol):
    """A runner of batches, one after another or in parallel if there are several devices. Several
    threads may call it at once."""

    @property
    def devices(self) -> int | None:
        """The number of connected remote devices that can measure, each one batch at a time. None
        if this machine itself measures; it should do nothing else at the same time."""
        ...

    def measure(
        self,
        request: MeasureRequest,
        blobs: Blobs,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Return one result for each candidate, in the request's order, or a fault of the device
        without results.

        The failure of a candidate raises no error and does not affect the other candidates: its
        result has a message and no samples, whereas an OK result has samples. A library that cannot
        be loaded fails all candidates. If `blobs` lacks a blob, or the bytes of a library do not
        match its digest, the fault is BROKEN, its message names the blob, and nothing is run. After
        `cancelled` is set, the batch ends within seconds, with the fault LOST unless it has
        finished. `run_s` and `transfer_s` are at most the time of the call.

        Raises FarrierError if the runner cannot or should not measure: NoDeviceError, StorageError,
        ServiceError, CancelledError.
        """
        ...

    def close(self) -> None:
        """End everything that the runner started; a second call does nothing. No batch may be in
        progress, and none may be measured later."""
        ...


def measure_by(
    clock: Clock,
    runner: Runner,
    request: MeasureRequest,
    blobs: Blobs,
    cancelled: threading.Event | None = None,
) -> MeasureResult:
    """Return the runner's result, and charge its time to the clock: the run on the device to
    `measure`, the transfer of blobs to `transfer`, and the rest, mostly waiting for a device, to
    `wait`."""
    begin = time.monotonic()
    result = runner.measure(request, blobs, cancelled)
    wait_s = time.monotonic() - begin - result.run_s - result.transfer_s
    spent = {"measure": result.run_s, "transfer": result.transfer_s, "wait": max(0.0, wait_s)}
    for kind, seconds in spent.items():
        clock.took(kind, seconds)
    return result
