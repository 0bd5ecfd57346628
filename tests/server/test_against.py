"""A model raced with other engines on a farm: real agents, with engines and without."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.progress import VERIFICATION, Raced, Warned
from farrier.runtime.artifact import Artifact
from farrier_device.baseline.engines import NAMES, installed
from farrier_device.measurement import Blame, DeviceFault, MeasureResult, to_json
from farrier_device.protocol import device_pb2
from farrier_device.runners.baselines import Engines
from farrier_device.runners.local import ChildRunner
from farrier_farm.devices.devices import DeviceState
from tests.here import HERE, TARGET
from tests.waiting import wait_until


@contextlib.contextmanager
def agent(broker: Any, state: Path, name: str, *options: str) -> Iterator[None]:
    """A device agent as a process of its own, once it is connected."""
    token = broker.farm.settings.home / "device.token"
    command = [sys.executable, "-m", "farrier_device", "--no-pin", "--broker", broker.address]
    command += ["--token-file", token, "--name", name, "--state", state, *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: any(
                connected_device.id == name and connected_device.connected
                for connected_device in broker.farm.devices.list()
            ),
            "the agent does not connect",
        )
        yield
    finally:
        process.kill()
        process.wait()


def compiled(farm: Any, engines: tuple[str, ...] = NAMES) -> tuple[Artifact, list[Any]]:
    """As `compiled_by`, on a farm's devices."""
    return compiled_by(farm.runner(HERE), engines=engines)


def compiled_by(
    runner: Any, graph: Any = None, engines: tuple[str, ...] = NAMES
) -> tuple[Artifact, list[Any]]:
    """A small model that is raced, and what was said of races and warned of meanwhile."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 37]) for name in "xy")
    graph = graph or helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    said: list[Any] = []
    artifact = compile_model(
        Model.of_bytes(model.SerializeToString()),
        CompileOptions(target=TARGET),
        runner=runner,
        listener=said.append,
        against=engines,
    )
    reported = [event for event in said if isinstance(event, Raced | Warned)]
    return artifact, [event for event in reported if getattr(event, "topic", "") != VERIFICATION]


def test_a_device_with_engines_races(service, start_broker, tmp_path):
    broker = start_broker(service.settings)
    farm, http = broker.farm, service.http()
    with (
        agent(broker, tmp_path / "a", "plain"),
        agent(broker, tmp_path / "b", "racer", "--engines"),
    ):
        devices = {device["id"]: device for device in http.get("/v1/devices").json()["devices"]}
        assert devices["racer"]["engines"] == installed()
        assert devices["plain"]["engines"] == {}
        [its_class] = http.get("/v1/classes").json()["classes"]
        assert (its_class["connected"], its_class["engines"]) == (
            2,
            {name: [version] for name, version in installed().items()},
        )
        artifact, said = compiled(farm)
        assert farm.devices.get("plain").state is DeviceState.IDLE
    assert [type(device) for device in said] == [Raced, Raced]
    assert artifact.report["against"] == [dataclasses.asdict(device) for device in said]
    for device, engine in zip(said, NAMES, strict=True):
        assert (device.engine, device.version) == (engine, installed()[engine])
        assert (device.device, device.note) == ("racer", "")
        assert device.max_error < 1e-5
        for times in (device.ms, device.ours_ms):
            assert 0 < times["p10"] <= times["median"] <= times["p90"]
        assert device.ratio == pytest.approx(
            device.ours_ms["median"] / device.ms["median"], rel=0.8
        )
    assert not list((tmp_path / "b" / "models").iterdir())


def test_where_no_device_has_the_engine_a_warning_says_what_to_install(broker, tmp_path):
    with agent(broker, tmp_path / "state", "plain"):
        artifact, said = compiled(broker.farm)
        plain = broker.farm.devices.get("plain")
    assert [type(event) for event in said] == [Warned, Warned]
    for event, engine in zip(said, NAMES, strict=True):
        assert f"not raced with {engine}" in event.message
        assert "pip install 'farrier[device,engines]'" in event.message
        assert "--engines" in event.message
    assert artifact.report["against"] == []
    assert artifact.report["verification"]["device"] == "plain"
    assert (plain.state, plain.faults) == (DeviceState.IDLE, 0)


def test_a_device_that_no_longer_understands_a_race_is_done_without(
    farm_settings, start_broker, tmp_path
):
    """Its agent was replaced by an older one, which refuses the manifest as it is to."""
    broker = start_broker(dataclasses.replace(farm_settings, device_expiry_s=1.0))
    stub, farm = broker.stub(), broker.farm
    done = threading.Event()

    def be_older() -> None:
        session = stub.register("older", engines={"onnxruntime": "1.0"})
        while not done.is_set():
            lease = stub.Lease(device_pb2.LeaseRequest(session=session, wait_ms=200))
            stub.Heartbeat(device_pb2.HeartbeatRequest(session=session, state=1))
            if lease.HasField("batch"):
                result = MeasureResult(
                    fault=DeviceFault.BROKEN,
                    blame=Blame.AGENT,
                    message="MeasureRequest has an unknown rival",
                )
                stub.Report(
                    device_pb2.ReportRequest(
                        session=session,
                        lease=lease.batch.lease,
                        fence=lease.batch.fence,
                        result=to_json(result).encode(),
                    )
                )

    with agent(broker, tmp_path / "state", "plain"):
        older = threading.Thread(target=be_older)
        try:
            older.start()
            wait_until(lambda: farm.devices.with_engine("onnxruntime", HERE.device_class))
            farm.devices.trust("plain")  # The other one is not asked to verify then.
            artifact, raced = compiled(farm, ("onnxruntime",))
            state = farm.devices.get("plain").state
        finally:
            done.set()
            older.join()
    event = raced[-1]
    assert isinstance(event, Raced)
    assert (event.ms, event.ratio) == (None, None)
    assert event.note.startswith("no device raced it: lost: ")
    assert "unknown rival" in event.note
    assert artifact.report["against"] == [dataclasses.asdict(event)]
    assert state is DeviceState.IDLE


def test_an_emulated_device_is_not_asked(tmp_path):
    engines = Engines(installed(), folder=tmp_path / "models")
    with ChildRunner(emulated=True, engines=engines) as runner:
        artifact, said = compiled_by(runner)
    assert not [event for event in said if isinstance(event, Raced)]
    [message] = [event.message for event in said if "not raced" in event.message]
    assert message.endswith("onnxruntime and openvino: the device is emulated")
    assert artifact.report["against"] == []
    assert artifact.report["verification"]["latency_ms"] is None


def test_what_a_device_cannot_be_given_is_warned_of(tmp_path):
    """A model of strings, which numpy's plain types cannot hold."""
    strings = helper.make_tensor_value_info("x", TensorProto.STRING, [3])
    other = helper.make_tensor_value_info("y", TensorProto.STRING, [3])
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [strings], [other])
    with ChildRunner(engines=Engines(installed(), folder=tmp_path / "models")) as runner:
        artifact, said = compiled_by(runner, graph)
    [message] = [event.message for event in said if "not raced" in event.message]
    assert "onnxruntime and openvino: it takes or returns strings" in message
    assert artifact.report["against"] == []
