"""Dimensions fixed by the user, by the model's declarations, and by inference from both."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from farrier.errors import FarrierError, UnresolvedShapeError, UsageError
from farrier.frontends.onnx.importer import import_model, inspect
from farrier.ir.dim import bounds, typical

node = helper.make_node
ADD = [node("Add", ["x", "z"], ["y"])]


def test_what_is_left_open_stays_open(model):
    imported = import_model(model(ADD, {"x": ["n", 3, None], "z": [1]}))
    assert [str(value.type.shape) for value in imported.graph.inputs] == ["(s0, 3, s1)", "(1,)"]
    assert [(d.name, d.low, d.typical) for d in imported.dims] == [("n", 0, 1), ("x[2]", 0, 128)]
    assert imported.axes == (("n", "", "x[2]"), ("",))


@pytest.mark.parametrize(
    ("shape", "typical"),
    [
        (["n", 3, "h", "w"], [1, 224, 224]),
        (["n", "h", "w", 3], [1, 224, 224]),
        (["n", 12, "past", 64], [1, 128]),
        (["n", "tokens"], [1, 128]),
        ([1, 1, 48, "w"], [224]),
    ],
)
def test_typical_sizes(model, shape, typical):
    data = model([node("Relu", ["x"], ["y"])], {"x": shape})
    assert [dim.typical for dim in import_model(data).dims] == typical
    imported = import_model(data, typical={shape[-1]: 7}) if shape[-1] == "w" else None
    assert imported is None or imported.dims[-1].typical == 7


def test_an_input_of_unknown_rank_is_named(model):
    with pytest.raises(UnresolvedShapeError) as caught:
        import_model(model([node("Relu", ["x"], ["y"])], {"x": None}))
    assert "x f32[…]" in caught.value.message
    assert "--shape x=" in caught.value.hint


# A decoder's new tokens, those it has seen, and the mask over both.
JOIN = [node("Concat", ["p", "x"], ["c"], axis=1), node("Mul", ["c", "m"], ["y"])]
JOINED = {"x": ["b", "seq"], "m": ["b", "past + seq"], "p": ["b", "past"]}


@pytest.mark.parametrize(
    "mask", [None, ("?", "?"), ("n", "seen+now"), ("n", "past+now"), ("n", "now + seen"), ("n", 12)]
)
def test_sums_of_dims(model, mask):
    """As the model declares them or the user writes them, with names of either."""
    shapes = {"x": ("n:1..4", "now:1..8"), "p": ("n", 9 if mask == ("n", 12) else "seen:0..32")}
    if mask == ("n", 12):
        shapes["x"] = ("n", 3)
    graph = import_model(
        model(JOIN, JOINED), shapes if mask is None else {**shapes, "m": mask}
    ).graph
    x, m, p = (value.type.shape[1] for value in graph.inputs)
    assert m == x + p
    assert graph.outputs[0].type.shape[1] == m


def test_sums_with_factors(model):
    nodes = [node("Relu", ["x"], ["y"]), node("Relu", ["z"], ["w"])]
    data = model(nodes, {"x": ["a", 1], "z": ["2*a + 3", "k"]})
    imported = import_model(data, {"x": ("n:2..20:2", 1), "z": ("?", "n + 1 + 2*n")})
    assert str(imported.graph.inputs[1].type.shape) == "(4*s0 + 3, 6*s0 + 1)"


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"m": ("n", "past+more")}, "no dimension of an input is 'more' by itself"),
        ({"m": ("n", "?:1..40")}, "has 1..40 at axis 1, which other inputs make now+seen"),
        ({"m": ("n", "seen+")}, "cannot read the dimension 'seen+'"),
        ({"m": ("n", "99999999999999999999*now+1")}, "ends beyond"),
    ],
)
def test_sums_that_clash(model, shapes, reason):
    declared = {"x": ("n:1..4", "now:1..8"), "p": ("n", "seen:0..32"), **shapes}
    with pytest.raises(FarrierError, match=re.escape(reason)):
        import_model(model(JOIN, JOINED), declared)


def test_named_dims_are_shared(model):
    data = model(ADD, {"x": ["n", 3], "z": ["n", 1]})
    graph = import_model(data, {"x": (5, 3)}).graph
    assert [value.type.shape for value in graph.inputs] == [(5, 3), (5, 1)]
    with pytest.raises(UsageError, match="makes 'n' 4, and another input makes it 5"):
        import_model(data, {"x": (5, 3), "z": (4, 1)})


def test_anonymous_dims_are_not_shared(model):
    data = model(ADD, {"x": ["?", "?"], "z": [1, "?"]})
    graph = import_model(data, {"x": (5, 3), "z": (1, 3)}).graph
    assert graph.outputs[0].type.shape == (5, 3)


def test_open_dims_are_symbols_and_keep_their_names(model):
    data = model(ADD, {"x": ["n", 3, None], "z": ["n", 1, 1]})
    imported = import_model(data, {"x": ("batch:2..8", 3, "?")}, ({"batch": 4},))
    batch, free = imported.graph.inputs[0].type.shape[0], imported.graph.inputs[0].type.shape[2]
    assert [str(batch), bounds(batch), typical(batch)] == ["s0", (2, 8), 4]
    assert [str(free), bounds(free)] == ["s1", (0, 1 << 20)]
    assert imported.graph.inputs[1].type.shape == (batch, 1, 1)
    assert [(d.name, d.symbol, d.low, d.high) for d in imported.dims] == [
        ("batch", "s0", 2, 8), ("x[2]", "s1", 0, 1 << 20)
    ]  # fmt: skip


def test_steps(model):
    """Multiples are divisible: 16 * (h // 16) is h again."""
    data = model([node("MaxPool", ["x"], ["y"], kernel_shape=[32, 32], strides=[32, 32])],
                 {"x": [1, 3, "h", "w"]})  # fmt: skip
    imported = import_model(data, {"x": (1, 3, "h:30..640:32", "w:32..33:32")}, ({"h": 320},))
    assert str(imported.graph.inputs[0].type.shape) == "(1, 3, 32*s0, 32)"
    assert str(imported.graph.outputs[0].type.shape) == "(1, 3, s0, 1)"
    (dim,) = imported.dims
    assert (dim.low, dim.high, dim.typical, dim.step) == (1, 20, 10, 32)


def test_a_name_is_one_size_in_every_input(model):
    data = model(ADD, {"x": ["a", 3], "z": ["b", 3]})
    imported = import_model(data, {"x": ("n:1..8", 3), "z": ("n", 3)})
    assert len({value.type.shape for value in imported.graph.inputs}) == 1
    fixed = import_model(data, {"x": ("n:5..5", 3), "z": ("n", "?")})
    assert [value.type.shape for value in fixed.graph.inputs] == [(5, 3), (5, 3)]
    assert fixed.dims == ()


@pytest.mark.parametrize(
    ("shapes", "hot", "reason"),
    [
        ({"x": ("n", "c")}, (), "has c at axis 1, not 3"),
        ({"x": ("n", 3), "z": ("m", 1)}, (), "makes 'n' m, and another input makes it n"),
        ({"x": ("n:1..4", 3), "z": ("n:1..5", 1)}, (), "'n' has two ranges, 1..4 and 1..5"),
        ({"x": ("n:1..4", 3)}, ({"m": 3},), "no dimension named 'm' is open"),
        ({"x": ("n:1..4", 3)}, ({"n": 5},), "n is 5 in --hot or --typical, and 1..4 in --shape"),
        (
            {"x": ("n:1..9:3", 3)},
            ({"n": 4},),
            "n is 4 in --hot or --typical, and 1..9:3 in",
        ),
    ],
)
def test_open_dims_that_clash(model, shapes, hot, reason):
    with pytest.raises(UsageError, match=re.escape(reason)):
        import_model(model(ADD, {"x": ["n", 3], "z": ["n", 1]}), shapes, hot)


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"w": (1,)}, "no input 'w'"),
        ({"x": (2, 4)}, "has 4 at axis 1, not 3"),
        ({"x": (3,)}, "rank 1, not 2"),
        ({"x": (-1, 3)}, "cannot read the dimension -1"),
    ],
)
def test_shapes_that_clash(model, shapes, reason):
    with pytest.raises(UsageError, match=reason):
        import_model(model(ADD, {"x": ["n", 3], "z": [1]}), shapes)


def test_unknown_rank(model):
    data = model([node("Relu", ["x"], ["y"])], {"x": None})
    with pytest.raises(UnresolvedShapeError, match="f32\\[…\\]"):
        import_model(data)
    assert import_model(data, {"x": (2, 3)}).graph.outputs[0].type.shape == (2, 3)


def test_initializers_that_are_also_inputs_are_constants(model):
    """IR version 3 lists every initializer among the inputs."""
    imported = import_model(
        model(ADD, {"x": [2], "z": [2]}, constants={"z": np.ones(2, np.float32)})
    )
    assert imported.input_names == ("x",)
    assert len(imported.graph.constants) == 1


def test_names_of_models_never_become_identifiers(model):
    name = "x'); DROP TABLE\n<script>../../etc"
    imported = import_model(
        model([node("Relu", [name], ["y/0:ü"], name=name)], {name: [2]}, ["y/0:ü"])
    )
    assert imported.input_names == (name,)
    assert imported.output_names == ("y/0:ü",)
    assert all(value.name.isidentifier() for value in imported.graph.values())
    assert imported.graph.nodes[0].origin == name


def test_nodes_out_of_order_are_sorted(model):
    nodes = [node("Abs", ["a"], ["y"]), node("Relu", ["x"], ["a"])]
    assert [n.op for n in import_model(model(nodes, {"x": [2]})).graph.nodes] == ["Relu", "Abs"]


def test_shape_computations_fold(model):
    """The nodes that exporters write for x.reshape(n, c, -1) become one Reshape with a constant."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axis"], ["n1"]),
        node("Slice", ["s", "one", "two"], ["c"]),
        node("Concat", ["n1", "c", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["y"]),
    ]
    constants = {
        "zero": np.array(0), "axis": np.array([0]), "one": np.array([1]), "two": np.array([2]),
        "rest": np.array([-1]),
    }  # fmt: skip
    imported = import_model(
        model(nodes, {"x": ["n", 3, "h", "w"]}, constants=constants), {"x": (2, 3, 5, 7)}
    )
    assert [n.op for n in imported.graph.nodes] == ["Reshape"]
    assert imported.graph.outputs[0].type.shape == (2, 3, 35)
    assert [c.data.tolist() for c in imported.graph.constants] == [[2, 3, -1]]


def test_what_no_output_needs_is_left_out(model):
    nodes = [node("Relu", ["x"], ["y"]), node("Exp", ["x"], ["unused"])]
    imported = import_model(model(nodes, {"x": [2]}, constants={"w": np.ones(9, np.float32)}))
    assert [n.op for n in imported.graph.nodes] == ["Relu"]
    assert not imported.graph.constants


def test_constants_are_read_only_views(model):
    nodes = [node("ConstantOfShape", ["n"], ["b"]), node("Add", ["x", "b"], ["y"])]
    data = model(nodes, {"x": [1]}, constants={"n": np.array([1 << 24])})
    (constant,) = import_model(data).graph.constants
    assert constant.data.shape == (1 << 24,)
    assert constant.data.strides == (0,)
    with pytest.raises(ValueError, match="read-only"):
        constant.data[0] = 1


def test_inspect(model):
    data = model(
        [node("Gather", ["w", "x"], ["g"]), node("Relu", ["g"], ["y"])],
        {"x": ["n", 4]},
        constants={"w": np.ones((9, 2), np.float32)},
        dtypes={"x": TensorProto.INT64},
    )
    summary = inspect(data)
    assert summary.opset == 17
    assert [d.text() for d in summary.inputs] == ["i64[n, 4]"]
    assert summary.operators == {"Gather": 1, "Relu": 1}
