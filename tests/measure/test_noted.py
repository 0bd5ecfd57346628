"""The notes of a compilation on a device that is emulated, or hot."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from farrier.measure import NotedRunner
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.progress import TasksScheduled, TrialsMeasured, Verified, Warned
from farrier.records import MemoryRecords
from farrier.runtime.artifact import RECORDS
from farrier_device.measurement import CodeObject, MeasureRequest, MeasureResult
from farrier_device.runners.local import ChildRunner


def product():
    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [16, 32])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model.SerializeToString()


def compiled(emulated):
    """An artifact that is tuned on such a device, the events, and the records of it."""
    events, records = [], MemoryRecords()
    with ChildRunner(emulated=emulated) as runner:
        artifact = compile_model(
            product(),
            CompileOptions("host", trials=4),
            runner=runner,
            records=records,
            listener=events.append,
        )
    return artifact, events, records


def test_nothing_tells_what_an_emulated_device_took():
    artifact, events, records = compiled(emulated=True)
    report = artifact.report
    verification = report["verification"]
    assert (verification["emulated"], verification["latency_ms"]) == (True, None)
    assert report["untuned_ms"] is report["tuned_ms"] is report["tuned_is_faster"] is None
    assert all(not layer["measured_us"] for layer in report["algorithms"]["layers"])
    assert list(records)
    assert artifact.members[RECORDS] == b""
    assert next(event for event in events if isinstance(event, Verified)).emulated
    trials = [event.best_ms for event in events if isinstance(event, TrialsMeasured)]
    assert set(trials) == {float("inf")}
    schedules = [event.tasks for event in events if isinstance(event, TasksScheduled)]
    assert {task.measured_us for tasks in schedules for task in tasks} == {None}
    said = [event.message for event in events if isinstance(event, Warned)]
    assert len([text for text in said if "is emulated" in text]) == 1


def test_a_real_one_is_told_of():
    artifact, events, _ = compiled(emulated=False)
    verification = artifact.report["verification"]
    assert verification["latency_ms"]["median"] > 0
    assert not verification["emulated"]
    assert not [event for event in events if isinstance(event, Warned)]


class Hot:
    def measure(self, request, blobs, cancelled=None):
        self.celsius = getattr(self, "celsius", 80) + 1
        return MeasureResult(device="pi", hot=f"{self.celsius} °C")

    def close(self):
        pass


def test_a_hot_device_is_warned_of_once():
    said = []
    runner = NotedRunner(Hot(), said.append)
    for _ in range(2):
        runner.measure(MeasureRequest((CodeObject("a" * 64),), ()), None)
    assert [event.message for event in said] == [
        "the device pi measured while it was hot: 81 °C; it may be faster when cool"
    ]
