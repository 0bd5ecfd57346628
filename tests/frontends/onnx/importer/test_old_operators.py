"""Operators and forms that ONNX declares no more, against ONNX Runtime, and sparse tensors."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

node = helper.make_node
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 5, 4)).astype("f4")
STATISTICS = {name: np.abs(RNG.standard_normal((3, 5, 4))).astype("f4") + 0.5 for name in "sbmv"}
BOUNDS = {"low": np.array([0, 1]), "high": np.array([1, 3])}


def model_of(nodes, feeds, opset, constants=None, sparse=(), outputs=("y",)):
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    weights = [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", infos, results, weights, sparse_initializer=sparse)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def evaluated(model, *arrays):
    graph = import_model(model).graph
    feeds = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
    return list(run_graph(graph, feeds).values())


def compare(model, **feeds):
    expected = onnxruntime.InferenceSession(model).run(None, feeds)
    for actual, wanted in zip(evaluated(model, *feeds.values()), expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("ImageScaler", {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
        ("Affine", {"alpha": 2.0, "beta": 0.5}),
        ("Affine", {}),
        ("Scale", {"scale": 3.0}),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
        ("Crop", {"border": [1, 0, 2, 1]}),
        ("Crop", {"border": [1, 2, 1, 1], "scale": [2, 1]}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("ThresholdedRelu", {}),
        *(
            ("MeanVarianceNormalization", {"across_channels": a, "normalize_variance": n})
            for a in (0, 1)
            for n in (0, 1)
        ),
        ("MeanVarianceNormalization", {}),
    ],
)
def test_experiments(op, attrs):
    for opset in (1, 7):
        compare(model_of([node(op, ["x"], ["y"], **attrs)], {"x": X}, opset), x=X)


def test_slices_by_inputs():
    nodes = [node("DynamicSlice", ["x", "low", "high"], ["y"])]
    compare(model_of(nodes, {"x": X}, 6, BOUNDS), x=X)


@pytest.mark.parametrize("opset", [7, 8])
def test_statistics_of_each_element(opset):
    nodes = [node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=0, epsilon=1e-3)]
    compare(model_of(nodes, {"x": X}, opset, STATISTICS), x=X)


@pytest.mark.parametrize("opset", [7, 10, 12])
def test_masks_of_dropout(opset):
    nodes = [node("Dropout", ["x"], ["y", "mask"])]
    compare(model_of(nodes, {"x": X}, opset, outputs=("y", "mask")), x=X)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("ConstantFill", [], ["c"], shape=[2, 1], value=2.5)], np.full((2, 1), 2.5, "f4")),
        (
            [node("ConstantFill", ["x"], ["c"], extra_shape=[2], dtype=7, value=3.0)],
            np.full((2, 2), 3),
        ),
        (
            [
                node("Shape", ["x"], ["s"]),
                node("ConstantFill", ["s"], ["c"], input_as_shape=1, extra_shape=[3]),
            ],
            np.zeros((2, 3), "f4"),
        ),
    ],
)
def test_fills(nodes, expected):
    """ONNX Runtime lacks it; Caffe2 defined it."""
    x = np.ones(2, "f4")
    cast = node("Cast", ["c"], ["y"], to=helper.np_dtype_to_tensor_dtype(expected.dtype))
    (y,) = evaluated(model_of([*nodes, cast], {"x": x}, 6), x)
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)


def sparse(indices, values=(5.0, 7.0), shape=(2, 3), name="s", kind=TensorProto.FLOAT):
    indices = np.array(indices)
    return helper.make_sparse_tensor(
        helper.make_tensor(name, kind, [len(values)], values),
        helper.make_tensor("i", TensorProto.INT64, indices.shape, indices.ravel()),
        list(shape),
    )


@pytest.mark.parametrize("indices", [[1, 4], [[0, 1], [1, 1]]])
def test_sparse_tensors(indices):
    x = np.ones((2, 3), "f4")
    nodes = [
        node("Constant", [], ["c"], sparse_value=sparse(indices)),
        node("Add", ["x", "c"], ["y"]),
    ]
    compare(model_of(nodes, {"x": x}, 13), x=x)
    nodes = [node("Add", ["x", "s"], ["y"])]
    model = model_of(nodes, {"x": x}, 13, sparse=[sparse(indices)])
    compare(model, x=x)
    graph = onnx.load_from_string(model)
    graph.graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3]))
    assert import_model(graph.SerializeToString()).input_names == ("x",)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (sparse([1, 6]), "beyond it"),
        (sparse([[0, 1], [2, 0]]), "beyond it"),
        (sparse([-1, 0]), "beyond it"),
        (sparse([1]), "2 values and indices"),
        (sparse([[1], [2]]), "2 values and indices"),
        (sparse([0, 1], shape=(1 << 20, 1 << 20)), "GiB"),
        (sparse([0, 1], (b"a", b"b"), kind=TensorProto.STRING), "not a vector of numbers"),
    ],
)
def test_sparse_tensors_that_are_none(tensor, words):
    x = np.ones((2, 3), "f4")
    data = model_of([node("Add", ["x", "s"], ["y"])], {"x": x}, 13, sparse=[tensor])
    with pytest.raises(InvalidModelError, match=words):
        import_model(data)


def test_a_crop_without_a_border():
    with pytest.raises(InvalidModelError, match="must be four sizes"):
        import_model(model_of([node("Crop", ["x"], ["y"])], {"x": X}, 6))
