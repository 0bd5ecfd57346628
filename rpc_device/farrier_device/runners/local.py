"""The runner of this machine: measures batches in a sandboxed child and survives what they do.

Used by the local compile path and by the device agent alike. The child is kept from batch to batch,
because starting Python costs more than most trials; one that crashed or hung is replaced when the
next candidate needs it. (No spare waits: its start would disturb the timing of whatever runs.)
"""

from __future__ import annotations

import dataclasses
import threading
import time

from farrier_device.closing import Closing
from farrier_device.measurement import (
    CandidateResult,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    Status,
)
from farrier_device.runners.files import BatchFiles, BlobError, BlobSource
from farrier_device.runners.supervisor import CancelledError, Supervisor
from farrier_device.sandbox import Limits, SandboxError

__all__ = ["BlobSource", "ChildRunner"]


class ChildRunner(Closing):
    """Measures one batch at a time; further callers wait.

    `require` names layers of the sandbox ("seccomp+landlock") without which nothing is run. `pin`
    binds the worker threads of a candidate to one CPU each.
    """

    kind = "child"

    def __init__(
        self,
        *,
        device: str = "local",
        limits: Limits | None = None,
        require: str = "",
        pin: bool = True,
    ) -> None:
        self._device = device
        self._supervisor = Supervisor(limits or Limits.of_machine(), require, pin)
        self._lock = threading.Lock()
        self._closed = False

    def sandbox_level(self) -> str:
        """The isolation that children reach here, such as "seccomp+landlock+rlimits".

        Raises SandboxError where no child starts, or the level lacks a wall that is required.
        """
        with self._lock:
            return self._supervisor.child().level

    def measure(
        self,
        request: MeasureRequest,
        blobs: BlobSource,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Never raises for what a candidate, a blob or a child does: failure is a field.

        A batch whose `cancelled` is set ends within a second, as `DeviceFault.LOST`.
        """
        level = ""
        with self._lock:
            if self._closed:
                raise ValueError("the runner is closed")
            begin = time.monotonic()  # the batches before it are not its own time
            try:
                level = self._supervisor.child().level
                with BatchFiles(request, blobs) as files:
                    results = self._supervisor.run(
                        _with_reference(request), files, cancelled or threading.Event()
                    )
                result = _judge(request, results)
            except (BlobError, SandboxError) as error:
                result = MeasureResult(fault=DeviceFault.BROKEN, message=str(error))
            except CancelledError:
                result = MeasureResult(fault=DeviceFault.LOST, message="the batch was called off")
            except OSError as error:  # of this machine: no descriptors, no memory, no processes
                result = MeasureResult(fault=DeviceFault.BROKEN, message=f"the runner: {error}")
            run_s = time.monotonic() - begin
        return dataclasses.replace(result, device=self._device, sandbox=level, run_s=run_s)

    def close(self) -> None:
        """Ends the child; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._supervisor.close()


def _with_reference(request: MeasureRequest) -> MeasureRequest:
    """The batch as the child gets it: the reference is its first candidate, and its last again."""
    if request.reference is None:
        return request
    around = (request.reference, *request.candidates, request.reference)
    return dataclasses.replace(request, candidates=around, reference=None)


def _judge(request: MeasureRequest, results: list[CandidateResult]) -> MeasureResult:
    """Takes the reference out again, and with it the batch if the machine drifted meanwhile."""
    if request.reference is None:
        return MeasureResult(tuple(results))
    before, *candidates, after = results
    for reference in (before, after):
        if reference.status is not Status.OK:
            return MeasureResult(
                fault=DeviceFault.BROKEN,
                message=f"the reference kernel: {reference.status}: {reference.message}",
            )
    drift = after.undisturbed_ns / max(before.undisturbed_ns, 1.0) - 1
    if abs(drift) > request.policy.max_drift:
        return MeasureResult(
            fault=DeviceFault.DRIFTED,
            message=f"the reference kernel's time moved by {drift:+.0%} during the batch",
        )
    return MeasureResult(tuple(candidates))
