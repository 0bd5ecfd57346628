"""Products and reductions of 64-bit elements, on vectors with half the lanes of 32-bit elements."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import farrier

RNG = np.random.default_rng(3)
TYPES = {"f8": TensorProto.DOUBLE, "i8": TensorProto.INT64, "u8": TensorProto.UINT64}


def drawn(kind, *shape):
    if kind == "f8":
        return RNG.standard_normal(shape)
    low = -(2**62) if kind == "i8" else 0
    return RNG.integers(low, 2**62, shape, kind)


def compiled(kind, nodes, arrays):
    """The artifact of nodes that write `y`, and its output for `arrays`."""
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info(n, TYPES[kind], a.shape) for n, a in arrays.items()],
        [helper.make_tensor_value_info("y", TYPES[kind], None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    artifact = farrier.compile(model, threads=2, verify=False)
    return artifact, artifact.run(arrays)["y"]


@pytest.mark.parametrize("kind", TYPES)
def test_products_stay_in_registers(kind):
    a, b = drawn(kind, 2, 37, 29), drawn(kind, 2, 29, 43)
    artifact, y = compiled(kind, [helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": a, "b": b})
    assert {kernel.rule for kernel in artifact.manifest.kernels} == {"register_tile"}
    if kind == "f8":
        np.testing.assert_allclose(y, a @ b, rtol=1e-12, atol=1e-12)
    else:  # which wraps round
        np.testing.assert_array_equal(y, a @ b)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_reductions_run_on_vectors(axes):
    x = drawn("f8", 5, 37, 21)
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["s"]),
        helper.make_node("ReduceMax", ["x", "axes"], ["m"]),
        helper.make_node("Sub", ["s", "m"], ["y"]),
    ]
    constant = helper.make_node(
        "Constant",
        [],
        ["axes"],
        value=helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes),
    )
    artifact, y = compiled("f8", [constant, *nodes], {"x": x})
    assert not any(kernel.rule.startswith("sketch/") for kernel in artifact.manifest.kernels)
    expected = x.sum(axes, keepdims=True) - x.max(axes, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
