"""The compiler's runner on the farm, with devices that take batches in threads."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farrier import progress
from farrier.errors import CancelledError, NoDeviceError, NotFoundError
from farrier.options import CompileOptions
from farrier_device.blobstore import BlobStore
from farrier_device.measurement import (
    Argument,
    Blame,
    CandidateResult,
    DeviceFault,
    MeasureResult,
    Role,
    Status,
)
from farrier_device.runners.local import ChildRunner
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.measurements.async_batches import Batch
from farrier_farm.measurements.runner import FarmRunner
from farrier_farm.storage.references import REFERENCES, References
from tests.device_side import BlockingDeviceSide
from tests.here import HERE, TARGET
from tests.measure.runner_contract import RunnerContract
from tests.rpc_device.doubling import linked_kernels

LIBRARY = b"\x7fELF of a batch"
DIGEST = hashlib.sha256(LIBRARY).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    store = BlobStore(tmp_path / "compiler", 1 << 20)
    store.put(LIBRARY)
    return store


class DeviceThreads:
    """Devices that answer batches, each in a thread of its own."""

    def __init__(
        self, device_side: BlockingDeviceSide, connect_device: Callable[..., tuple[str, str]]
    ) -> None:
        self._device_side = device_side
        self._connect = connect_device
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __call__(self, device_id: str, answer: Callable[[Batch], MeasureResult]) -> None:
        """Start a device that answers each batch with `answer(batch)`."""
        device = self._connect(device_id)
        side = self._device_side

        def work() -> None:
            while not self._stop.is_set():
                batch = side.lease(*device, 0.1)
                if batch is not None:
                    result = answer(batch)
                    side.report(*device, batch.lease.item, batch.lease.fence, result)

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def device_thread(device_side, connect_device) -> Iterator[DeviceThreads]:
    devices = DeviceThreads(device_side, connect_device)
    yield devices
    devices.stop()


class TestContract(RunnerContract):
    """The runner in front of real servers, and behind them a device that runs native code."""

    @pytest.fixture
    def farm(self, farm: Farm) -> Iterator[Farm]:
        """One in which the first fault of a batch is its answer."""
        settings = dataclasses.replace(farm.settings, batch_attempts=1, batch_timeout_s=60.0)
        with contextlib.closing(Farm.open(settings)) as own:
            yield own

    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return BlobStore(tmp_path / "compiler", 1 << 24)

    @pytest.fixture
    def runner(self, farm: Farm, device_thread) -> Iterator[FarmRunner]:
        self.measuring_farm = farm
        with ChildRunner(device="d", pin=False) as child:
            device_thread("d", lambda batch: child.measure(batch.request, farm.blobs))
            yield farm.runner(HERE)
            device_thread.stop()

    def left_behind(self) -> list[str]:
        leases = self.measuring_farm.measurements.leases
        batches = [i for s in State if not s.final for i in leases.members(state=s, limit=10)]
        libraries = [hashlib.sha256(linked_kernels()).hexdigest()]
        references = self.measuring_farm.client.command("KEYS", f"{REFERENCES}*")
        return [*batches, *references, *filter(self.measuring_farm.blobs.has, libraries)]


def _timed(batch: Batch) -> MeasureResult:
    sample = len(batch.request.candidates)
    return MeasureResult(
        results=tuple(CandidateResult(Status.OK, (sample,)) for _ in batch.request.candidates)
    )


def _impatient(
    farm: Farm, listener: progress.Listener = progress.ignore, **changes: object
) -> FarmRunner:
    settings = dataclasses.replace(farm.settings, **changes)
    parts = farm.measurements, farm.admission, farm.devices, farm.blobs, farm.references
    return FarmRunner(settings, *parts, HERE, listener=listener)


def test_a_batch_is_measured_on_a_device(
    farm: Farm, blobs: BlobStore, request_of, device_thread
) -> None:
    seen: list[bytes] = []

    def answer(batch: Batch) -> MeasureResult:
        seen.append(farm.blobs.verified(batch.request.code[0].blob).read_bytes())
        return _timed(batch)

    device_thread("d", answer)
    result = farm.runner(HERE).measure(request_of(DIGEST), blobs)
    assert seen == [LIBRARY]
    assert (result.device, result.fault) == ("d", None)
    assert [r.samples_ns for r in result.results] == [(2,), (2,)]
    assert result.transfer_s > 0
    assert not farm.blobs.has(DIGEST)  # A library is useless after its batch.


def test_batches_spread_over_devices(
    farm: Farm, blobs: BlobStore, request_of, device_thread
) -> None:
    def slow(batch: Batch) -> MeasureResult:
        time.sleep(0.3)
        return _timed(batch)

    for device_id in ("d1", "d2", "d3"):
        device_thread(device_id, slow)
    runner = farm.runner(HERE)
    results: list[MeasureResult] = []

    def measure(number: int) -> None:
        digest = blobs.put(b"library %d" % number)
        results.append(runner.measure(request_of(digest), blobs))

    threads = [threading.Thread(target=measure, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {result.device for result in results} == {"d1", "d2", "d3"}


def test_a_library_stays_while_another_batch_needs_it(
    farm: Farm, blobs: BlobStore, request_of, device_thread, connect_device, device_side
) -> None:
    other = farm.measurements.submit(request_of(DIGEST), HERE)
    first = connect_device("first")
    held = device_side.lease(*first, 1.0)
    assert held is not None
    device_thread("second", _timed)
    farm.runner(HERE).measure(request_of(DIGEST), blobs)
    assert farm.blobs.verified(DIGEST).read_bytes() == LIBRARY
    farm.measurements.cancel(other)
    farm.runner(HERE).measure(request_of(DIGEST), blobs)
    assert not farm.blobs.has(DIGEST)


@pytest.mark.parametrize("moment", range(4))
def test_no_library_vanishes_that_another_batch_needs(
    farm: Farm, blobs: BlobStore, request_of, device_thread, monkeypatch, moment
) -> None:
    """One job removes its library while another one queues a batch of the same: before and after
    each of the first one's looks at who needs it. A device leases that and reads when the first job
    is done."""
    leased, removed = threading.Event(), threading.Event()
    seen: list[bytes | None] = []

    def answer(batch: Batch) -> MeasureResult:
        if seen:
            leased.set()
            removed.wait(20)
        content = farm.blobs.has(DIGEST) and farm.blobs.path(DIGEST).read_bytes()
        seen.append(content or None)
        return _timed(batch)

    device_thread("d", answer)
    are_there, moments = References.are_there, itertools.count()
    runner = farm.runner(HERE)
    other = threading.Thread(target=lambda: runner.measure(request_of(DIGEST), blobs))

    def meet() -> None:
        if next(moments) == moment:
            other.start()
            assert leased.wait(20)

    def look(self: References, sha256: str) -> bool:
        meet()
        is_referred = are_there(self, sha256)
        meet()
        return is_referred

    monkeypatch.setattr(References, "are_there", look)
    assert farm.runner(HERE).measure(request_of(DIGEST), blobs).fault is None
    removed.set()
    other.join(20)
    assert seen == [LIBRARY, LIBRARY]
    assert not farm.blobs.has(DIGEST)


def test_jobs_that_share_a_library_never_miss_it(
    farm: Farm, blobs: BlobStore, request_of, device_thread
) -> None:
    missed: list[str] = []

    def answer(batch: Batch) -> MeasureResult:
        try:
            assert farm.blobs.path(batch.request.code[0].blob).read_bytes() == LIBRARY
        except (NotFoundError, FileNotFoundError) as error:
            missed.append(str(error))
        return _timed(batch)

    for number in range(4):
        device_thread(f"d{number}", answer)

    def job() -> None:
        runner = farm.runner(HERE)
        for _ in range(25):
            runner.measure(request_of(DIGEST), blobs)

    jobs = [threading.Thread(target=job) for _ in range(4)]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert missed == []
    assert not farm.blobs.has(DIGEST)


def test_a_faulty_device_does_not_hurt_the_result(
    farm: Farm, blobs: BlobStore, request_of, device_thread
) -> None:
    faulted = threading.Event()

    def fault(batch: Batch) -> MeasureResult:
        faulted.set()
        return MeasureResult(fault=DeviceFault.DRIFTED, message="31% slower")

    device_thread("bad", fault)
    helper = threading.Thread(target=lambda: faulted.wait(10) and device_thread("good", _timed))
    helper.start()
    result = farm.runner(HERE).measure(request_of(DIGEST), blobs)
    helper.join()
    assert result.device == "good"
    assert farm.devices.get("bad").faults == 1


@pytest.mark.parametrize("lost", ["library", "input"])
def test_what_the_farm_has_lost_is_brought_again(
    farm: Farm, blobs: BlobStore, request_of, device_thread, lost
) -> None:
    """A sweep or a damaged disk; the device that finds it so is not to blame."""
    digests = {"library": DIGEST, "input": blobs.put(b"weights")}
    argument = Argument(Role.INPUT, 7, blob=digests["input"])
    request = request_of(DIGEST)
    candidates = [dataclasses.replace(c, args=(argument,)) for c in request.candidates]
    request = dataclasses.replace(request, candidates=tuple(candidates))
    answers: list[MeasureResult] = []

    def answer(batch: Batch) -> MeasureResult:
        if not answers:
            farm.blobs.remove(digests[lost], lambda _: False)
        try:
            for sha256 in batch.request.blobs():
                farm.blobs.verified(sha256)
            answers.append(_timed(batch))
        except NotFoundError as error:
            broken = DeviceFault.BROKEN
            answers.append(MeasureResult(fault=broken, blame=Blame.FARM, message=error.message))
        return answers[-1]

    heard: list[progress.Event] = []
    device_thread("d", answer)
    result = farm.runner(HERE, listener=heard.append).measure(request, blobs)
    assert result.fault is None
    assert len(answers) == 2
    assert [digests[lost] in event.message for event in heard] == [True]
    assert farm.devices.get("d").faults == 0


def test_what_the_farm_cannot_keep_is_said(
    farm: Farm, blobs: BlobStore, request_of, device_thread
) -> None:
    message = f"the broker has no blob {DIGEST}"

    def answer(batch: Batch) -> MeasureResult:
        farm.blobs.remove(DIGEST, lambda _: False)
        return MeasureResult(fault=DeviceFault.BROKEN, blame=Blame.FARM, message=message)

    device_thread("d", answer)
    result = farm.runner(HERE).measure(request_of(DIGEST), blobs)
    assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.FARM)
    assert DIGEST in result.message
    assert farm.devices.get("d").faults == 0


def test_without_devices_it_gives_up(farm: Farm, blobs: BlobStore, request_of) -> None:
    heard: list[progress.Event] = []
    runner = _impatient(farm, heard.append, device_expiry_s=1.0)  # It looks once a second.
    with pytest.raises(NoDeviceError, match=HERE.device_class):
        runner.measure(request_of(DIGEST), blobs)
    [warning] = heard
    assert f"no device for class:{HERE.device_class} is connected" in warning.message
    assert warning.message.endswith("waits up to 2 s for one")
    assert not farm.references.are_there(DIGEST)  # The batch was dropped.


def test_a_batch_that_nobody_takes_in_time_is_lost(
    farm: Farm, blobs: BlobStore, request_of, connect_device
) -> None:
    connect_device("asleep")
    result = _impatient(farm, batch_timeout_s=0.1).measure(request_of(DIGEST), blobs)
    assert result.fault is DeviceFault.LOST
    assert not farm.references.are_there(DIGEST)


def test_a_called_off_batch_ends(farm: Farm, blobs: BlobStore, request_of, connect_device) -> None:
    connect_device("asleep")
    cancelled = threading.Event()
    cancelled.set()
    result = farm.runner(HERE).measure(request_of(DIGEST), blobs, cancelled)
    assert result.fault is DeviceFault.LOST


def test_the_end_of_the_job_ends_the_wait(
    farm: Farm, blobs: BlobStore, request_of, connect_device
) -> None:
    connect_device("asleep")
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    timer = threading.Timer(0.2, farm.cancel, [job.id])
    timer.start()
    with pytest.raises(CancelledError):
        farm.runner(HERE, lease).measure(request_of(DIGEST), blobs)
    timer.join()
