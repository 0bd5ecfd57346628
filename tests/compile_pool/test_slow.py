"""Kernels without a fast schedule are named, with their node, their reason and their share."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.compile_pool.slow import SlowKernel, messages
from farrier.progress import Warned


def running_sums(lines: int, steps: int) -> bytes:
    """A model of two running sums, one of which waits for the elements before and cannot be
    shared, and of one elementwise function."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("CumSum", ["x", "axis"], ["a"], name="sum_of_line"),
        node("Exp", ["w"], ["b"], name="exp"),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [0])
    inputs = [info("x", TensorProto.FLOAT, [steps]), info("w", TensorProto.FLOAT, [lines, 64])]
    outputs = [info("a", TensorProto.FLOAT, [steps]), info("b", TensorProto.FLOAT, [lines, 64])]
    graph = helper.make_graph(nodes, "sums", inputs, outputs, [axis])
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def compiled(lines: int, steps: int):
    events = []
    artifact = farrier.compile(
        running_sums(lines, steps), cores=1, verify=False, listener=events.append
    )
    messages = [event.message for event in events if isinstance(event, Warned)]
    return artifact, [message for message in messages if "slow" in message]


def test_a_slow_kernel_is_named_with_node_reason_and_share():
    artifact, lines = compiled(lines=64, steps=40_000)
    (line,) = lines
    (slow,) = artifact.report["slow"]
    assert "(node 'sum_of_line')" in line
    assert slow["reason"] in line
    assert slow["origin"] == "sum_of_line"
    times = {kernel.name: kernel.predicted_us for kernel in artifact.manifest.kernels}
    share = times[slow["kernel"]] / sum(times.values())
    assert slow["share"] == pytest.approx(share, abs=1e-3)
    assert share > 0.02
    x = np.ones(40_000, np.float32)
    outputs = artifact.run({"x": x, "w": np.zeros((64, 64), np.float32)})
    np.testing.assert_array_equal(outputs["a"], np.arange(1, 40_001, dtype=np.float32))


def test_a_slow_kernel_that_hardly_counts_is_passed_over_in_silence():
    artifact, lines = compiled(lines=60_000, steps=1000)
    assert lines == []
    assert artifact.report["slow"] == []


def test_several_are_summed_up():
    kernels = [
        SlowKernel(name, "node", "because", share) for name, share in (("a", 0.4), ("b", 0.1))
    ]
    *lines, total = messages(kernels)
    assert lines[0] == "a (node 'node') takes 40% of the model and runs slowly: because"
    assert total == "2 kernels without a fast schedule take 50% of the model"
    assert messages(kernels[:1]) == lines[:1]
    assert messages([]) == []
