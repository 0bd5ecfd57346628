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

import pytest
from onnx import TensorProto, helper

from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.targets import host, to_text
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import support_object
from farrier_device.blobstore import BlobStore
from farrier_device.describe import describe
from farrier_device.measurement import (
    Argument,
    Candidate,
    CodeObject,
    Launch,
    MeasureRequest,
    Role,
    Status,
)
from farrier_device.protocol import device_pb2
from tests.here import HERE
from tests.waiting import wait_until

COUNT = 1009

# Text of y = 3x over f32[COUNT], args = {x, y}; and the same without its last element.
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
    return MeasureRequest(
        (CodeObject(named[0]),), tuple(Candidate((Launch(s),), args) for s in ("right", "wrong"))
    ), blobs


@contextlib.contextmanager
def agent(broker, state, name: str = "local", *options: str):
    """A device agent as a process of its own."""
    token = broker.farm.settings.home / "device.token"
    command = [sys.executable, "-m", "farrier_device", "--no-pin", "--broker"]
    command += [broker.address, "--token-file", token, "--name", name, "--state", state]
    command += options
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_device(farm, name: str) -> None:
    wait_until(
        lambda: any(device.id == name and device.connected for device in farm.devices.list()),
        "the agent does not connect",
    )


def test_a_batch_is_measured_by_an_agent(broker, batch, tmp_path):
    request, blobs = batch
    with agent(broker, tmp_path / "state") as process:
        wait_for_device(broker.farm, "local")
        store = BlobStore(tmp_path / "blobs", 1 << 20)
        for data in blobs.values():
            store.put(data)
        result = broker.farm.runner(HERE).measure(request, store)
        assert result.fault is None, result.message
        right, wrong = result.results
        assert right.status is Status.OK
        assert right.undisturbed_ns > 0
        assert wrong.status is Status.WRONG
        assert result.device == "local"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert broker.farm.devices.get("local").measured == 1


def test_a_mute_device_loses_its_batch_to_another(farm_settings, start_broker, batch, tmp_path):
    request, blobs = batch
    broker = start_broker(dataclasses.replace(farm_settings, lease_s=1.0, device_expiry_s=1.0))
    for data in blobs.values():
        broker.farm.blobs.put(data)
    stub = broker.stub()
    session = stub.register("mute")  # This device takes a batch and is never heard of again.
    batch_id = broker.farm.measurements.submit(request, HERE)
    reply = stub.Lease(device_pb2.LeaseRequest(session=session, wait_ms=5000))
    assert reply.batch.lease == batch_id
    with agent(broker, tmp_path / "state", "alive"):
        result = broker.farm.measurements.wait(batch_id, 30)
        assert result.fault is None, result.message
        assert result.device == "alive"
        assert [r.status for r in result.results] == [Status.OK, Status.WRONG]


@pytest.mark.long
def test_machines_with_equal_extensions_share_no_queue_search_or_record(broker, tmp_path):
    """Two agents of this machine, which their operator states to be two kinds of machine."""
    farm, names = broker.farm, ("plain", "large")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [31, 37]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with contextlib.ExitStack() as stack:
        for name in names:
            machine = tmp_path / f"{name}.json"
            machine.write_text(to_text(dataclasses.replace(describe(), cpu=name, l3_bytes=9 << 20)))
            state = tmp_path / name
            stack.enter_context(agent(broker, state, name, "--machine", str(machine)))
        for name in names:
            wait_for_device(farm, name)
        for turn, name in enumerate(names, start=1):
            device_class = farm.devices.get(name).device_class
            admitted = farm.admission.admit(f"class:{device_class}", measured=True)
            runner = farm.runner(admitted.place)
            artifact = compile_model(
                Model.of_bytes(model.SerializeToString()),
                CompileOptions(target=admitted.target, trials=3),
                runner=runner,
                records=farm.job_records(farm.records, admitted.place, runner),
            )
            assert artifact.report["verification"]["device"] == name
            assert [farm.devices.get(device_name).measured > 0 for device_name in names] == [
                True,
                turn == 2,
            ]
    records = list(farm.records)
    origins = {(record.fingerprint, record.device_class, record.device) for record in records}
    assert len(records) >= 6
    assert sorted(device for _, _, device in origins) == sorted(names)
    assert len({fingerprint for fingerprint, _, _ in origins}) == 2
    assert len({device_class for _, device_class, _ in origins}) == 2
