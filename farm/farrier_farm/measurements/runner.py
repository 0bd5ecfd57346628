"""The compiler's measurement runner for a farm: any device of the job's class may measure a
batch."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time

from farrier import progress
from farrier.errors import ConflictError
from farrier_device.measurement import Blame, DeviceFault, MeasureRequest, MeasureResult, Rival
from farrier_device.runners.files import BlobError, BlobSource
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.devices.devices import Devices
from farrier_farm.errors import DeviceAwayError
from farrier_farm.jobs.admission import Admission
from farrier_farm.leases.leases import Lease
from farrier_farm.measurements.confirmation import Confirmation
from farrier_farm.measurements.measurements import Measurements
from farrier_farm.settings import Settings
from farrier_farm.storage.content import ContentStore
from farrier_farm.storage.references import References

_LOOK_S = 1.0  # The interval at which a waiting job checks whether a device is still connected.


class FarmRunner:
    """A runner that measures for an attempt at a job. Several threads may measure batches in
    parallel, each on another device."""

    kind = "farm"

    def __init__(
        self,
        settings: Settings,
        measurements: Measurements,
        admission: Admission,
        devices: Devices,
        blobs: ContentStore,
        references: References,
        place: MeasurementTarget,
        job: Lease | None = None,
        listener: progress.Listener = progress.ignore,
        owner: str = "",
    ) -> None:
        """Create a runner. Its batches count as those of the job's `owner` in the fair order of
        batches. `listener` receives a warning, in the thread that measures, when a batch begins to
        wait for a device."""
        self._measurements = measurements
        self._admission = admission
        self._devices = devices
        self._blobs = blobs
        self._references = references
        self._place = place
        self._job = job
        self._owner = owner
        self._listener = listener
        self._timeout_s = settings.batch_timeout_s
        self._patience_s = 2 * settings.device_expiry_s  # Enough for a device that restarts.
        self._stored: set[str] = set()  # The blobs that are in the blob store.
        self.device = ""  # The device that measured last.
        self._measured_by: set[str] = set()

    @property
    def job(self) -> Lease | None:
        """The attempt at a job for which this runner measures, or None."""
        return self._job

    @property
    def measured_by(self) -> frozenset[str]:
        """The names of all devices that have measured for this runner."""
        return frozenset(self._measured_by)

    @property
    def devices(self) -> int | None:
        """Return the number of connected devices that may measure for this runner, by a single
        Redis command."""
        return self._admission.serving(self._place)

    def measure(
        self,
        request: MeasureRequest,
        blobs: BlobSource,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Measure a batch. `blobs` returns the content of the blobs that `request.blobs()` names; a
        blob that was stored for an earlier request is not read again, unless the farm has lost it.
        If no device can measure the batch, or a blob is missing, the result is a fault. The result
        of a verification is confirmed by a trusted device or by several devices (`Confirmation`).

        A batch with a rival, another inference engine for comparison, is measured by a device that
        has the engine installed. Raises NoDeviceError if no device has the engine, DeviceAwayError
        if no device of the job's class has been connected for a while, CancelledError if the job
        has ended, StorageError.
        """
        if request.rival is not None:
            return self._raced(request, request.rival, blobs, cancelled)
        if not request.verifies:
            return self._measured_at(self._place, request, blobs, cancelled)
        confirmation = Confirmation(self._devices, self._place, self._listener)
        return confirmation.of(lambda place: self._measured_at(place, request, blobs, cancelled))

    def _measured_at(
        self,
        place: MeasurementTarget,
        request: MeasureRequest,
        blobs: BlobSource,
        cancelled: threading.Event | None,
    ) -> MeasureResult:
        """Return the result of a device of `place` (a device class or a single device). If the farm
        has lost a blob, store the blobs again and repeat the measurement."""
        result = self._measured(request, place, blobs, cancelled)
        if result.fault is not None and result.blame is Blame.FARM:
            self._listener(progress.Warned(f"{result.message}; the job stores it again"))
            self._stored -= request.blobs()
            again = self._measured(request, place, blobs, cancelled)
            result = _with_transfer(again, result.transfer_s)
        return result

    def _raced(
        self,
        request: MeasureRequest,
        rival: Rival,
        blobs: BlobSource,
        cancelled: threading.Event | None,
    ) -> MeasureResult:
        """Measure a batch with the inference engine `rival` on a device that has the engine
        installed. If that device disconnects, return a fault, so that the job continues without the
        comparison."""
        place = self._admission.place_with(self._place, rival.engine, self.device)
        try:
            return self._measured(request, place, blobs, cancelled)
        except DeviceAwayError as error:
            return MeasureResult(fault=DeviceFault.LOST, message=error.message)

    def _measured(
        self,
        request: MeasureRequest,
        place: MeasurementTarget,
        blobs: BlobSource,
        cancelled: threading.Event | None,
    ) -> MeasureResult:
        begin = time.monotonic()
        try:
            for sha256 in request.blobs() - self._stored - request.code_blobs:
                self._bring(sha256, blobs)
                self._stored.add(sha256)
            # Another job of the same model may use the same library, and be about to remove the
            # library.
            with contextlib.ExitStack() as held:
                for sha256 in sorted(request.code_blobs):
                    held.enter_context(self._references.held(sha256))
                    self._bring(sha256, blobs)
                transfer_s = time.monotonic() - begin
                batch = self._measurements.submit(request, place, self._job, self._owner)
        except BlobError as error:
            return MeasureResult(fault=DeviceFault.BROKEN, blame=Blame.FARM, message=str(error))
        try:
            result = self._wait(batch, place, cancelled)
            if result.device:
                self.device = result.device
                self._measured_by.add(result.device)
        finally:
            self._measurements.cancel(batch)
            # No later batch needs the code, but a job of the same model may have a batch with it
            # now.
            for sha256 in sorted(request.code_blobs):
                self._blobs.remove(sha256, self._references.are_there)
        return _with_transfer(result, transfer_s)

    def close(self) -> None:
        """Do nothing: `measure` drops its batch when it returns."""

    def _bring(self, sha256: str, blobs: BlobSource) -> None:
        """Store a blob, read from `blobs`, so that devices can download it. Raises BlobError if
        `blobs` does not contain the blob."""
        try:
            path = blobs.path(sha256)
        except Exception as error:  # The source is the caller's, so any exception is possible.
            raise BlobError(f"blob {sha256} is missing: {error}") from error
        try:
            self._blobs.put_file(path, expected=sha256)
        except ConflictError as error:
            raise BlobError(f"blob {sha256} has other contents: {error.message}") from error

    def _wait(
        self, batch: str, place: MeasurementTarget, cancelled: threading.Event | None
    ) -> MeasureResult:
        begin = device_seen = time.monotonic()
        warned = False
        while True:
            result = self._measurements.wait(batch, _LOOK_S)
            if result is not None:
                return result
            now = time.monotonic()
            if cancelled is not None and cancelled.is_set():
                return MeasureResult(fault=DeviceFault.LOST, message="the batch was cancelled")
            if now - begin > self._timeout_s:
                message = f"no device measured it within {self._timeout_s:.0f} s"
                return MeasureResult(fault=DeviceFault.LOST, message=message)
            if self._admission.is_served(place):
                device_seen, warned = now, False
            elif not warned:
                self._warn(place)
                warned = True
            elif now - device_seen > self._patience_s:
                self._admission.require(place)

    def _warn(self, place: MeasurementTarget) -> None:
        """Warn the listener that no device of `place` is connected, and name alternative targets.
        Call this only once per wait, because it searches all devices."""
        try:
            self._admission.require(place)
        except DeviceAwayError as error:
            waits = f"the job waits up to {self._patience_s:.0f} s for one"
            self._listener(progress.Warned(f"{error.message}; {waits}"))


def _with_transfer(result: MeasureResult, seconds: float) -> MeasureResult:
    return dataclasses.replace(result, transfer_s=result.transfer_s + seconds)
