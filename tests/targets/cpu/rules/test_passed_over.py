"""A rule whose schedule does not apply to open dims gives way to the next, with a warning."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

import farrier
from farrier.progress import Warned
from farrier.schedule.errors import ScheduleError
from farrier.targets.cpu.rules import elementwise


def test_the_next_rule_schedules_what_a_rule_cannot(monkeypatch):
    def refuse(kernel, decisions):
        raise ScheduleError("vectorize", "lanes of exp_lane conflict", kernel.function)

    monkeypatch.setattr(elementwise.ElementwiseKernel, "schedule", refuse)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 5])
    y = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    events = []
    artifact = farrier.compile(model, cores=1, hot=(), listener=events.append)
    (message,) = (event.message for event in events if isinstance(event, Warned))
    reason = "elementwise: vectorize: lanes of exp_lane conflict"
    assert message.endswith(f"is scheduled by the rule sketch/lanes: {reason}")
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)
    np.testing.assert_allclose(artifact.run({"x": x})["y"], np.exp(x), rtol=1e-6)
