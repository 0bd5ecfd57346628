"""Resizes in two steps: sizes of all kinds, open ones too, as ONNX Runtime computes them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier


def resize(shape, mode: str, scales=None, sizes=None, **attributes) -> bytes:
    """A model of one Resize, whose dims may have names."""
    factors = [
        numpy_helper.from_array(np.array(values, dtype), name)
        for name, values, dtype in (("scales", scales, np.float32), ("sizes", sizes, np.int64))
        if values is not None
    ]
    names = ["x", "", "scales" if scales else "", *(["sizes"] if sizes else [])]
    node = helper.make_node("Resize", names, ["y"], mode=mode, **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    graph = helper.make_graph([node], "resize", [x], [y], factors)
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (resize([1, 3, 7, 9], "linear", scales=[1, 1, 2, 2]), [(1, 3, 7, 9)]),
        (
            resize(
                [2, 1, 5, 1],
                "linear",
                sizes=[11, 1],
                axes=[-2, -1],
                coordinate_transformation_mode="align_corners",
            ),
            [(2, 1, 5, 1)],
        ),
        (resize([1, 2, 1, 33], "cubic", sizes=[1, 2, 3, 70]), [(1, 2, 1, 33)]),
        (resize([1, 2, 6, 5], "cubic", scales=[1, 1, 1.7, 3.3]), [(1, 2, 6, 5)]),
        (
            resize(["n", 3, "h", "w"], "linear", scales=[1, 1, 2, 2]),
            [(1, 3, 1, 1), (2, 3, 19, 31), (1, 3, 40, 16)],
        ),
    ],
)
def test_two_steps_compute_what_one_does(model, shapes):
    artifact = farrier.compile(model, cores=2, verify=False, hot=())
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for shape in shapes:
        x = rng.standard_normal(shape).astype(np.float32)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(artifact.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_rows_are_interpolated_once_for_all_rows_of_the_output():
    artifact = farrier.compile(resize([1, 3, 7, 9], "linear", scales=[1, 1, 2, 2]), verify=False)
    assert [kernel.name for kernel in artifact.manifest.kernels] == [
        "resize_3x7x18",
        "resize_3x14x18",
    ]
