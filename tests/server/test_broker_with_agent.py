"""The way of a batch through everything that is real: farm, broker, agent process, native code."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import hashlib
import random
import signal
import subprocess
import sys
import time

import pytest

from farrier.targets import host
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import support_object
from farrier_device.blobstore import BlobStore
from farrier_device.measurement import Argument, Candidate, MeasureRequest, Role, Status
from farrier_device.protocol import device_pb2

COUNT = 1009

# y = 3x over f32[COUNT], args = {x, y}; and the same with its last element left out.
KERNELS = """
define internal void @triple(ptr %args, i64 %count) {{
entry:
  %x = load ptr, ptr %args
  %y.at = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %y.at
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %thrice = fmul float %value, 3.0
  %to = getelementptr float, ptr %y, i64 %i
  store float %thrice, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %body, label %done
done:
  ret void
}}
define i32 @right(ptr %args, ptr %pool) {{
  call void @triple(ptr %args, i64 {count})
  ret i32 0
}}
define i32 @wrong(ptr %args, ptr %pool) {{
  call void @triple(ptr %args, i64 {less})
  ret i32 0
}}
"""


@pytest.fixture(scope="module")
def library() -> bytes:
    target = host()
    text = KERNELS.format(count=COUNT, less=COUNT - 1)
    return link([compile_text(text, target), support_object(target)])


@pytest.fixture
def batch(library) -> tuple[MeasureRequest, dict[str, bytes]]:
    """A request with a right and a wrong candidate, and its blobs."""
    values = array.array("f", (random.Random(1).uniform(-2, 2) for _ in range(COUNT)))
    x, y = values.tobytes(), array.array("f", (3 * value for value in values)).tobytes()
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (library, x, y)}
    named = list(blobs)
    args = (
        Argument(Role.INPUT, len(x), blob=named[1]),
        Argument(Role.OUTPUT, len(y), expected=named[2]),
    )
    return MeasureRequest(named[0], tuple(Candidate(s, args) for s in ("right", "wrong"))), blobs


@contextlib.contextmanager
def agent(broker, state, name: str = "local"):
    """A device agent as a process of its own."""
    token = broker.farm.settings.home / "device.token"
    command = [sys.executable, "-m", "farrier_device", "--no-pin", "--broker"]
    command += [broker.address, "--token-file", token, "--name", name, "--state", state]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_device(farm, name: str) -> None:
    deadline = time.monotonic() + 20
    while not any(device.id == name and device.connected for device in farm.devices.list()):
        assert time.monotonic() < deadline, "the agent does not connect"
        time.sleep(0.05)


def test_a_batch_is_measured_by_an_agent(broker, batch, tmp_path):
    request, blobs = batch
    with agent(broker, tmp_path / "state") as process:
        wait_for_device(broker.farm, "local")
        store = BlobStore(tmp_path / "blobs", 1 << 20)
        for data in blobs.values():
            store.put(data)
        result = broker.farm.runner("host").measure(request, store)
        assert result.fault is None, result.message
        right, wrong = result.results
        assert right.status is Status.OK
        assert right.undisturbed_ns > 0
        assert wrong.status is Status.WRONG
        assert result.device == "local"
        assert broker.farm.devices.get("local").measured == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_mute_device_loses_its_batch_to_another(farm_settings, start_broker, batch, tmp_path):
    request, blobs = batch
    broker = start_broker(dataclasses.replace(farm_settings, lease_s=1.0, device_expiry_s=1.0))
    for data in blobs.values():
        broker.farm.blobs.put(data)
    stub = broker.stub()
    session = stub.register("mute")  # takes a batch and is never heard of again
    batch_id = broker.farm.measurements.submit(request, "host")
    reply = stub.Lease(device_pb2.LeaseRequest(session=session, wait_ms=5000))
    assert reply.batch.lease == batch_id
    with agent(broker, tmp_path / "state", "alive"):
        result = broker.farm.measurements.wait(batch_id, 30)
        assert result.fault is None, result.message
        assert result.device == "alive"
        assert [r.status for r in result.results] == [Status.OK, Status.WRONG]
