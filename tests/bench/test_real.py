"""Models at sizes of their open dims, and the lines that they are held to."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench import real
from farrier.errors import UsageError

SETTINGS = real.Settings(sizes=1, threads=1, static=True, rounds=1, round_s=0.001)


def model(last):
    """`last` of x · w - 30, for any batch and length; of random x, the products deviate by 5."""
    weights = np.random.default_rng(3).standard_normal((24, 16)).astype(np.float32)
    weights *= 5 / np.linalg.norm(weights, axis=0)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 24])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 16])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Sub", ["p", "bias"], ["z"]),
        helper.make_node(last, ["z"], ["y"]),
    ]
    bias = numpy_helper.from_array(np.array(30, np.float32), "bias")
    constants = [numpy_helper.from_array(weights, "w"), bias]
    graph = helper.make_graph(nodes, "tiny", [x], [y], constants)
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


@pytest.fixture
def folder(tmp_path):
    onnx.save(model("Relu"), tmp_path / "relu.onnx")
    onnx.save(model("Sigmoid"), tmp_path / "sigmoid.onnx")
    (tmp_path / "notes.txt").write_text("no model")
    return tmp_path


def test_one_artifact_at_hot_and_random_sizes(folder):
    shapes, hot = ["relu:x=batch:2..6:2,length:1..40,24"], ["relu:batch=4,length=17"]
    source, _ = real.workloads([str(folder)], shapes, hot)
    result = real.measure(source, SETTINGS)
    assert result.model == "relu"
    assert [run.is_hot for run in result.runs] == [True, False]
    assert result.runs[0].sizes == {"batch": 4, "length": 17}
    for run in result.runs:
        assert run.sizes["batch"] in (2, 4, 6)
        assert 1 <= run.sizes["length"] <= 40
        assert run.error < 1e-5
        assert run.exact is None
        assert min(run.median_ms, run.ratio, run.over_static) > 0
    assert real.table([result]).row_count == 1
    assert json.loads(json.dumps(real._json([result])))


def test_where_the_peer_is_off_float64_decides(folder):
    """ONNX Runtime's sigmoid is exact to 1e-7, and here outputs are about 1e-6."""
    shapes = ["sigmoid:x=batch:2..4,length:20..28,24"]
    (source,) = real.workloads([str(folder / "sigmoid.onnx")], shapes)
    result = real.measure(source, dataclasses.replace(SETTINGS, static=False))
    for run in result.runs:
        assert run.over_static is None
        assert run.error > real.TOLERANCE
        assert run.exact < 1e-5 < run.peer_exact
        assert run.own_error == run.exact
    held = {line.asked: line for line in real.lines([result])}
    assert held["error, of ONNX Runtime's output or exactly"].is_met


def result(name, ratios, statics=(None,), compile_s=1.0, error=0.0):
    statics = [*statics, *[None] * len(ratios)]
    runs = tuple(
        real.Run({}, number == 0, error, None, None, 1.0, ratio, over)
        for number, (ratio, over) in enumerate(zip(ratios, statics, strict=False))
    )
    return real.Result(name, compile_s, runs)


def test_lines():
    results = [
        result("a", [0.5, 2.0], [1.04, 1.6], error=1e-6),
        result("b", [0.5, 2.1], [1.02, 1.4], compile_s=21.0, error=2e-6),
    ]
    held = [(line.value, line.model, line.is_met) for line in real.lines(results)]
    assert held == [
        (2e-6, "b", True),
        (pytest.approx(1.0, abs=0.02), "all", False),
        (2.1, "b", False),
        (1.04, "a", True),
        (1.6, "a", False),
        (21.0, "b", False),
    ]
    assert real.lines([]) == []
    # Without static artifacts there are fewer limits.
    assert len(real.lines([result("c", [1.0])])) == 4


def test_open_dims_of_which_nothing_is_said():
    opened = real.open_shapes(model("Relu").SerializeToString())
    assert opened == {"x": ("batch:1..4", "length:2..28", 24)}


def test_what_is_no_model_is_told():
    with pytest.raises(UsageError, match="nowhere is no folder"):
        real.workloads(["nowhere"])
