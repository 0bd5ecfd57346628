"""Convolutions along one axis, compiled as images of one line."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from farrier.options import CompileOptions
from farrier.pipeline import compile_model

# The group, outputs, taps, stride, dilation, pads and shape of x.
CASES = {
    "three taps": (1, 24, 3, 1, 1, (1, 1), (4, 40, 100)),
    "stride": (1, 10, 3, 2, 1, (1, 1), (2, 16, 33)),
    "causal": (24, 24, 4, 1, 1, (3, 0), (2, 24, 17)),
    "dilated": (1, 16, 3, 1, 4, (4, 4), (1, 32, 50)),
    "one tap": (1, 10, 1, 1, 1, (0, 0), (1, 7, 9)),
    "groups": (2, 10, 5, 1, 1, (0, 2), (3, 6, 11)),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_as_onnx_runtime(case, is_open):
    group, outputs, taps, stride, dilation, pads, shape = CASES[case]
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((outputs, shape[1] // group, taps)).astype(np.float32)
    bias = rng.standard_normal(outputs).astype(np.float32)
    attrs = {"pads": pads, "strides": [stride], "dilations": [dilation], "group": group}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attrs),
        helper.make_node("Gelu", ["c"], ["g"]),
        helper.make_node("Add", ["g", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "lines",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", shape[1], "l"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(bias, "b")],
    )
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    extents = ("n:1..8", shape[1], "l:8..200") if is_open else shape
    options = CompileOptions(shapes={"x": extents}, threads=2, verify=False)
    artifact = compile_model(model, options)
    if group in (1, shape[1]):
        assert "rows" not in {kernel.rule for kernel in artifact.manifest.kernels}
    x = rng.standard_normal(shape).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(artifact.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
