"""Models with open dims: one artifact computes, at any size in range, what the model means."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import InputMismatchError
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

node = helper.make_node


def write(nodes, inputs, constants):
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in inputs.items()
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        infos,
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def image_model():
    """Strides, a skip that is resized to what it meets, and a gate: sizes of three resolutions."""
    rng = np.random.default_rng(0)
    constants = {
        "w0": rng.standard_normal((16, 3, 3, 3), np.float32) / 5,
        "w1": rng.standard_normal((24, 16, 3, 3), np.float32) / 12,
        "w2": rng.standard_normal((24, 24, 1, 1), np.float32) / 5,
        "w3": rng.standard_normal((16, 24, 1, 1), np.float32) / 5,
        "two": np.array([2]), "four": np.array([4]), "front": np.array([1, 16]), "b": np.array([0]),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w0"], ["a"], strides=[2, 2], auto_pad="SAME_UPPER"),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w1"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Conv", ["p", "w2"], ["q"]),
        node("HardSigmoid", ["q"], ["s"]),
        node("Mul", ["c", "s"], ["g"]),
        node("Conv", ["g", "w3"], ["d"]),
        node("Shape", ["r"], ["shape"]),
        node("Slice", ["shape", "two", "four", "b"], ["size"]),
        node("Concat", ["front", "size"], ["sizes"], axis=0),
        node("Resize", ["d", "", "", "sizes"], ["u"], mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Concat", ["u", "r"], ["y"], axis=1),
    ]  # fmt: skip
    return write(nodes, {"x": [1, 3, "h", "w"]}, constants)


def attention_model():
    """Heads by Reshape with sizes out of Shape, a causal mask out of Range, an addend of a size."""
    rng = np.random.default_rng(1)
    constants = {
        "wq": rng.standard_normal((32, 32), np.float32) / 6,
        "wk": rng.standard_normal((32, 32), np.float32) / 6,
        "wv": rng.standard_normal((32, 32), np.float32) / 6,
        "scale": np.ones(32, np.float32), "zero": np.array(0), "one": np.array(1),
        "heads": np.array([0, -1, 4, 8]), "low": np.array(-1e9, np.float32),
        "free": np.array(0.0, np.float32), "axis0": np.array([0]), "axis1": np.array([1]),
        "minus": np.array([-1]),
    }  # fmt: skip
    nodes = [node("LayerNormalization", ["x", "scale"], ["n"], axis=-1)]
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["n", f"w{name}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=perm),
        ]
    nodes += [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Range", ["zero", "length", "one"], ["at"]),
        node("Unsqueeze", ["at", "axis0"], ["columns"]),
        node("Unsqueeze", ["at", "axis1"], ["rows"]),
        node("Greater", ["columns", "rows"], ["later"]),
        node("Where", ["later", "low", "free"], ["mask"]),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "shape"], ["z"]),
        node("Add", ["x", "z"], ["sum"]),
        node("Cast", ["length"], ["count"], to=TensorProto.FLOAT),
        node("Div", ["sum", "count"], ["y"]),
    ]
    return write(nodes, {"x": ["batch", "tokens", 32]}, constants)


def padded_model():
    """An image filled up to a multiple of 8, as segmenters ask for, and filtered."""
    rng = np.random.default_rng(2)
    constants = {
        "w0": rng.standard_normal((16, 3, 3, 3), np.float32) / 5,
        "w1": rng.standard_normal((8, 16, 3, 3), np.float32) / 12,
        "two": np.array([2]), "four": np.array([4]), "b": np.array([0]), "eight": np.array([8]),
        "front": np.zeros(6, np.int64),
    }  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "two", "four", "b"], ["size"]),
        node("Mod", ["size", "eight"], ["over"]),
        node("Sub", ["eight", "over"], ["rest"]),
        node("Mod", ["rest", "eight"], ["missing"]),
        node("Concat", ["front", "missing"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
        node("Conv", ["padded", "w0"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "w1"], ["y"], strides=[2, 2]),
    ]
    return write(nodes, {"x": [1, 3, "h", "w"]}, constants)


def same_model():
    """A Pad before a convolution whose own pads its open sizes decide."""
    weights = np.random.default_rng(3).standard_normal((16, 3, 3, 3), np.float32) / 5
    constants = {"w": weights, "pads": np.array([0, 0, 1, 2, 0, 0, 3, 0])}
    nodes = [
        node("Pad", ["x", "pads"], ["padded"]),
        node("Conv", ["padded", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2]),
    ]
    return write(nodes, {"x": [1, 3, "h", "w"]}, constants)


def grid_model():
    """Places of cells, as detectors make them: a size becomes a float, and a range up to it."""
    constants = {"zero": np.float32(0), "one": np.float32(1), "half": np.float32(0.5),
                 "minus": np.array(-1), "front": np.array([0])}  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "minus"], ["width"], axis=0),
        node("Cast", ["width"], ["limit"], to=TensorProto.FLOAT),
        node("Range", ["zero", "limit", "one"], ["cells"]),
        node("Add", ["cells", "half"], ["centres"]),
        node("Unsqueeze", ["centres", "front"], ["row"]),
        node("Mul", ["x", "row"], ["y"]),
    ]
    return write(nodes, {"x": ["h", "w"]}, constants)


def exact(model, x):
    graph = import_model(model, {"x": x.shape}).graph
    (result,) = run_graph(graph, {graph.inputs[0].name: x}, wide=True).values()
    return result


@pytest.mark.parametrize(
    ("make", "shape", "sizes"),
    [
        (image_model, (1, 3, "h:5..90", "w:5..90"), [(1, 3, 90, 90), (1, 3, 5, 8), (1, 3, 33, 71)]),
        (image_model, (1, 3, "h:8..96:8", 40), [(1, 3, 96, 40), (1, 3, 8, 40), (1, 3, 56, 40)]),
        (padded_model, (1, 3, "h:1..40", "w:1..40"), [(1, 3, 40, 17), (1, 3, 1, 8), (1, 3, 33, 1)]),
        (same_model, (1, 3, "h:1..40", "w:1..40"), [(1, 3, 40, 17), (1, 3, 1, 8), (1, 3, 33, 1)]),
        (grid_model, ("h:1..9", "w:1..70"), [(9, 70), (1, 1), (3, 37)]),
        (attention_model, ("batch:1..4", "?:1..70", 32), [(4, 70, 32), (1, 1, 32), (2, 37, 32)]),
    ],
)
def test_one_artifact_for_every_size(make, shape, sizes):
    model = make()
    artifact = farrier.compile(model, shapes={"x": shape})
    session = artifact.session(2)
    rng = np.random.default_rng(2)
    for sizes_now in (*sizes, sizes[0]):
        x = rng.standard_normal(sizes_now, np.float32)
        (result,) = session.run({"x": x}).values()
        wanted = exact(model, x)
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_sizes_out_of_range_are_named():
    artifact = farrier.compile(
        attention_model(), shapes={"x": ("batch:1..4", "tokens:16..64:16", 32)}, verify=False
    )
    for sizes_now, words in (((5, 16, 32), "batch is 1"), ((1, 40, 32), "tokens is 16")):
        with pytest.raises(InputMismatchError, match=words):
            artifact.run({"x": np.zeros(sizes_now, np.float32)})
