"""ONNX Runtime as a reference runs in a process of its own, which may end however it likes."""

from __future__ import annotations

import os
import signal

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.packaging.onnxruntime import OnnxRuntime
from farrier.pipeline import compile_model
from farrier.progress import Warned

node, info = helper.make_node, helper.make_tensor_value_info
WEIGHTS = np.arange(6, dtype=np.float32).reshape(3, 2)
X = {"x": np.ones((2, 3), np.float32)}


def product():
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["h"]), node("Neg", ["h"], ["y"])],
        "m",
        [info("x", TensorProto.FLOAT, [2, 3])],
        [info("y", TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    proto.ir_version = 8
    return proto


@pytest.fixture(params=["bytes", "file", "data beside", "data elsewhere"])
def model(request, tmp_path):
    """The same model, in each way that a user may have it."""
    if request.param == "bytes":
        return Model.of_bytes(product().SerializeToString())
    path = tmp_path / "m.onnx"
    is_beside = "data" in request.param
    onnx.save(product(), path, save_as_external_data=is_beside, location="m.data", size_threshold=0)
    if request.param != "data elsewhere":
        return Model.of_path(path)
    (tmp_path / "store").mkdir()
    return Model.of_files(path, {"m.data": (tmp_path / "m.data").rename(tmp_path / "store" / "d")})


def test_a_model_is_read_where_it_lies(model):
    said = []
    with OnnxRuntime(model, said.append) as engine:
        (y,) = engine.run(X, ["y"])
        y_again, h = engine.run(X, ["y"], extra=["h"])
    np.testing.assert_array_equal(y, -(X["x"] @ WEIGHTS))
    np.testing.assert_array_equal(y_again, y)
    np.testing.assert_array_equal(h, -y)
    assert not said


def test_strings_and_empty_arrays_pass_both_ways():
    graph = helper.make_graph(
        [node("Identity", ["s"], ["t"]), node("Neg", ["x"], ["y"])],
        "m",
        [info("s", TensorProto.STRING, [2]), info("x", TensorProto.FLOAT, [0, 3])],
        [info("t", TensorProto.STRING, [2]), info("y", TensorProto.FLOAT, [0, 3])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    proto.ir_version = 8
    feeds = {"s": np.array(["a", "größer"]), "x": np.empty((0, 3), np.float32)}
    with OnnxRuntime(Model.of_bytes(proto.SerializeToString()), print) as engine:
        strings, empty = engine.run(feeds, ["t", "y"])
    assert strings.tolist() == ["a", "größer"]
    assert empty.shape == (0, 3)


def listed():
    """A sequence of each form that the graph has: its items one by one, as slices of one tensor,
    and one behind the other."""
    nodes = [
        node("SequenceConstruct", ["x", "y"], ["pair"]),
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=1),
        node("Neg", ["y"], ["z"]),
    ]
    inputs = [info("x", TensorProto.FLOAT, ["n", 5]), info("y", TensorProto.FLOAT, [3])]
    names = ("pair", "rows", "parts")
    lists = [
        helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in names
    ]
    outputs = [*lists, info("z", TensorProto.FLOAT, [3])]
    sizes = numpy_helper.from_array(np.array(2), "sizes")
    graph = helper.make_graph(nodes, "m", inputs, outputs, [sizes])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    proto.ir_version = 8
    return proto.SerializeToString()


def test_sequences_are_lists_of_their_items():
    x, y = np.arange(10, dtype=np.float32).reshape(2, 5), np.ones(3, np.float32)
    with OnnxRuntime(Model.of_bytes(listed()), print) as engine:
        pair, rows, parts, z = engine.run({"x": x, "y": y}, ["pair", "rows", "parts", "z"])
    for items, wanted in ((pair, [x, y]), (rows, list(x)), (parts, np.split(x, [2, 4], axis=1))):
        assert isinstance(items, list)
        for item, other in zip(items, wanted, strict=True):
            np.testing.assert_array_equal(item, other)
    np.testing.assert_array_equal(z, -y)


def test_onnx_runtime_judges_sequences(monkeypatch):
    """It has no names of their items: it is asked for the sequences, whose tensors are compared."""
    artifact = compile_model(listed(), CompileOptions(threads=1))
    assert "ONNX Runtime" in artifact.report["verification"]["reference"]
    run = OnnxRuntime.run

    def of_others(self, *asked, **how):
        answer = run(self, *asked, **how)
        return [
            [item + 1 for item in value] if isinstance(value, list) else value for value in answer
        ]

    monkeypatch.setattr(OnnxRuntime, "run", of_others)
    report = compile_model(listed(), CompileOptions(threads=1)).report["verification"]
    assert report["differs"] is not None


def test_what_it_refuses_is_no_answer_and_no_warning():
    said = []
    with OnnxRuntime(Model.of_bytes(product().SerializeToString()), said.append) as engine:
        assert engine.run({"x": np.ones((2, 4), np.float32)}, ["y"]) is None
        assert engine.run(X, ["y"]) is not None
    assert not said


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_process_that_is_killed_has_no_answer_and_the_next_one_has(number):
    said = []
    with OnnxRuntime(Model.of_bytes(product().SerializeToString()), said.append) as engine:
        assert engine.run(X, ["y"]) is not None
        os.kill(engine.pid, number)
        assert engine.run(X, ["y"]) is None
        assert engine.run(X, ["y"]) is not None
    (message,) = said
    assert f"ONNX Runtime {onnxruntime.__version__} has no answer" in message
    assert f"was killed by {number.name}" in message


def test_a_process_that_hangs_is_ended():
    said = []
    model = Model.of_bytes(product().SerializeToString())
    with OnnxRuntime(model, said.append, timeout_s=0.2) as engine:
        os.kill(engine.pid, signal.SIGSTOP)
        assert engine.run(X, ["y"]) is None
        assert engine.run(X, ["y"]) is None  # at once
    (message,) = said
    assert "gave none within" in message


def test_a_compilation_survives_it(monkeypatch):
    """Float64 alone decides then, and the user hears of it."""

    def crashing(model, warn, _most_s):
        engine = OnnxRuntime(model, warn)
        os.kill(engine.pid, signal.SIGSEGV)
        return engine

    monkeypatch.setattr(OnnxRuntime, "of", crashing)
    events = []
    artifact = compile_model(
        product().SerializeToString(), CompileOptions(threads=1), listener=events.append
    )
    (warning,) = (event for event in events if isinstance(event, Warned))
    assert "killed by SIGSEGV" in warning.message
    assert artifact.report["verification"]["reference"] == "float64"
    np.testing.assert_array_equal(artifact.run(X)["y"], -(X["x"] @ WEIGHTS))
