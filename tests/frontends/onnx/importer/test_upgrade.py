"""Nodes of old opsets, against ONNX Runtime, which still runs them as they were meant."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

node = helper.make_node
BOUNDS = np.array([1, 2], np.int64)

CASES = {
    "Squeeze-11": (11, [node("Squeeze", ["x"], ["y"], axes=[1])], (3, 1, 5)),
    "Unsqueeze-11": (11, [node("Unsqueeze", ["x"], ["y"], axes=[0, -1])], (3, 5)),
    "ReduceSum-11": (11, [node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)], (3, 4, 5)),
    "ReduceMean-17": (17, [node("ReduceMean", ["x"], ["y"], axes=[-1])], (3, 4, 5)),
    "ReduceMax-11": (11, [node("ReduceMax", ["x"], ["y"])], (3, 4)),
    "Softmax-11": (11, [node("Softmax", ["x"], ["y"])], (2, 3, 4)),
    "Softmax-11-one-axis": (11, [node("Softmax", ["x"], ["y"])], (2, 7, 1, 1)),
    "Softmax-11-last": (11, [node("Softmax", ["x"], ["y"], axis=-1)], (2, 3, 4)),
    "LogSoftmax-9": (9, [node("LogSoftmax", ["x"], ["y"], axis=2)], (2, 3, 4, 2)),
    "Clip-6": (10, [node("Clip", ["x"], ["y"], min=-0.5, max=0.3)], (3, 5)),
    "Clip-6-open": (10, [node("Clip", ["x"], ["y"], max=0.3)], (3, 5)),
    "Pad-2": (10, [node("Pad", ["x"], ["y"], pads=[1, 0, 0, 2], value=0.7)], (3, 5)),
    "Slice-9": (9, [node("Slice", ["x"], ["y"], starts=[1, -3], ends=[9, 4], axes=[0, 1])], (4, 5)),
    "Split-11": (11, [node("Split", ["x"], ["y", "z"], axis=1, split=[1, 4])], (2, 5)),
    "Split-equal": (13, [node("Split", ["x"], ["y", "z"], axis=1)], (2, 6)),
    "Upsample-7": (7, [node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])], (1, 2, 3, 4)),
    "Upsample-9": (9, [node("Upsample", ["x", "scales"], ["y"], mode="linear")], (1, 2, 3, 4)),
    "Resize-10": (10, [node("Resize", ["x", "scales"], ["y"])], (1, 2, 4, 6)),
    "Dropout-7": (7, [node("Dropout", ["x"], ["y"], ratio=0.5)], (3, 5)),
    "Dropout-mask": (12, [node("Dropout", ["x"], ["y", "z"])], (3, 5)),
    "BatchNormalization-7": (
        7,
        [node("BatchNormalization", ["x", "p", "p", "p", "p"], ["y"], epsilon=0.01)],
        (2, 3, 4, 5),
    ),
    "Constant-ints": (
        13,
        [node("Constant", [], ["c"], value_ints=[2, -1]), node("Reshape", ["x", "c"], ["y"])],
        (4, 3),
    ),
    "Constant-float": (
        13,
        [node("Constant", [], ["c"], value_float=2.5), node("Mul", ["x", "c"], ["y"])],
        (4, 3),
    ),
    "ConstantOfShape": (
        9,
        [
            node(
                "ConstantOfShape",
                ["two"],
                ["c"],
                value=numpy_helper.from_array(np.array([3.5], np.float32)),
            ),
            node("Add", ["x", "c"], ["y"]),
        ],
        (1, 2),
    ),
    "CastLike": (15, [node("CastLike", ["x", "two"], ["y"])], (3, 5)),
    "Concat-empty": (
        13,
        [node("Slice", ["x", "two", "two"], ["e"]), node("Concat", ["x", "e"], ["y"], axis=0)],
        (3, 5),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_old_forms_mean_what_they_meant(model, name):
    opset, nodes, shape = CASES[name]
    scales = np.array([1, 1, 2, 2], np.float32)
    constants = {
        "scales": scales,
        "p": np.array([0.5, 1.5, 2.0], np.float32),
        "two": np.array([2, 1]),
    }
    if name == "Concat-empty":
        constants["two"] = np.array([3])
    used = {i for n in nodes for i in n.input}
    constants = {key: value for key, value in constants.items() if key in used}
    outputs = [o for n in nodes for o in n.output if o in ("y", "z")]
    data = model(nodes, {"x": shape}, outputs, constants, opset)
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    graph = import_model(data).graph
    ours = run_graph(graph, {graph.inputs[0].name: x}).values()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(data, options).run(None, {"x": x})
    for got, want in zip(ours, theirs, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_group_normalization_before_21_had_parameters_by_group(model):
    groups = np.array([0.5, 2.0], np.float32)
    nodes = [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2, epsilon=0.1)]
    data = model(nodes, {"x": [2, 4, 3]}, constants={"s": groups, "b": groups}, opset=18)
    x = np.random.default_rng(4).standard_normal((2, 4, 3)).astype(np.float32)
    graph = import_model(data).graph
    (got,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    rows = x.reshape(2, 2, -1)
    normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(
        got, (normal * groups[:, None] + groups[:, None]).reshape(x.shape), rtol=1e-5, atol=1e-6
    )


def test_functions_of_the_model_are_inlined():
    body = [node("Mul", ["a", "a"], ["s"]), node("Relu", ["s"], ["b"])]
    function = helper.make_function(
        "mine", "Square", ["a"], ["b"], body, [helper.make_opsetid("", 17)]
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph([node("Square", ["x"], ["y"], domain="mine")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    proto = helper.make_model(graph, functions=[function], opset_imports=opsets)
    imported = import_model(proto.SerializeToString())
    assert [n.op for n in imported.graph.nodes] == ["Mul", "Relu"]


def test_operators_that_onnx_defines_by_others_are_expanded(model):
    nodes = [node("RotaryEmbedding", ["x", "c", "s"], ["y"])]
    rng = np.random.default_rng(5)
    x, angle = rng.standard_normal((2, 3, 4, 8)).astype(np.float32), rng.random((2, 4, 4))
    constants = {"c": np.cos(angle).astype(np.float32), "s": np.sin(angle).astype(np.float32)}
    proto = onnx.load_from_string(model(nodes, {"x": x.shape}, constants=constants, opset=23))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    graph = import_model(proto.SerializeToString()).graph
    (got,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    cos, sin = constants["c"][:, None], constants["s"][:, None]
    left, right = x[..., :4], x[..., 4:]
    want = np.concatenate([left * cos - right * sin, right * cos + left * sin], -1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def _add(shape, **attrs):
    return ([node("Add", ["x", "p"], ["y"], **attrs)], shape)


BEFORE_SEVEN = {
    "Add-axis": (6, *_add((2, 3, 4, 5), broadcast=1, axis=1), lambda x, p: x + p[:, None, None]),
    "Add-last": (6, *_add((2, 4, 3), broadcast=1), lambda x, p: x + p),
    "PRelu": (
        6,
        [node("PRelu", ["x", "p"], ["y"])],
        (2, 3, 4, 5),
        lambda x, p: np.where(x < 0, x * p[:, None, None], x),
    ),
    "Reshape-1": (
        4,
        [node("Reshape", ["x"], ["y"], shape=[3, -1])],
        (2, 3),
        lambda x, p: x.reshape(3, -1),
    ),
    "Cast-1": (
        5,
        [node("Cast", ["x"], ["y"], to="INT32")],
        (2, 3),
        lambda x, p: x.astype(np.int32),
    ),
    "Concat-1": (
        3,
        [node("Concat", ["x", "x"], ["y"])],
        (2, 3),
        lambda x, p: np.concatenate([x, x], 1),
    ),
    "Dropout-6": (6, [node("Dropout", ["x"], ["y"], is_test=1)], (2, 3), lambda x, p: x),
}


@pytest.mark.parametrize("name", BEFORE_SEVEN)
def test_forms_of_before_opset_7(model, name):
    opset, nodes, shape, formula = BEFORE_SEVEN[name]
    p = np.array([0.5, 1.5, 2.0], np.float32)
    used = {"p": p} if "p" in nodes[0].input else {}
    graph = import_model(model(nodes, {"x": shape}, constants=used, opset=opset)).graph
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    (got,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    np.testing.assert_array_equal(got, formula(x, p))


def test_what_has_no_elements_is_a_constant(model):
    nodes = [
        node("ReduceSum", ["x"], ["s"], axes=[1], keepdims=0),
        node("Slice", ["z"], ["e"], starts=[3], ends=[3], axes=[0]),
        node("Concat", ["s", "e"], ["c"], axis=0),
        node("Add", ["c", "z"], ["y"]),
    ]
    data = model(nodes, {"x": [3, 0], "z": [3]}, outputs=["y", "e"], opset=9)
    graph = import_model(data, {"x": (3, 0)}).graph
    assert [n.op for n in graph.nodes] == ["Add"]
    z = np.arange(3, dtype=np.float32)
    artifact = farrier.compile(data, shapes={"x": (3, 0)}, verify=False, threads=1)
    results = artifact.run({"x": np.empty((3, 0), np.float32), "z": z})
    np.testing.assert_array_equal(results["y"], z)
    assert results["e"].shape == (0,)


def test_statistics_of_a_layer_normalization(model):
    nodes = [node("LayerNormalization", ["x", "w"], ["y", "m", "d"], axis=1)]
    w = np.random.default_rng(7).random((3, 5)).astype(np.float32)
    data = model(nodes, {"x": [2, 3, 5]}, outputs=["y", "m", "d"], constants={"w": w})
    x = np.random.default_rng(8).standard_normal((2, 3, 5)).astype(np.float32)
    graph = import_model(data).graph
    ours = run_graph(graph, {graph.inputs[0].name: x}).values()
    theirs = onnxruntime.InferenceSession(data).run(None, {"x": x})
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_batch_normalization_that_trains(model):
    nodes = [
        node(
            "BatchNormalization",
            ["x", "p", "p", "p", "p"],
            ["y", "m", "v"],
            training_mode=1,
            momentum=0.8,
        )
    ]
    p = np.array([0.5, 1.5, 2.0], np.float32)
    data = model(nodes, {"x": [2, 3, 5]}, outputs=["y", "m", "v"], constants={"p": p})
    x = np.random.default_rng(9).standard_normal((2, 3, 5)).astype(np.float32)
    graph = import_model(data).graph
    y, mean, variance = run_graph(graph, {graph.inputs[0].name: x}).values()
    moments = x.mean((0, 2)), x.var((0, 2))
    normal = (x - moments[0][:, None]) / np.sqrt(moments[1][:, None] + 1e-5)
    np.testing.assert_allclose(y, normal * p[:, None] + p[:, None], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean, 0.8 * p + 0.2 * moments[0], rtol=1e-6)
    np.testing.assert_allclose(variance, 0.8 * p + 0.2 * moments[1], rtol=1e-6)


FILTERS = {
    "cubic": ({"mode": "cubic"}, (1, 1, 1.7, 0.6)),
    "cubic-inside": (
        {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
        (1, 1, 2.3, 1.4),
    ),
    "cubic-corners": (
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
        (1, 1, 2, 3),
    ),
    "linear-antialias": ({"mode": "linear", "antialias": 1}, (1, 1, 0.4, 0.5)),
    "cubic-antialias": ({"mode": "cubic", "antialias": 1}, (1, 1, 0.5, 0.3)),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_resize(model, name):
    attrs, scales = FILTERS[name]
    constants = {"s": np.array(scales, np.float32)}
    nodes = [node("Resize", ["x", "", "s"], ["y"], **attrs)]
    data = model(nodes, {"x": [2, 3, 11, 7]}, constants=constants, opset=18)
    x = np.random.default_rng(6).standard_normal((2, 3, 11, 7)).astype(np.float32)
    graph = import_model(data).graph
    (got,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    (want,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_crop_along_any_axes(model):
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    constants = {
        "r": np.array([0, 0.2, 0, -0.1, 1, 0.8, 1, 0.6], np.float32),
        "n": np.array([2, 5, 3, 4], np.int64),
    }
    nodes = [node("Resize", ["x", "r", "", "n"], ["y"], mode="linear", **attrs)]
    data = model(nodes, {"x": [2, 11, 3, 7]}, constants=constants, opset=18)
    x = np.random.default_rng(6).standard_normal((2, 11, 3, 7)).astype(np.float32)
    graph = import_model(data).graph
    (got,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    rows = 10 * (0.2 + np.arange(5) * 0.6 / 4)
    columns = 6 * (-0.1 + np.arange(4) * 0.7 / 3)
    low = np.floor(rows).astype(int)
    part = (rows - low)[:, None, None]
    taken = x[:, low] * (1 - part) + x[:, low + 1] * part
    left = np.floor(columns).astype(int)
    share = columns - left
    want = taken[..., left] * (1 - share) + taken[..., left + 1] * share
    want[..., columns < 0] = 9.0
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
