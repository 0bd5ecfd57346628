"""Operators that the importer takes apart, with open dims: imported once, right for every size."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import farrier
from farrier.errors import InputMismatchError, InvalidModelError
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph
from tests.ir.bind import at_sizes

node = helper.make_node
RNG = np.random.default_rng(20261122)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def number(value):
    return np.array(value, np.int64)


# The opset, the node, the declared shapes, the constants, and the sizes of the runs.
CASES = {
    "STFT": (
        17,
        node("STFT", ["x", "s", "w", "n"], ["y"]),
        {"x": ("b:1..3", "l:13..90", 1)},
        {"s": number(5), "w": f32(13), "n": number(13)},
        [{"b": 1, "l": 13}, {"b": 3, "l": 90}, {"b": 2, "l": 57}],
    ),
    "STFT-complex": (
        17,
        node("STFT", ["x", "s", "", "n"], ["y"], onesided=0),
        {"x": ("b:1..3", "l:13..90", 2)},
        {"s": number(5), "n": number(13)},
        [{"b": 3, "l": 31}],
    ),
    "STFT-window": (
        17,
        node("STFT", ["x", "s", "w"], ["y"]),
        {"x": ("b:1..3", "l:13..90", 1), "w": (13,)},
        {"s": number(5)},
        [{"b": 2, "l": 32}],
    ),
    "DFT": (
        20,
        node("DFT", ["x", "n", "a"], ["y"], onesided=1),
        {"x": ("b:1..3", 7, "l:1..9", 1)},
        {"n": number(9), "a": number(1)},
        [{"b": 1, "l": 1}, {"b": 3, "l": 9}],
    ),
    "Attention": (
        23,
        node("Attention", ["q", "k", "v"], ["y"], is_causal=1, q_num_heads=4, kv_num_heads=2),
        {"q": ("b:1..3", "s:1..9", 32), "k": ("b", "t:1..20", 16), "v": ("b", "t", 16)},
        {},
        [{"b": 1, "s": 1, "t": 1}, {"b": 3, "s": 9, "t": 9}, {"b": 2, "s": 5, "t": 13}],
    ),
    "RotaryEmbedding": (
        23,
        node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"]),
        {"x": ("b:1..3", 4, "t:1..9", 8), "p": ("b", "t")},
        {"c": f32(20, 4), "s": f32(20, 4)},
        [{"b": 1, "t": 1}, {"b": 3, "t": 9}],
    ),
    "cubic": (
        19,
        node("Resize", ["x", "", "s"], ["y"], mode="cubic", exclude_outside=1,
             coordinate_transformation_mode="half_pixel_symmetric"),
        {"x": ("b:1..3", 2, "h:5..40", "w:5..40")},
        {"s": np.array([1, 1, 1.7, 0.6], np.float32)},
        [{"b": 1, "h": 5, "w": 5}, {"b": 3, "h": 11, "w": 8}],
    ),
    "linear": (
        19,
        node("Resize", ["x", "", "s"], ["y"], mode="linear",
             coordinate_transformation_mode="pytorch_half_pixel"),
        {"x": (1, 2, "h:2..40", "w:2..40")},
        {"s": np.array([1, 1, 0.5, 2], np.float32)},
        [{"h": 2, "w": 2}, {"h": 3, "w": 9}, {"h": 10, "w": 7}],
    ),
    "antialias": (
        19,
        node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1),
        {"x": ("b:1..3", "c:1..4", 9, 11)},
        {"s": np.array([1, 1, 0.5, 0.7], np.float32)},
        [{"b": 3, "c": 2}],
    ),
    "Col2Im": (
        18,
        node("Col2Im", ["x", "i", "b"], ["y"], pads=[1, 0, 0, 1], strides=[2, 1]),
        {"x": ("n:1..3", 3 * 6, 3 * 5)},
        {"i": np.array([5, 6]), "b": np.array([2, 3])},
        [{"n": 2}],
    ),
    "LinearRegressor": (
        17,
        node("LinearRegressor", ["x"], ["y"], targets=2, coefficients=[0.5, 2.0, 1.5, 0.25, 3.0, 1],
             domain="ai.onnx.ml"),
        {"x": ("n:1..9", 3)},
        {},
        [{"n": 1}, {"n": 9}],
    ),
    "MatMulInteger": (
        17,
        node("MatMulInteger", ["u", "v8", "zu", "zv"], ["y"]),
        {"u": ("n:1..3", 2, "t:1..9", "t"), "v8": ("n", 2, "t", 5)},
        {"zu": np.array(3, np.uint8), "zv": np.array(130, np.uint8)},
        [{"n": 1, "t": 1}, {"n": 3, "t": 9}],
    ),
    "com.microsoft Attention": (
        17,
        node("Attention", ["x", "w", "c", "", "past"], ["y", "z"], num_heads=3, unidirectional=1,
             domain="com.microsoft"),
        {"x": ("b:1..3", "s:1..9", 24), "past": (2, "b", 3, "p:1..9", 8)},
        {"w": f32(24, 72), "c": f32(72)},
        [{"b": 3, "s": 9, "p": 4}, {"b": 2, "s": 1, "p": 5}],
    ),
    "com.microsoft MultiHeadAttention": (
        17,
        node("MultiHeadAttention", ["x", "k", "v", "c", "i"], ["y"], num_heads=3,
             domain="com.microsoft"),
        {"x": ("b:1..3", "s:1..9", 24), "k": ("b", "t:1..9", 24), "v": ("b", "t", 24),
         "i": ("b",)},
        {"c": f32(72)},
        [{"b": 1, "s": 1, "t": 1}, {"b": 3, "s": 9, "t": 4}],
    ),
    "com.microsoft RotaryEmbedding": (
        17,
        node("RotaryEmbedding", ["x", "p", "c", "d"], ["y"], num_heads=3, domain="com.microsoft"),
        {"x": ("b:1..3", "s:1..9", 24), "p": (1,)},
        {"c": f32(30, 4), "d": f32(30, 4)},
        [{"b": 1, "s": 1}, {"b": 3, "s": 9}],
    ),
    "com.microsoft GroupQueryAttention": (
        17,
        node("GroupQueryAttention", ["x", "k", "v", "pk", "pv", "l", "n", "c", "d"],
             ["y", "z", "v1"], num_heads=4, kv_num_heads=2, do_rotary=1, domain="com.microsoft"),
        {"x": (1, "s:1..9", 64), "k": (1, "s", 32), "v": (1, "s", 32),
         "pk": (1, 2, "t:1..9", 16), "pv": (1, 2, "t", 16)},
        {"c": f32(30, 8), "d": f32(30, 8), "l": np.array([8], np.int32),
         "n": np.array(9, np.int32)},
        [{"s": 1, "t": 8}],
    ),
}  # fmt: skip
INTEGERS = {  # The types and exclusive bounds of integer inputs.
    "p": (np.int64, 20),
    "i": (np.int32, 2),
    "u": (np.uint8, 256),
    "v8": (np.uint8, 256),
}
DOMAINS = {"com.microsoft": 1, "ai.onnx.ml": 3}


@pytest.mark.parametrize("name", CASES)
def test_taken_apart(model, name):
    opset, node, shapes, constants, runs = CASES[name]
    kinds = {n: helper.np_dtype_to_tensor_dtype(np.dtype(t)) for n, (t, _) in INTEGERS.items()}
    names = {n: [str(d).split(":")[0] for d in dims] for n, dims in shapes.items()}
    declared = {n: [int(d) if d.isdigit() else d for d in dims] for n, dims in names.items()}
    data = model([node], declared, node.output, constants=constants, opset=opset, dtypes=kinds)
    proto = onnx.load_from_string(data)
    proto.opset_import.extend(helper.make_opsetid(d, v) for d, v in DOMAINS.items())
    data = proto.SerializeToString()
    imported = import_model(data, shapes)
    session = onnxruntime.InferenceSession(data)
    for sizes in runs:
        inputs = {}
        for key, dims in declared.items():
            shape = [sizes.get(d, d) for d in dims]
            inputs[key] = f32(*shape)
            if key in INTEGERS:
                kind, bound = INTEGERS[key]
                inputs[key] = RNG.integers(0, bound, shape).astype(kind)
        graph = at_sizes(imported.graph, {dim.symbol: sizes[dim.name] for dim in imported.dims})
        feeds = zip(graph.inputs, imported.input_names, strict=True)
        results = run_graph(graph, {v.name: inputs[n] for v, n in feeds}).values()
        for got, want in zip(results, session.run(None, inputs), strict=True):
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            scale = float(np.abs(want).max())
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)


def test_a_size_that_must_be_a_number_is_the_typical_one(model):
    resize = node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1)
    data = model([resize], {"x": [1, "n", 1]}, constants={"sizes": np.array([1, 4, 1])}, opset=18)
    imported = import_model(data, {"x": (1, "n:1..9", 1)})
    assert imported.dims == ()
    assert imported.graph.inputs[0].type.shape == (1, 9, 1)
    (taken,) = imported.preconditions
    assert str(taken).startswith(
        "n is 9: node 'y' (Resize) asks whether n, which must be a number,"
    )


def test_one_artifact_for_a_sum_of_dims():
    """A decoder whose mask covers past and new positions, as its exporter declares it."""
    nodes = [node("Concat", ["p", "x"], ["c"], axis=1), node("Mul", ["c", "m"], ["y"])]
    shapes = {"x": ["b", "seq"], "m": ["b", "past_seq + seq"], "p": ["b", "past_seq"]}
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    bounds = {"x": ("b:1..3", "seq:1..5"), "p": ("b", "past_seq:0..30")}
    session = farrier.compile(model, shapes=bounds).session()
    for b, seq, past in ((1, 1, 0), (3, 5, 30), (2, 3, 7)):
        x, p, m = f32(b, seq), f32(b, past), f32(b, past + seq)
        y = session.run({"x": x, "m": m, "p": p})["y"]
        np.testing.assert_array_equal(y, np.concatenate([p, x], axis=1) * m)
    with pytest.raises(InputMismatchError, match=r"m has 9 at axis 1, .* make it 10"):
        session.run({"x": f32(2, 3), "p": f32(2, 7), "m": f32(2, 9)})


@pytest.mark.parametrize(
    ("op", "parameters"), [("BatchNormalization", 4), ("InstanceNormalization", 2)]
)
def test_channels_that_parameters_decide_are_those(model, op, parameters):
    names = [f"p{i}" for i in range(parameters)]
    norm = node(op, ["x", *names], ["y"])
    constants = {name: np.ones(3, np.float32) for name in names}
    proto = model([norm], {"x": [2, "c", 5]}, constants=constants)
    imported = import_model(proto, {"x": (2, "c:1..9", 5)})
    assert imported.graph.inputs[0].type.shape == (2, 3, 5)
    assert [taken.needs for taken in imported.preconditions] == ["c is 3"]
    with pytest.raises(InvalidModelError, match="input 1 has shape"):
        import_model(proto, {"x": (2, "c:4..9", 5)})
    with pytest.raises(InvalidModelError, match="input 1 has shape") as caught:
        import_model(proto, {"x": (2, "c:1..9", 5)}, typical={"c": 4})
    assert "--typical" in caught.value.hint


def test_sizes_divided_towards_zero():
    """Quotients and remainders of sizes, of both signs, as Div and Mod of ONNX have them."""
    divisors = (-11, -3, 2, 5)
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Neg", ["s"], ["t"]),
        *(
            node(op, [size, f"d{i}"], [f"{op}{size}{i}"], **attrs)
            for i in range(len(divisors))
            for size in ("s", "t")
            for op, attrs in (("Div", {}), ("Mod", {"fmod": 1}))
        ),
    ]
    results = [result for each in nodes[2:] for result in each.output]
    nodes.append(node("Concat", results, ["y"], axis=0))
    graph = helper.make_graph(
        nodes,
        "sizes",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)],
        [onnx.numpy_helper.from_array(np.array([d]), f"d{i}") for i, d in enumerate(divisors)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data)
    imported = import_model(data)
    (size,) = imported.dims
    for n in (1, 2, 7, 12):
        graph = at_sizes(imported.graph, {size.symbol: n})
        (actual,) = run_graph(graph, {graph.inputs[0].name: f32(n)}).values()
        np.testing.assert_array_equal(actual, session.run(None, {"x": f32(n)})[0])


def test_a_declared_extent_of_0_is_none_that_is_open():
    """Tensors without elements are computed like any others."""
    nodes = [
        node("Concat", ["x", "w"], ["c"], axis=1),
        node("Transpose", ["x"], ["t"]),
        node("MatMul", ["x", "t"], ["m"]),
        node("Resize", ["w4", "", "scales"], ["r"]),
    ]
    float32 = onnx.TensorProto.FLOAT
    shapes = {"x": [4, 0], "w": [4, "n"], "w4": [1, 1, 4, 5]}
    graph = helper.make_graph(
        nodes,
        "empty",
        [helper.make_tensor_value_info(name, float32, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, float32, None) for name in "cmr"],
        [onnx.numpy_helper.from_array(np.float32([1, 1, 0.1, 1]), "scales")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    inputs = {"x": f32(4, 0), "w": f32(4, 3), "w4": f32(1, 1, 4, 5)}
    artifact = farrier.compile(model.SerializeToString(), threads=1)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for actual, wanted in zip(artifact.run(inputs).values(), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
