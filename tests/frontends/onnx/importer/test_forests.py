"""Packed trees against ONNX Runtime: random forests of all modes, sizes and kinds of votes."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.importer.rewrites.forest_layout import Nodes, Votes, pack
from farrier.ops import run_graph
from farrier.ops.trees import OPERATORS

FEATURES = 5
SPLITS = (-np.inf, -1.5, -0.0, 0.0, 1e-45, 0.5, 1.0, 2.0, np.inf)
ORDERED = ("LEQ", "LT", "GTE", "GT")
AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")


def grown(rng, depth, full):
    """The nodes of a tree, a pair of children each or None, in the order of a walk. A tree that is
    not `full` is a chain, the first nodes of which have a small full tree at their other side."""
    children = []

    def grow(rest, chain):
        at = len(children)
        children.append(None)
        if rest:
            other = min(rest - 1, 3) if depth - rest < 4 else 0
            pair = [grow(rest - 1, chain), grow(other if chain else rest - 1, False)]
            children[at] = pair[:: rng.choice((1, -1))]
        return at

    grow(depth, not full)
    return children


def forest(rng, shapes, modes, targets, missing, dense=True):
    """The attributes of a TreeEnsembleRegressor: a tree for each of `shapes`, which are depths and
    whether the tree is full."""
    attrs = {f"nodes_{name}": [] for name in ("treeids", "nodeids", "featureids", "modes")}
    attrs |= {f"nodes_{name}": [] for name in ("values", "truenodeids", "falsenodeids")}
    attrs |= {"nodes_missing_value_tracks_true": []}
    attrs |= {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    names = [name for name in attrs if name.startswith("nodes")]
    for tree, (depth, full) in enumerate(shapes):
        for node, pair in enumerate(grown(rng, depth, full)):
            mode = "LEAF" if pair is None else f"BRANCH_{rng.choice(modes)}"
            row = (tree, node, int(rng.integers(FEATURES)), mode, float(rng.choice(SPLITS[1:-1])))
            row += (*(pair or (0, 0)), int(missing and rng.random() < 0.5))
            for name, value in zip(names, row, strict=True):
                attrs[name].append(value)
            voted = range(targets) if dense else [int(rng.integers(targets))]
            for target in voted if pair is None else ():
                for name, value in zip(
                    ("treeids", "nodeids", "ids"), (tree, node, target), strict=True
                ):
                    attrs[f"target_{name}"].append(value)
                attrs["target_weights"].append(float(rng.standard_normal()))
    return attrs | {"n_targets": targets}


def model_of(forests, dtype="f4"):
    """A model with a node for each forest; the number of rows is open."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("TreeEnsembleRegressor", ["x"], [f"y{i}"], domain="ai.onnx.ml", **attrs)
        for i, attrs in enumerate(forests)
    ]
    outputs = [onnx.ValueInfoProto(name=f"y{i}") for i in range(len(nodes))]
    infos = [helper.make_tensor_value_info("x", kind, ["rows", FEATURES])]
    graph = helper.make_graph(nodes, "g", infos, outputs)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return bytes(model.SerializeToString())


def rows_of(rng, count, nan=True, dtype="f4"):
    x = rng.choice([*SPLITS, 0.75, -3.0, 1e-40], (count, FEATURES))
    return np.where(nan & (rng.random(x.shape) < 0.2), np.nan, x).astype(dtype)


def expected(model, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # Its sums depend on how threads share trees.
    return onnxruntime.InferenceSession(model, options).run(None, {"x": x})


SHAPES = st.one_of(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12),
    st.just([(20, False)] * 3),
)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    SHAPES,
    st.sets(st.sampled_from(ORDERED), min_size=1).map(sorted),
    st.integers(1, 7),
    st.booleans(),
    st.booleans(),
    st.sampled_from(AGGREGATES),
)
def test_any_forest(seed, shapes, modes, targets, missing, dense, aggregate):
    rng = np.random.default_rng(seed)
    attrs = forest(rng, shapes, modes, targets, missing, dense or aggregate in ("MIN", "MAX"))
    model = model_of([attrs | {"aggregate_function": aggregate}])
    imported, x = import_model(model), rows_of(rng, 9)
    (result,) = run_graph(imported.graph, {imported.graph.inputs[0].name: x}).values()
    np.testing.assert_allclose(result, expected(model, x)[0], rtol=1e-5, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), SHAPES)
def test_nodes_that_ask_for_one_value(seed, shapes):
    rng = np.random.default_rng(seed)
    model = model_of([forest(rng, shapes, ("EQ", "NEQ", "LEQ"), 1, False)])
    imported, x = import_model(model), rows_of(rng, 9, nan=False)
    (result,) = run_graph(imported.graph, {imported.graph.inputs[0].name: x}).values()
    np.testing.assert_allclose(result, expected(model, x)[0], rtol=1e-5, atol=1e-5)


def test_code_for_forests_of_all_kinds():
    """Whole groups of rows, rests of them, and no rows at all; few and many trees."""
    rng = np.random.default_rng(7)
    forests = [
        forest(rng, [(3, True)], ("LEQ",), 1, False),
        forest(rng, [(0, True)], ("LEQ",), 2, False),
        forest(rng, [(4, True), (0, True), (2, False)] * 5, ORDERED, 1, True),
        forest(rng, [(20, False)] * 9, ("LT",), 1, True),
        forest(rng, [(2, True)] * 300, ("LEQ", "LT"), 3, True),
        forest(rng, [(3, True)] * 20, ORDERED, 11, True, dense=False),
    ]
    aggregates = itertools.cycle(AGGREGATES)
    for attrs in forests:
        attrs["aggregate_function"] = next(aggregates)
    forests[-1]["aggregate_function"] = "SUM"
    model = model_of(forests)
    session = farrier.compile(model, threads=2, verify=False).session()
    for rows in (1, 0, 7, 8, 31, 100):
        x = rows_of(rng, rows)
        result = session.run({"x": x})
        for i, other in enumerate(expected(model, x) if rows else ()):
            np.testing.assert_allclose(result[f"y{i}"], other, rtol=1e-5, atol=1e-5)
        assert result["y4"].shape == (rows, 3)


def test_a_row_has_the_same_result_alone():
    rng = np.random.default_rng(3)
    model = model_of([forest(rng, [(4, True)] * 50, ORDERED, 1, True)])
    session = farrier.compile(model, threads=2, verify=False).session()
    x = rows_of(rng, 40)
    rows = [session.run({"x": x[i : i + 1]})["y0"] for i in range(len(x))]
    np.testing.assert_array_equal(session.run({"x": x})["y0"], np.concatenate(rows))


def test_uneven_forests_are_known_as_such():
    rng = np.random.default_rng(4)
    for shape, is_uneven in (((20, False), 1), ((8, True), 0), ((6, False), 0)):
        imported = import_model(model_of([forest(rng, [shape] * 3, ("LEQ",), 1, False)]))
        (node,) = (node for node in imported.graph.nodes if node.op == "TreeEnsemble")
        assert node.attr("uneven") == is_uneven


def answer(mode, value, x, missing, sets=(), dtype="f4"):
    """Return for which elements of x a node of a mode answers yes."""
    nodes = Nodes(
        np.array([mode]),
        np.array([0]),
        np.array([value]),
        np.array([missing]),
        np.array([-1]),
        np.array([-2]),
        sets,
    )
    votes = Votes(np.array([0, 1]), np.array([0, 0]), np.array([1.0, 0.0]))
    packed = pack(nodes, np.array([0]), votes, 1, "sum", dtype)
    (reference,) = OPERATORS[0].reference([x[:, None], *packed.arrays], packed.attrs)
    return reference[:, 0] == 1


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("missing", [False, True])
def test_answers_at_the_limits_of_numbers(dtype, missing):
    info = np.finfo(dtype)
    limits = [0.0, -0.0, info.smallest_subnormal, info.max, -info.max, np.inf, -np.inf, 1.0, np.nan]
    x = np.array(limits, dtype)
    compare = {0: np.less_equal, 1: np.less, 2: np.greater_equal, 3: np.greater, 4: np.equal}
    for (mode, holds), value in itertools.product(compare.items(), limits):
        wanted = holds(x.astype("f8"), float(value)) | (missing & np.isnan(x))
        np.testing.assert_array_equal(answer(mode, value, x, missing, dtype=dtype), wanted)


def test_numbers_that_the_element_type_lacks():
    x = np.array([1.0, np.nextafter(np.float16(1), np.float16(2))], "f2")
    for mode, wanted in ((0, [True, False]), (1, [True, False]), (2, [False, True])):
        np.testing.assert_array_equal(answer(mode, 1.0001, x, False, dtype="f2"), wanted)


def test_sets():
    members = (5.0, -1.0, 3.0, 8.0, 3.0, 100.0)
    x = np.array([*range(-3, 12), 100, 99, np.nan], "f4")
    for missing in (False, True):
        result = answer(6, 0.0, x, missing, (members,))
        np.testing.assert_array_equal(result, np.isin(x, members) | (missing & np.isnan(x)))
        np.testing.assert_array_equal(answer(6, 0.0, x, missing, ((),)), missing & np.isnan(x))
