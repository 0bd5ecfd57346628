"""Outputs whose extents the data decides: a kernel counts them, for later kernels and for the
caller."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from onnx.numpy_helper import from_array

import farrier
from tests.control_flow.test_models import assert_as_onnxruntime, info, model, node

RANDOM = np.random.default_rng(3)


def positive(*shape):
    """Each test's arrays: some elements, none, and all of them count."""
    x = RANDOM.standard_normal(shape).astype(np.float32)
    return [x, -abs(x), abs(x)]


def test_places_of_what_is_not_zero():
    nodes = [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["y"])]
    data = model(nodes, [info("x", shape=[3, 5])], [info("y", TensorProto.INT64)])
    artifact = assert_as_onnxruntime(data, *({"x": x} for x in positive(3, 5)))
    assert artifact.manifest.outputs[0].typical == (2, 15)


def test_places_of_ones_follow_from_shapes():
    """As exporters write `arange(n)`, and the places of all elements: nothing is counted."""
    ones = {"places": np.array([1]), "grid": np.array([True]), "none": np.array([0])}
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "zero", "one"], ["rows"]),
        *(
            node("ConstantOfShape", [shape], [f"{name}_filled"], value=from_array(ones[name]))
            for name, shape in (("places", "rows"), ("grid", "shape"), ("none", "shape"))
        ),
        *(node("NonZero", [f"{name}_filled"], [name]) for name in ones),
        node("Squeeze", ["places", "zero"], ["row"]),
        node("Gather", ["x", "row"], ["y"]),
    ]
    outputs = [info("y"), *(info(name, TensorProto.INT64) for name in ones)]
    constants = {"zero": np.array([0]), "one": np.array([1])}
    data = model(nodes, [info("x", shape=["n", "m"])], outputs, constants)
    xs = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((3, 5), (1, 1), (2, 9))]
    artifact = assert_as_onnxruntime(data, *({"x": x} for x in xs))
    shapes = [output.shape for output in artifact.manifest.outputs[:3]]
    assert shapes == [("s0", "s1"), (1, "s0"), (2, "s0*s1")]


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_run_for_what_an_earlier_one_counts(threads):
    """Gathered, computed and reduced over an extent that is known in mid-model."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        node("GatherND", ["x", "rows"], ["found"]),
        node("Exp", ["found"], ["y"]),
        node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    data = model(
        nodes,
        [info("x", shape=[7, 9])],
        [info("y"), info("rows", TensorProto.INT64), info("total")],
    )
    assert_as_onnxruntime(data, *({"x": x} for x in positive(7, 9)), threads=threads)


def test_two_extents_in_one_model():
    nodes = [
        node("Greater", ["x", "zero"], ["c"]),
        node("Compress", ["x", "c"], ["some"]),
        node("Greater", ["some", "half"], ["d"]),
        node("Compress", ["some", "d"], ["fewer"]),
        node("Neg", ["some"], ["y"]),
        node("Neg", ["fewer"], ["z"]),
    ]
    constants = {"zero": np.float32(0), "half": np.float32(0.5)}
    data = model(nodes, [info("x", shape=[40])], [info("z"), info("y")], constants)
    assert_as_onnxruntime(data, *({"x": x} for x in positive(40)))


def test_a_model_of_counted_extents_is_verified():
    nodes = [node("NonZero", ["x"], ["y"])]
    data = model(nodes, [info("x", shape=[4, 4])], [info("y", TensorProto.INT64)])
    artifact = farrier.compile(data, threads=1)
    assert artifact.report["verification"]["max_error"] == 0.0
