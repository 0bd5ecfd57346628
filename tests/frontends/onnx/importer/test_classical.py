"""Operators of ai.onnx.ml against ONNX Runtime, and trees that are none."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer import import_model


def classical(op, x, version, **attrs):
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    infos = [helper.make_tensor_value_info("x", kind, x.shape)]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return bytes(model.SerializeToString())


def compare(model, x, tolerance=1e-6):
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    actual = farrier.compile(model, threads=2, verify=False).run({"x": x})["y"]
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(
        actual, expected.reshape(actual.shape), rtol=tolerance, atol=tolerance
    )


def random_forest(rng, trees, depth, features, modes):
    """The attributes of a TreeEnsembleRegressor with full trees of all `modes`."""
    actual = {
        name: []
        for name in (
            *("treeids", "nodeids", "featureids", "modes", "values", "truenodeids"),
            *("falsenodeids", "missing_value_tracks_true"),
        )
    }
    votes = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    inner = (1 << depth) - 1
    for tree in range(trees):
        for i in range(2 * inner + 1):
            is_leaf = i >= inner
            actual["treeids"].append(tree)
            actual["nodeids"].append(i)
            actual["featureids"].append(0 if is_leaf else int(rng.integers(features)))
            actual["modes"].append("LEAF" if is_leaf else f"BRANCH_{rng.choice(modes)}")
            actual["values"].append(float(rng.integers(-2, 3)))
            actual["truenodeids"].append(0 if is_leaf else 2 * i + 1)
            actual["falsenodeids"].append(0 if is_leaf else 2 * i + 2)
            actual["missing_value_tracks_true"].append(int(rng.integers(2)))
            for target in range(3 if is_leaf else 0):
                votes["treeids"].append(tree)
                votes["nodeids"].append(i)
                votes["ids"].append(target)
                votes["weights"].append(float(rng.standard_normal()))
    attributes = {f"nodes_{name}": value for name, value in actual.items()}
    return (
        attributes | {f"target_{name}": value for name, value in votes.items()} | {"n_targets": 3}
    )


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [("LEQ",), ("LEQ", "LT", "GT", "GTE", "EQ", "NEQ")])
def test_forests(aggregate, modes):
    rng = np.random.default_rng(0)
    attrs = random_forest(rng, trees=7, depth=3, features=5, modes=modes)
    x = rng.integers(-3, 4, (33, 5)).astype(np.float32)
    attrs |= {"aggregate_function": aggregate, "base_values": [0.5, -1.0, 2.0]}
    compare(classical("TreeEnsembleRegressor", x, 3, **attrs), x, 1e-5)


def test_missing_values_go_where_the_node_says():
    rng = np.random.default_rng(1)
    attrs = random_forest(rng, trees=9, depth=3, features=4, modes=("LEQ", "LT", "GT", "GTE"))
    x = np.where(rng.random((40, 4)) < 0.4, np.nan, rng.integers(-3, 4, (40, 4)))
    compare(classical("TreeEnsembleRegressor", x.astype(np.float32), 3, **attrs), x.astype("f"))


def tree(x, **changes):
    """A TreeEnsemble of one node: is feature 0 at most 1, or a member of {3, 5}?"""
    attrs = {
        "tree_roots": [0],
        "n_targets": 1,
        "nodes_modes": numpy_helper.from_array(np.array([0, 6], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([1, 0], x.dtype)),
        "nodes_featureids": [0, 0],
        "nodes_truenodeids": [0, 1],
        "nodes_falsenodeids": [1, 2],
        "nodes_trueleafs": [1, 1],
        "nodes_falseleafs": [0, 1],
        "leaf_weights": numpy_helper.from_array(np.array([10, 20, 30], x.dtype)),
        "leaf_targetids": [0, 0, 0],
        "membership_values": numpy_helper.from_array(np.array([3, 5, np.nan], x.dtype)),
    }
    return classical("TreeEnsemble", x, 5, **(attrs | changes))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_members(dtype):
    x = np.array([[0], [1], [2], [3], [4], [5], [np.nan]], dtype)
    actual = farrier.compile(tree(x), threads=1, verify=False).run({"x": x})["y"]
    np.testing.assert_array_equal(actual, [[10], [10], [30], [20], [30], [20], [30]])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes_falsenodeids": [0, 2]}, "cycle"),
        ({"nodes_falsenodeids": [9, 2]}, "a node 9 of 2"),
        ({"nodes_featureids": [0, 7]}, "features beyond the 1"),
        ({"leaf_targetids": [0, 0, 5]}, "targets beyond 1"),
        ({"nodes_truenodeids": [0]}, "malformed"),
    ],
)
def test_what_is_no_tree(changes, words):
    with pytest.raises(InvalidModelError, match=words):
        import_model(tree(np.ones((2, 1), np.float32), **changes))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_linear_models_and_scales(dtype):
    x = np.arange(12).reshape(4, 3).astype(dtype)
    attrs = {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.25], "intercepts": [1.0, -1.0]}
    if dtype is np.float32:
        compare(classical("LinearRegressor", x, 1, targets=2, **attrs), x)
    compare(classical("Scaler", x, 1, offset=[1.0, 2.0, 3.0], scale=[0.5, 1.0, 2.0]), x)
