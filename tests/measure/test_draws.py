"""Inputs for verification have a result, and cover the types of inputs that are data."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier import progress
from farrier.errors import VerificationWarning
from farrier.frontends.onnx.importer import import_model
from farrier.options import CompileOptions
from farrier.packaging.draws import draws, numbers_of
from farrier.packaging.onnxruntime import OnnxRuntime
from farrier.packaging.package import specs
from farrier.pipeline import compile_model

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, HALF, BYTE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8
INT8, INT64 = TensorProto.INT8, TensorProto.INT64


def model_of(nodes, inputs, outputs, constants=None):
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "m", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    proto.ir_version = 8
    return proto.SerializeToString()


def drawn(data):
    """All draws for a model."""
    imported = import_model(data)
    inputs, _ = specs(imported)
    names = (value.name for value in imported.graph.inputs)
    numbers = numbers_of(imported.graph, dict(zip(names, imported.input_names, strict=True)))
    return list(draws(inputs, numbers))


@pytest.mark.parametrize(
    ("elem", "least", "most"), [(BYTE, 0, 255), (INT8, -128, 127), (TensorProto.INT16, -32768, 0)]
)
def test_small_integers_are_any_of_their_type_and_then_few(elem, least, most):
    nodes = [node("Cast", ["x"], ["y"], to=FLOAT)]
    first, *_, last = drawn(model_of(nodes, [info("x", elem, [9999])], [info("y", FLOAT, [9999])]))
    step = (most - least) // 100
    assert first.is_whole
    assert first.arrays["x"].min() <= least + step
    assert first.arrays["x"].max() >= most - step
    assert not last.is_whole
    assert last.arrays["x"].max() == 1


def test_wide_integers_are_any_of_their_type_where_they_are_calculated_with():
    nodes = [
        node("Gather", ["table", "ids"], ["t"]),
        node("Cast", ["mask"], ["m"], to=FLOAT),
        node("Mul", ["t", "m"], ["y"]),
        node("Add", ["a", "ids"], ["z"]),
    ]
    inputs = [info(name, INT64, [8]) for name in ("ids", "mask", "a")]
    outputs = [info("y", FLOAT, [8]), info("z", INT64, [8])]
    first, second, third, *_ = drawn(
        model_of(nodes, inputs, outputs, {"table": np.ones(4, np.float32)})
    )
    for draw in (first, second):
        assert set(draw.arrays["ids"]) | set(draw.arrays["mask"]) <= {0, 1}
        assert np.abs(draw.arrays["a"]).max() > 1 << 40
    assert set(third.arrays["a"]) <= {0, 1}


def test_a_quantized_model_is_verified_over_its_whole_type(monkeypatch):
    seen = []
    run = OnnxRuntime.run
    monkeypatch.setattr(
        OnnxRuntime,
        "run",
        lambda self, inputs, names, **how: seen.append(inputs) or run(self, inputs, names, **how),
    )
    constants = {"s": np.float32(0.1), "z": np.uint8(128)}
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["y"])]
    farrier.compile(
        model_of(nodes, [info("x", BYTE, [4000])], [info("y", FLOAT, [4000])], constants)
    )
    (inputs,) = seen
    assert len(np.unique(inputs["x"])) == 256


@pytest.mark.parametrize("elem", [BYTE, INT8, INT64])
def test_ids_that_are_rows_of_a_short_table_have_a_result(elem):
    """Some bytes are not rows of the table."""
    nodes = [node("Cast", ["i"], ["j"], to=INT64), node("Gather", ["table", "j"], ["y"])]
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    data = model_of(nodes, [info("i", elem, [9])], [info("y", FLOAT, [9, 2])], {"table": table})
    assert verified(data)["max_error"] == 0


def test_what_becomes_infinite_is_drawn_from_fewer_numbers():
    """Products of bytes are beyond what f16 holds, and infinities would verify nothing."""
    nodes = [
        node("Cast", ["x"], ["h"], to=HALF),
        node("Pow", ["h", "p"], ["q"]),
        node("Sub", ["q", "q"], ["y"]),
    ]
    constants = {"p": np.float16(4)}
    data = model_of(nodes, [info("x", BYTE, [64])], [info("y", HALF, [64])], constants)
    assert verified(data)["differs"] is None


def test_sizes_that_values_decide_are_drawn():
    """A shape that fits, parts that add up, and scales of one."""
    reshape = model_of(
        [node("Reshape", ["x", "s"], ["y"])],
        [info("x", FLOAT, [4, 6]), info("s", INT64, [3])],
        [info("y", FLOAT, [None, None, None])],
    )
    split = model_of(
        [node("Split", ["x", "s"], ["y", "z"], axis=1)],
        [info("x", FLOAT, [4, 7]), info("s", INT64, [2])],
        [info("y", FLOAT, [4, None]), info("z", FLOAT, [4, None])],
    )
    for data in (reshape, split):
        assert verified(data)["max_error"] == 0


def verified(data):
    """The report of a verification that no warning goes with."""
    events = []
    artifact = compile_model(data, CompileOptions(threads=1), listener=events.append)
    assert not [event for event in events if isinstance(event, progress.Warned)]
    return artifact.report["verification"]


def test_a_model_without_a_result_is_compiled_and_not_called_verified():
    nodes = [node("Add", ["n", "seven"], ["k"]), node("TopK", ["x", "k"], ["y", "at"])]
    inputs = [info("x", FLOAT, [2, 4]), info("n", INT64, [1])]
    data = model_of(nodes, inputs, [info("y", FLOAT, [2, None])], {"seven": np.array([7])})
    with pytest.warns(VerificationWarning, match="model is not verified: none of .* has a result"):
        artifact = farrier.compile(data)
    assert artifact.report["verification"] is None
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(
        artifact.run({"x": x, "n": np.array([-5])})["y"], [[3, 2], [7, 6]]
    )
