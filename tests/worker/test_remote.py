"""The line between a job's process and its supervisor: both contracts of the compiler hold over it,
and whatever else is said ends the attempt."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farrier.errors import NoDeviceError, ServiceError
from farrier.options import CompileOptions
from farrier.records import TaskDefinition
from farrier_device import wire
from farrier_device.blobstore import BlobStore
from farrier_device.describe import describe
from farrier_device.measurement import (
    Argument,
    Blame,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    MeasureResult,
    Rival,
    Role,
    Status,
    to_json,
)
from farrier_device.runners.local import ChildRunner
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.records.entry import RecordEntry
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings
from farrier_farm.storage.references import REFERENCES
from farrier_worker.clock import JobClock
from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.job_channel_server import JobChannelServer
from farrier_worker.remote import RemoteRecords, RemoteRunner, RemoteTasks
from tests.device_side import BlockingDeviceSide
from tests.here import TARGET
from tests.measure.runner_contract import RunnerContract
from tests.records.record_store_contract import LastingRecordStoreContract, a_record
from tests.rpc_device.doubling import linked_kernels
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def one_installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = Settings(
        home=tmp_path_factory.mktemp("f"),
        min_free_bytes=0,
        batch_attempts=1,
        batch_timeout_s=60.0,
    )
    valkey = embedded.start(settings)
    yield settings
    valkey.stop()


@pytest.fixture
def farm(one_installation: Settings) -> Iterator[Farm]:
    """Empty."""
    farm = Farm.open(one_installation)
    farm.client.command("FLUSHALL")
    yield farm
    farm.close()


class Served:
    """A gateway for a job that is leased, the other end of its line, and why it was aborted."""

    def __init__(self, farm: Farm, scratch: Path) -> None:
        model = farm.blobs.put(b"a model")
        self.job = farm.jobs.submit(model, CompileOptions(target=TARGET, verify=False)).id
        lease = farm.jobs.lease("w", 5.0)
        assert lease is not None
        ours, self.sock = socket.socketpair()
        self.aborted: list[tuple[str, bool]] = []
        self.channel = JobChannelServer(farm, lease, ours, scratch, JobClock(), self._abort)

    def _abort(self, reason: str, *, crashed: bool = False) -> None:
        self.aborted.append((reason, crashed))

    def line(self) -> JobChannelClient:
        line = JobChannelClient(self.sock)
        line.ready("")
        return line

    def close(self) -> None:
        self.channel.close()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        for thread in threading.enumerate():
            if thread.name == "line":
                thread.join(20)
        self.sock.close()
        self.channel._thread.join(20)
        assert self.channel.is_done


@pytest.fixture
def served(farm: Farm, tmp_path: Path) -> Iterator[Served]:
    served = Served(farm, tmp_path)
    yield served
    served.close()


class TestRecords(LastingRecordStoreContract):
    @pytest.fixture
    def new_store(self, farm: Farm, served: Served) -> Callable[[], RemoteRecords]:
        line = served.line()
        # Those of a job say where they were measured.
        served.channel._tuning = dataclasses.replace(served.channel._tuning, records=farm.records)  # type: ignore[type-var]

        def make() -> RemoteRecords:
            farm.client.command("FLUSHALL")
            self.farm, self.line = farm, line
            return RemoteRecords(line)

        return make

    def reopen(self, store: RemoteRecords) -> RemoteRecords:
        return RemoteRecords(self.line)

    @contextlib.contextmanager
    def broken(self, store: RemoteRecords) -> Iterator[None]:
        self.farm.client.command("CONFIG", "SET", "maxmemory", "1")
        try:
            yield
        finally:
            self.farm.client.command("CONFIG", "SET", "maxmemory", "0")

    def plant(self, store: RemoteRecords, line: str) -> None:
        entry = dataclasses.replace(RecordEntry.of_line(line), task="a1", target="host")
        self.farm.records._add_entries([entry])

    def test_a_record_that_has_no_room_is_added_once_there_is(self, store, served):
        """By another attempt: the job goes back to the queue, as for any outage of Redis."""
        store.add(a_record())
        with self.broken(store), pytest.raises(ServiceError):
            store.add(a_record(seed=4))
        ((reason, crashed),) = served.aborted
        assert reason.startswith("Redis")
        assert not crashed
        assert list(self.farm.records) == [a_record()]

    def test_more_records_than_fit_in_one_part(self, new_store):
        store = new_store()
        records = [a_record(seed=seed) for seed in range(450)]
        for record in records:
            self.farm.records.add(record)
        assert store.find("a1", "host") == list(store) == records


def test_tasks_are_defined_on_the_farm(farm: Farm, served: Served) -> None:
    definitions = [TaskDefinition(f"t{n}", "host", 2, f"program {n}", "{}") for n in range(250)]
    RemoteTasks(served.line()).define(definitions)
    assert (
        sorted(farm.definitions.newest(1000), key=lambda definition: int(definition.task[1:]))
        == definitions
    )


class TestRunner(RunnerContract):
    """The runner of a job's process, and behind its supervisor a device that runs native code."""

    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return BlobStore(tmp_path / "compiler", 1 << 24)

    @pytest.fixture
    def runner(
        self, farm: Farm, served: Served, device_side: BlockingDeviceSide
    ) -> Iterator[RemoteRunner]:
        self.farm = farm
        session = device_side.connect("d", dataclasses.asdict(describe()))
        stop = threading.Event()

        def work() -> None:
            with ChildRunner(device="d", pin=False) as child:
                while not stop.is_set():
                    batch = device_side.lease("d", session, 0.1)
                    if batch is not None:
                        result = child.measure(batch.request, farm.blobs)
                        lease = batch.lease
                        device_side.report("d", session, lease.item, lease.fence, result)

        device = threading.Thread(target=work)
        device.start()
        yield RemoteRunner(served.line())
        stop.set()
        device.join()

    def left_behind(self) -> list[str]:
        leases = self.farm.measurements.leases
        batches = [i for s in State if not s.final for i in leases.members(state=s, limit=10)]
        library = hashlib.sha256(linked_kernels()).hexdigest()
        referred = self.farm.client.command("EXISTS", f"{REFERENCES}{library}")
        return [*batches, *[library] * (referred + self.farm.blobs.has(library))]


def test_a_job_gets_as_many_cores_as_its_worker_says(farm: Farm, served: Served, tmp_path) -> None:
    assert "cores" not in served.line().order["options"]
    settings = dataclasses.replace(farm.settings, job_cores=3)
    with contextlib.closing(Farm.open(settings)) as own:
        other = Served(own, tmp_path)
        other.sock.settimeout(20)
        order = wire.receive(other.sock)
        assert CompileOptions.from_dict(order["options"]).cores == 3
        other.sock.shutdown(socket.SHUT_RDWR)
        other.channel._thread.join(20)
        other.sock.close()


def test_waiting_for_a_device_is_no_silence(farm: Farm, served: Served, tmp_path: Path) -> None:
    runner, blobs = RemoteRunner(served.line()), BlobStore(tmp_path / "b", 1 << 20)
    request = MeasureRequest((CodeObject(blobs.put(b"\x7fELF")),), ())
    batches = farm.measurements.leases

    def ask() -> None:
        with contextlib.suppress(ServiceError):  # Its supervisor is gone.
            runner.measure(request, blobs)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: batches.members(state=State.QUEUED, limit=1))
    assert served.channel.silent_s() == 0.0
    served.close()
    asking.join(20)
    assert batches.members(state=State.QUEUED, limit=1) == []  # It was cancelled with its job.
    assert served.channel.silent_s() >= 0.0


def test_what_the_farm_has_lost_since_an_earlier_batch_is_sent_again(
    farm: Farm, served: Served, device_side: BlockingDeviceSide, tmp_path: Path
) -> None:
    """By a sweep, or a damaged disk: the process alone has it still."""
    runner, blobs = RemoteRunner(served.line()), BlobStore(tmp_path / "b", 1 << 20)
    weights = blobs.put(b"weights")
    candidate = Candidate((Launch("kernel"),), (Argument(Role.INPUT, 7, blob=weights),))
    request = MeasureRequest((CodeObject(blobs.put(b"\x7fELF")),), (candidate,))
    session = device_side.connect("d", dataclasses.asdict(describe()))
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            batch = device_side.lease("d", session, 0.1)
            if batch is not None:
                result = MeasureResult(results=(CandidateResult(Status.OK, (1,)),))
                if not farm.blobs.has(weights):
                    result = MeasureResult(fault=DeviceFault.BROKEN, blame=Blame.FARM)
                device_side.report("d", session, batch.lease.item, batch.lease.fence, result)

    device = threading.Thread(target=work)
    device.start()
    try:
        assert runner.measure(request, blobs).fault is None
        farm.blobs.remove(weights, lambda _: False)
        assert runner.measure(request, blobs).fault is None
    finally:
        over.set()
        device.join()


def _frame(message: object) -> bytes:
    text = json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text


def _raw(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


A_RACE = to_json(
    MeasureRequest((CodeObject("5e" * 32),), (), rival=Rival("openvino", (), (), (), 1.0))
)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (_raw(b"{"), "not JSON"),
        (_raw(b"[" * 100_000), "not JSON"),
        (_raw(b"[]"), "not an object"),
        (struct.pack("<I", 1 << 31), "a frame of 2147483648 bytes"),
        (_frame({}), "{}"),
        (_frame({"say": {"kind": []}}), "is not a kind"),
        (_frame({"say": {"kind": "state", "state": "succeeded"}}), "is not a kind"),
        (_frame({"say": {"kind": "warned", "message": 3}}), "not of type str"),
        (_frame({"say": {"kind": "warned", "message": "x" * (1 << 21)}}), "more than 1048576"),
        (_frame({"ask": 1, "add": "{}"}), "it has no field"),
        (_frame({"ask": 1, "add": a_record(trace="x" * 200_000).to_line()}), "more than 100000"),
        (_frame({"ask": 1, "add": a_record(task="\ud800").to_line()}), "surrogates"),
        (_frame({"ask": 1, "define": ["{}"]}), "definition: it has no field"),
        (_frame({"ask": 1, "define": [{}]}), "TypeError"),
        (_frame({"ask": 1, "define": ["{}"] * 1001}), "'define'"),
        (_frame({"ask": 1, "find": ["task"]}), "'find': ['task']"),
        (_frame({"ask": 1, "measure": "{}", "blobs": []}), "it has no field 'candidates'"),
        (_frame({"ask": 1, "measure": "{}", "blobs": ["5e" * 32]}) + b"f", "descriptor is missing"),
        (_frame({"ask": 1, "measure": "{}", "blobs": ["5e" * 32] * 1001}), "'blobs'"),
        (_frame({"ask": 1, "measure": A_RACE, "blobs": []}), "does not include"),
        (_frame({"ask": 1, "fail": {"code": "dead"}}), "'fail'"),
        (_frame({"ask": "1", "records": True}), "'records'"),
        (_frame({"ready": "landlock"}), "'ready'"),
    ],
    ids=lambda value: value[:40].strip() if isinstance(value, str) else "",
)
def test_what_no_job_says_ends_the_attempt(farm: Farm, served: Served, said, reason) -> None:
    served.sock.settimeout(20)
    wire.receive(served.sock)
    served.sock.sendall(_frame({"ready": ""}) + said)
    assert served.sock.recv(1) == b""  # it hangs up
    [(why, crashed)] = served.aborted
    assert crashed
    assert "malformed" in why
    assert reason in why
    assert len(why) < 1000
    assert farm.jobs.get(served.job).state is State.RUNNING


def test_a_descriptor_of_no_file_ends_the_attempt(served: Served) -> None:
    """Reading it would block for ever."""
    wire.receive(served.sock)
    reading, writing = os.pipe()
    wire.send(served.sock, {"ready": ""})
    wire.send(served.sock, {"ask": 1, "finish": {}})
    wire.send_files(served.sock, [reading])
    served.sock.settimeout(20)
    assert served.sock.recv(1) == b""
    assert "not of a regular file" in served.aborted[0][0]
    os.close(reading)
    os.close(writing)


def test_a_job_that_lost_its_lease_changes_nothing(farm: Farm, served: Served) -> None:
    line = served.line()
    farm.cancel(served.job)
    with pytest.raises(ServiceError, match="supervisor is gone"):
        line.fail(NoDeviceError("none"))
    [(why, crashed)] = served.aborted
    assert (crashed, "no longer holds" in why) == (False, True)
    assert farm.jobs.get(served.job).state is State.CANCELLED


def test_the_runner_knows_how_many_devices_measure(
    farm: Farm, served: Served, device_side: BlockingDeviceSide
) -> None:
    line = served.line()
    assert RemoteRunner(line).devices == 0
    for name in ("one", "two"):
        device_side.connect(name, dataclasses.asdict(describe()))
    assert RemoteRunner(line).devices == 2
