"""A misread node is reported as the one at which ONNX Runtime's values differ; differences that
rounding explains are not reported."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier import progress
from farrier.cli.show import ProgressView
from farrier.errors import VerificationWarning
from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer import import_model, upgrade
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.packaging.onnxruntime import OnnxRuntime
from farrier.packaging.parting import error_of, parting
from farrier.pipeline import compile_model
from farrier_server.api.log import _SENTENCES

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, HALF, BYTE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def model_of(nodes, argument, result, constants, opset=18):
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "m", [argument], [result], weights)
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=domains)
    proto.ir_version = 8
    return proto.SerializeToString()


def layers(activation="Elu"):
    """Four nodes, of which the third may be another function than ONNX Runtime runs."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="widening"),
        node("Tanh", ["a"], ["b"], name="bounded"),
        node(activation, ["b"], ["c"], name="bent"),
        node("MatMul", ["c", "v"], ["y"], name="narrowing"),
    ]
    constants = {"w": normal(4, 8), "v": normal(8, 3)}
    return model_of(nodes, info("x", FLOAT, [2, 4]), info("y", FLOAT, [2, 3]), constants)


@pytest.fixture
def misreading(monkeypatch):
    """Have the importer take an Elu for a Relu."""

    def rule(read, opset, scope):
        return [RawNode("Relu", read.inputs, read.outputs, {}, read.origin)]

    monkeypatch.setitem(upgrade._UPGRADES, "Elu", rule)


def compiled(data, events):
    return compile_model(data, CompileOptions(threads=1), listener=events.append)


def test_a_misread_node_is_named(misreading, capsys):
    events = []
    report = compiled(layers(), events).report["verification"]
    (warning,) = (event for event in events if isinstance(event, progress.Warned))
    engine = f"ONNX Runtime {onnxruntime.__version__}"
    assert "they part at node 'bent' (Elu)" in warning.message
    assert engine in warning.message
    assert report["differs"]["node"] == "node 'bent' (Elu)"
    assert report["reference"] == engine
    # The difference is from ONNX Runtime, not from Farrier's own reference.
    assert report["max_error"] > 0.01
    (verified,) = (event for event in events if isinstance(event, progress.Verified))
    assert verified.differs_from == engine
    assert progress.from_dict(progress.to_dict(verified)) == verified
    with ProgressView() as view:
        view(verified)
    line = f"not verified: it differs from {engine}"
    assert line in " ".join(capsys.readouterr().err.split())
    assert line in _SENTENCES["verified"](progress.to_dict(verified))


def test_who_does_not_listen_is_warned(misreading):
    with pytest.warns(VerificationWarning, match="'bent'") as caught:
        farrier.compile(layers())
    assert caught[0].filename == __file__


def test_an_error_without_a_bound_passes_through_json():
    event = progress.Verified(np.inf, 1.0, None, "here", differs_from="ONNX Runtime 1")
    raw = progress.to_dict(event) | {"max_error": None}  # A farm sends it so.
    assert progress.from_dict(raw) == event
    assert "error inf" in _SENTENCES["verified"](raw)


def parted(theirs, ours, **inputs):
    """The difference between ONNX Runtime on one model and float64 on another."""
    source = Model.of_bytes(theirs)
    with OnnxRuntime(source, print) as engine:
        imported = import_model(ours)
        results = engine.run(inputs, imported.output_names, is_plain=True)
        return parting(engine, source, imported, inputs, results, 1e-4)


def test_the_first_of_several_is_found_a_few_values_at_a_time(monkeypatch):
    """Values take more room than is allowed, so that they are compared by halves."""
    monkeypatch.setattr("farrier.packaging.parting._BYTES", 200)
    nodes = [
        node("Neg" if at % 2 else "Cos", [f"h{at}"], [f"h{at + 1}"], name=f"n{at}")
        for at in range(12)
    ]
    argument, result = info("h0", FLOAT, [16]), info("h12", FLOAT, [16])
    theirs = model_of(nodes, argument, result, {})
    for at in (0, 5, 11):
        others = [*nodes]
        others[at] = node("Sin", [f"h{at}"], [f"h{at + 1}"], name=f"n{at}")
        actual = parted(theirs, model_of(others, argument, result, {}), h0=normal(16))
        assert actual.node.startswith(f"node 'n{at}' ")
    assert parted(theirs, theirs, h0=normal(16)) is None


def test_what_rounding_explains_is_no_parting():
    """(x + 3e7) - 3e7: ONNX Runtime is off by the whole range, as any f32 is; and so is a floor of
    what would be whole."""
    argument, result = info("x", FLOAT, [64]), info("y", FLOAT, [64])
    shift = [node("Add", ["x", "c"], ["s"]), node("Sub", ["s", "c"], ["y"])]
    shifted = model_of(shift, argument, result, {"c": np.float32(3e7)})
    assert parted(shifted, shifted, x=normal(64)) is None
    ties = [
        node("Mul", ["x", "less"], ["s"]),
        node("Mul", ["s", "more"], ["t"]),
        node("Floor", ["t"], ["y"]),
    ]
    constants = {"less": np.float32(0.7), "more": np.float32(1 / 0.7)}
    floors = model_of(ties, argument, result, constants)
    whole = np.arange(64, dtype=np.float32)
    source = Model.of_bytes(floors)
    with OnnxRuntime(source, print) as engine:
        (actual,) = engine.run({"x": whole}, ["y"])
    exact = np.floor(whole * np.float64(constants["less"]) * np.float64(constants["more"]))
    assert error_of(exact, actual) > 1e-4
    assert parted(floors, floors, x=whole) is None


def half_precision():
    constants = {"w": normal(64, 64).astype(np.float16), "s": np.ones(64, np.float16)}
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Softmax", ["a"], ["b"]),
        node("LayerNormalization", ["b", "s"], ["c"]),
        node("MatMul", ["c", "w"], ["d"]),
        node("Erf", ["d"], ["y"]),
    ]
    return model_of(nodes, info("x", HALF, [8, 64]), info("y", HALF, [8, 64]), constants)


def quantized():
    constants = {
        "w": np.random.default_rng(1).integers(-128, 128, (8, 3, 3, 3)).astype(np.int8),
        "scale": np.float32(0.02),
        "point": np.uint8(120),
        "wide": np.float32(0.3),
        "zero": np.int8(0),
    }
    nodes = [
        node("DequantizeLinear", ["x", "scale", "point"], ["a"]),
        node("DequantizeLinear", ["w", "scale", "zero"], ["k"]),
        node("Conv", ["a", "k"], ["b"]),
        node("QuantizeLinear", ["b", "wide", "point"], ["c"]),
        node("DequantizeLinear", ["c", "wide", "point"], ["d"]),
        node("Sigmoid", ["d"], ["e"]),
        node("QuantizeLinear", ["e", "scale", "zero8"], ["y"]),
    ]
    constants["zero8"] = np.uint8(0)
    argument, result = info("x", BYTE, [1, 3, 9, 9]), info("y", BYTE, [1, 8, 7, 7])
    return model_of(nodes, argument, result, constants)


def resized():
    """Bytes between bytes, which ONNX Runtime computes in fixed point and rounds otherwise."""
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    nodes = [node("Resize", ["x", "", "", "sizes"], ["y"], **attrs)]
    argument, result = info("x", BYTE, [1, 3, 9, 11]), info("y", BYTE, [1, 3, 14, 17])
    return model_of(nodes, argument, result, {"sizes": np.array([1, 3, 14, 17])})


@pytest.mark.parametrize("data", [layers(), half_precision(), quantized(), resized()])
def test_ordinary_models_cause_no_warning(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = farrier.compile(data, threads=1).report["verification"]
    assert report["differs"] is None
