"""A device that invents its results, by a client that speaks the protocol as an agent does."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.errors import NoDeviceError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.progress import Verified, Warned
from farrier.records import Context, TuningRecord
from farrier.sdk.client import Client
from farrier_device.measurement import (
    CandidateResult,
    MeasureResult,
    Status,
    request_from_json,
    to_json,
)
from farrier_device.protocol import device_pb2
from farrier_farm.devices.devices import DeviceState
from tests.here import HERE, TARGET
from tests.server.test_against import agent


class Rogue:
    """Answers `ns` nanoseconds and no error to whatever it is asked."""

    def __init__(self, broker: Any, name: str, ns: int) -> None:
        self.answered = threading.Event()
        self._stub, self._ns = broker.stub(), ns
        self._session = self._stub.register(name)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        session = self._session
        with contextlib.suppress(grpc.RpcError):  # The broker has gone.
            while not self._done.is_set():
                self._stub.Heartbeat(device_pb2.HeartbeatRequest(session=session, state=1))
                lease = self._stub.Lease(device_pb2.LeaseRequest(session=session, wait_ms=200))
                if lease.HasField("batch"):
                    result = self._invented(lease.batch.manifest.decode())
                    self._stub.Report(
                        device_pb2.ReportRequest(
                            session=session,
                            lease=lease.batch.lease,
                            fence=lease.batch.fence,
                            result=to_json(result).encode(),
                        )
                    )
                    self.answered.set()

    def _invented(self, manifest: str) -> MeasureResult:
        return MeasureResult(
            tuple(
                CandidateResult(
                    Status.OK,
                    (self._ns,) * 8,
                    0.0,
                    parts_ns=((self._ns // max(len(candidate.parts), 1),) * 8,)
                    * len(candidate.parts),
                )
                for candidate in request_from_json(manifest).candidates
            )
        )


@pytest.fixture
def farm_with(farm_settings, start_broker) -> Iterator[Any]:
    """Start a broker with these settings, and rogues at it."""
    rogues: list[Rogue] = []

    class Made:
        def broker(self, **settings: Any) -> Any:
            return start_broker(dataclasses.replace(farm_settings, **settings))

        def rogue(self, broker: Any, ns: int) -> Rogue:
            rogues.append(Rogue(broker, "rogue", ns))
            return rogues[-1]

    yield Made()
    for rogue in rogues:
        rogue.stop()


def compiled(farm: Any, said: list[Any], trials: int = 12) -> Any:
    """A matrix product and a sum, large enough that 1 µs is an invention, compiled on a farm."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 512]) for name in "xy")
    weights = np.random.default_rng(0).standard_normal((512, 512), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    runner = farm.runner(HERE)
    return compile_model(
        Model.of_bytes(model.SerializeToString()),
        CompileOptions(target=TARGET, trials=trials),
        runner=runner,
        records=farm.job_records(farm.records, HERE, runner),
        listener=said.append,
    )


def test_a_rogue_alone_verifies_nothing_and_no_record_is_its_own(farm_with):
    broker = farm_with.broker(device_expiry_s=1.0)
    farm = broker.farm
    farm_with.rogue(broker, 1000)
    with pytest.raises(NoDeviceError):
        compiled(farm, [])
    assert list(farm.records) == []
    rogue = farm.devices.get("rogue")
    assert rogue.state in (DeviceState.QUARANTINED, DeviceState.OFFLINE)
    assert rogue.faults >= 1


@pytest.mark.long
def test_beside_a_rogue_the_job_succeeds_by_an_honest_device(farm_with, tmp_path):
    broker = farm_with.broker(device_expiry_s=20.0)
    farm = broker.farm
    rogue = farm_with.rogue(broker, 1000)
    said: list[Any] = []
    done: list[Any] = []
    job = threading.Thread(target=lambda: done.append(compiled(farm, said)))
    job.start()
    assert rogue.answered.wait(120)
    with agent(broker, tmp_path / "good", "good"):
        job.join(200)
    (artifact,) = done
    assert farm.devices.get("rogue").state is DeviceState.QUARANTINED
    assert {record.device for record in farm.records} == {"good"}
    assert Context.ALONE in {record.context for record in farm.records}
    assert artifact.report["verification"]["device"] == "good"
    # Nobody vouches for it, so the outcome says who it was alone.
    assert artifact.report["verification"]["trusted"] is False
    (verified,) = [event for event in said if isinstance(event, Verified)]
    assert verified.untrusted
    warned = [event.message for event in said if isinstance(event, Warned)]
    assert any(
        "verified by the device good alone, which nobody trusts" in event for event in warned
    )


def test_times_that_might_be_are_not_enough(farm_with, tmp_path):
    """A rogue that stays above every floor verifies nothing where a trusted device is."""
    broker = farm_with.broker(device_expiry_s=20.0)
    farm = broker.farm
    with agent(broker, tmp_path / "good", "good"):
        farm.devices.trust("good")
        farm_with.rogue(broker, 10**9)
        said: list[Any] = []
        artifact = compiled(farm, said, trials=0)
    assert farm.devices.get("rogue").faults == 0
    assert artifact.report["verification"]["device"] == "good"
    assert artifact.report["verification"]["trusted"] is True
    (verified,) = [event for event in said if isinstance(event, Verified)]
    assert not verified.untrusted


def test_what_a_revoked_device_measured_is_dropped_in_one_call(service):
    farm = service.farm
    for number, device in enumerate(["rogue", "good", "good,rogue"]):
        decisions = (("tile", number),)
        record = TuningRecord("k", "f", 2, "r", 1, decisions, "", Status.OK, (5,), device=device)
        farm.records.add(record)
        farm.private_records("ann").add(record)
    with Client(service.url, service.token) as client:
        assert client.drop_records("rogue", since=1e10) == 0
        assert client.drop_records("rogue") == 4
        assert client.drop_records("rogue") == 0
    for store in (farm.records, farm.private_records("ann")):
        assert [record_left.device for record_left in store] == ["good"]
    refused = service.http().post("/v1/records/drop", json={"device": "x", "after": "oops"})
    assert refused.status_code == 400
