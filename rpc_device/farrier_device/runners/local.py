"""The runner of this machine: it measures batches in sandboxed children, and survives their
failures.

The compiler (on its own machine) and the device agent use this runner. Every batch has its own
child, which loads one library. The child and all processes that the library has started are ended
before the next batch begins, so that no library can affect another. A child that crashed or hung is
replaced when the next candidate needs one. (No spare child is started in advance, because its start
would disturb the timing.)
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Sequence

from farrier_device import describe, devices
from farrier_device.closing import Closing
from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import (
    Blame,
    Candidate,
    CandidateResult,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    Rival,
    RivalResult,
    TimingPolicy,
)
from farrier_device.profiles import SIMULATOR
from farrier_device.runners.baselines import Engines, race, unraced
from farrier_device.runners.files import BatchFiles, BlobError, BlobSource
from farrier_device.runners.reference import AroundReference
from farrier_device.runners.supervisor import CancelledError, Run, Supervisor
from farrier_device.sandbox import Limits, SandboxError

_PATIENCE = 10.0  # The factor by which a candidate gets more time on an emulator.

__all__ = ["BlobSource", "ChildRunner"]


class ChildRunner(Closing):
    """A runner that measures one batch at a time in sandboxed children; further callers wait.

    `require` names the layers of the sandbox ("seccomp+landlock") without which nothing is run.
    `pin` binds each worker thread of a candidate to one CPU. `engines` are the other inference
    engines that models may be compared with. `adapter` is the name of a GPU (`adapters.Adapter`)
    that measures code for GPUs, and `code` the kind of code for which `sandbox_level` reports the
    level.
    """

    def __init__(
        self,
        *,
        device: str = "local",
        limits: Limits | None = None,
        require: str = "",
        pin: bool = True,
        emulated: bool | None = None,
        engines: Engines = Engines(),
        adapter: str = "",
        code: str = HOST_CODE,
    ) -> None:
        """Create a runner. `emulated` states whether this machine is emulated in software; None
        means to detect that."""
        self._device = device
        self.emulated = describe.is_emulated() if emulated is None else emulated
        self._supervisor = Supervisor(
            limits or Limits.of_machine(), require, pin, adapter, engines.secrets
        )
        self._code = code
        self._pin = pin
        self._engines = engines
        self._lock = threading.Lock()
        self._closed = False

    @property
    def kind(self) -> str:
        """The word for this kind of runner in a device's description."""
        return "child" if self._code in devices.KINDS else SIMULATOR.name

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of code that this runner measures; with an adapter, those of the adapter."""
        return devices.kinds_with(self._code)

    @property
    def devices(self) -> int | None:
        """The number of farm devices, which is None because this machine itself measures."""
        return None

    def sandbox_level(self) -> str:
        """The isolation level that children reach on this machine, such as
        "seccomp+landlock+pidns+rlimits".

        Raises SandboxError if no child starts, or the level lacks a required layer.
        """
        with self._lock, self._supervisor.batch(self._code) as level:
            return level

    def measure(
        self,
        request: MeasureRequest,
        blobs: BlobSource,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Return the result of a batch. Failures of candidates, blobs and children are fields of
        the result, not exceptions.

        When the call returns, all processes that the library has started have ended. A batch whose
        `cancelled` is set ends within a second, with `DeviceFault.LOST`.
        """
        request = for_an_emulator(request) if self.emulated else request
        level = ""
        with self._lock:
            if self._closed:
                raise ValueError("the runner is closed")
            begin = time.monotonic()  # The time of earlier batches does not count.
            try:
                with self._supervisor.batch(devices.kind_of(request)) as level:
                    result = self._answer(request, blobs, cancelled or threading.Event())
            except (BlobError, SandboxError) as error:
                result = MeasureResult(fault=DeviceFault.BROKEN, message=str(error))
            except devices.UnknownKindError as error:
                result = MeasureResult(
                    fault=DeviceFault.BROKEN, blame=Blame.AGENT, message=str(error)
                )
            except CancelledError:
                result = MeasureResult(fault=DeviceFault.LOST, message="the batch was cancelled")
            except OSError as error:  # This machine has no more descriptors, memory or processes.
                result = MeasureResult(
                    fault=DeviceFault.BROKEN, message=f"the runner failed: {error}"
                )
            run_s = time.monotonic() - begin
        return dataclasses.replace(
            result, device=self._device, sandbox=level, run_s=run_s, emulated=self.emulated
        )

    def close(self) -> None:
        """End the child and the process that forks it; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._supervisor.close()

    def _answer(
        self, request: MeasureRequest, blobs: BlobSource, cancelled: threading.Event
    ) -> MeasureResult:
        with BatchFiles(_without_rival(request), blobs) as files:
            if request.rival is None:
                return self._measured(request, files, cancelled)
            return self._raced(request, request.rival, files, blobs, cancelled)

    def _measured(
        self, request: MeasureRequest, files: BatchFiles, cancelled: threading.Event
    ) -> MeasureResult:
        def run(candidates: Sequence[Candidate], fresh: bool) -> Run:
            part = dataclasses.replace(request, candidates=tuple(candidates), reference=None)
            return self._supervisor.run(part, files, cancelled, fresh=fresh)

        if request.reference is None:
            return MeasureResult(tuple(run(request.candidates, False).results))
        return AroundReference(request.reference, request.policy.max_drift, run).measure(
            request.candidates
        )

    def _raced(
        self,
        request: MeasureRequest,
        rival: Rival,
        files: BatchFiles,
        blobs: BlobSource,
        cancelled: threading.Event,
    ) -> MeasureResult:
        if self.emulated:
            outcome = RivalResult(
                rival.engine, message="the device is emulated, so times measured on it mean nothing"
            )
            return unraced(request, outcome)
        if len(request.candidates) != 1:
            return unraced(
                request,
                RivalResult(
                    rival.engine,
                    message="a comparison with another engine has exactly one candidate",
                ),
            )

        def ours(policy: TimingPolicy) -> CandidateResult:
            alone = dataclasses.replace(_without_rival(request), policy=policy, reference=None)
            [result] = self._supervisor.run(alone, files, cancelled).results
            return result

        return race(request, rival, self._engines, blobs, ours, cancelled, pin=self._pin)


def _without_rival(request: MeasureRequest) -> MeasureRequest:
    return dataclasses.replace(request, rival=None)


def for_an_emulator(request: MeasureRequest) -> MeasureRequest:
    """Return the request with more time for each candidate and no limit on drift, because the speed
    of an emulator changes as it translates more of the code."""
    timeout_s = _PATIENCE * request.policy.timeout_s
    policy = dataclasses.replace(request.policy, timeout_s=timeout_s, max_drift=math.inf)
    return dataclasses.replace(request, policy=policy)
