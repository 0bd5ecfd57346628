"""Axes of no elements: what ONNX Runtime returns for them, on one artifact for every size."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import farrier
from farrier.errors import InputMismatchError

node = helper.make_node
F32, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def graph(nodes, inputs, constants, outputs):
    """A model with open dims; integers are the inputs and outputs whose names begin with i."""

    def info(name, shape=None):
        return helper.make_tensor_value_info(name, I64 if name[0] == "i" else F32, shape)

    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, shape) for name, shape in inputs.items()],
        [info(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    return model.SerializeToString()


CONSTANTS = {
    "axis": [1],
    "ones": [1],
    "minus": [-1],
    "lowest": [-(2**62)],
    "pads": [0, 1, 0, 0, 1, 0],
    "copied": [0, 0, 2, 4],
    "whole": [0, -1],
    "zero": 0,
    "share": np.array([0.5], np.float32),
    "table": f32(5, 8),
    "gain": f32(8),
    "filter": f32(3, 8, 3),
    "in": f32(1, 16, 8),
    "own": f32(1, 16, 4),
}
# Of x[b, n, 8], and other lengths along n: results by name.
ALONG = [
    *(node(f"Reduce{kind}", ["x", "axis"], [kind]) for kind in
      ("Sum", "Mean", "Max", "Min", "Prod", "L2", "LogSumExp")),
    node("Softmax", ["x"], ["softmax"], axis=1),
    node("CumSum", ["x", "axis_0"], ["sums"]),
    node("Slice", ["x", "ones", "minus", "axis"], ["cut"]),
    node("Slice", ["x", "minus", "lowest", "axis", "minus"], ["reversed"]),
    node("Pad", ["x", "pads"], ["padded"]),
    node("Concat", ["x", "z"], ["joined"], axis=1),
    node("Reshape", ["x", "copied"], ["heads_"]),
    node("Transpose", ["heads_"], ["heads"], perm=[0, 2, 1, 3]),
    node("LayerNormalization", ["x", "gain"], ["normal"]),
    node("MatMul", ["x", "w8"], ["rows"]),
    node("NonZero", ["x"], ["i_nonzero"]),
    node("ArgMax", ["x"], ["i_best"], axis=2),
    node("Split", ["x"], ["half", "rest"], axis=1, num_outputs=2),
    node("Transpose", ["x"], ["xt"], perm=[0, 2, 1]),
    node("MatMul", ["xt", "x"], ["products"]),
    node("Einsum", ["x", "x"], ["squares"], equation="bni,bnj->bij"),
    # An attention over z's keys.
    node("Transpose", ["z"], ["zt"], perm=[0, 2, 1]),
    node("MatMul", ["x", "zt"], ["scores"]),
    node("Softmax", ["scores"], ["weights"], axis=-1),
    node("MatMul", ["weights", "z"], ["context"]),
]  # fmt: skip
INNER = {"heads_", "xt", "zt", "scores", "weights"}


@pytest.fixture(scope="module")
def along():
    constants = CONSTANTS | {"axis_0": 1, "w8": f32(8, 5)}
    outputs = [name for node in ALONG for name in node.output if name not in INNER]
    return graph(ALONG, {"x": ["b", "n", 8], "z": ["b", "m", 8]}, constants, outputs)


def assert_as_onnxruntime(artifact, session, feed):
    names = [output.name for output in session.get_outputs()]
    results = artifact.run(feed)
    for name, wanted in zip(names, session.run(None, feed), strict=True):
        assert results[name].shape == wanted.shape, name
        np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_along_an_axis_of_none(along):
    artifact = farrier.compile(along, threads=2, verify=False)
    assert not artifact.report["preconditions"]
    session = onnxruntime.InferenceSession(along)
    for b, n, m in ((2, 0, 3), (0, 3, 2), (2, 3, 0), (1, 0, 0), (0, 0, 0), (2, 5, 7), (1, 1, 1)):
        assert_as_onnxruntime(artifact, session, {"x": f32(b, n, 8), "z": f32(b, m, 8)})


def test_products_over_none():
    nodes = [
        node("MatMul", ["x", "z"], ["plain"]),
        node("Add", ["plain", "c"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
        node("Gemm", ["x", "z", "c"], ["gemm"]),
    ]
    data = graph(nodes, {"x": ["m", "k"], "z": ["k", 7]}, {"c": f32(7)}, ["plain", "y", "gemm"])
    artifact, session = farrier.compile(data, verify=False), onnxruntime.InferenceSession(data)
    for m, k in ((3, 0), (0, 5), (0, 0), (3, 5)):
        assert_as_onnxruntime(artifact, session, {"x": f32(m, k), "z": f32(k, 7)})


def test_a_batch_of_none():
    nodes = [
        node("Conv", ["x", "filter"], ["conv"], pads=[1, 1]),
        node("MaxPool", ["conv"], ["pool"], kernel_shape=[2], strides=[2]),
        node("GlobalAveragePool", ["pool"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Resize", ["x", "", "double"], ["larger"], mode="nearest"),
    ]
    constants = {"filter": CONSTANTS["filter"], "double": np.array([1, 1, 2], np.float32)}
    data = graph(nodes, {"x": ["b", 8, "n"]}, constants, ["flat", "larger"])
    artifact, session = farrier.compile(data, verify=False), onnxruntime.InferenceSession(data)
    for b in (0, 2):
        assert_as_onnxruntime(artifact, session, {"x": f32(b, 8, 6)})
    with pytest.raises(InputMismatchError, match=r"n is 2 to 1048576: node 'pool' \(MaxPool\)"):
        artifact.run({"x": f32(2, 8, 0)})


def test_a_recurrence_of_no_steps_or_of_no_batch():
    """ONNX Runtime 1.32 ends the process for a batch of none; the shapes are as specified."""
    data = graph(
        [node("LSTM", ["x", "in", "own"], ["y", "h"], hidden_size=4)],
        {"x": ["t", "b", 8]}, {name: CONSTANTS[name] for name in ("in", "own")}, ["y", "h"],
    )  # fmt: skip
    artifact, session = farrier.compile(data, verify=False), onnxruntime.InferenceSession(data)
    for steps in (0, 3):
        assert_as_onnxruntime(artifact, session, {"x": f32(steps, 2, 8)})
    results = artifact.run({"x": f32(3, 0, 8)})
    assert (results["y"].shape, results["h"].shape) == ((3, 1, 0, 4), (1, 0, 4))


TAKEN = [
    node("Gather", ["x", "i"], ["gathered"]),
    node("GatherND", ["x", "i_rows"], ["rows"]),
    node("Unsqueeze", ["i", "one"], ["i_rows"]),
    node("ScatterND", ["x", "i_rows", "gathered"], ["scattered"]),
]


@pytest.fixture(scope="module")
def taken():
    nodes = [TAKEN[0], TAKEN[2], TAKEN[1], TAKEN[3]]
    data = graph(
        nodes, {"x": ["n", 3], "i": ["m"]}, {"one": [1]}, ["gathered", "rows", "scattered"]
    )
    return farrier.compile(data), onnxruntime.InferenceSession(data)


@pytest.mark.parametrize(("n", "m"), [(5, 3), (5, 0), (0, 0)])
def test_elements_that_are_taken(taken, n, m):
    feed = {"x": f32(n, 3), "i": RNG.permutation(np.arange(n))[:m]}
    assert_as_onnxruntime(*taken, feed)


def test_an_element_of_none_is_an_error_of_the_call(taken):
    with pytest.raises(InputMismatchError, match=r"'gathered' .* size 0 .* must be 1"):
        taken[0].run({"x": f32(0, 3), "i": np.array([0])})


@pytest.mark.parametrize(
    "selection",
    [
        node("Gather", ["x", "zero"], ["y"]),
        node("ArgMax", ["x"], ["y"], axis=0, keepdims=0),
    ],
)
def test_an_axis_of_which_one_is_needed(selection):
    """It is 1 at least, whichever it is: no question of a size."""
    output = "i" if selection.op_type == "ArgMax" else "y"
    selection.output[0] = output
    data = graph([selection], {"x": ["n"]}, {"zero": 0}, [output])
    artifact, session = farrier.compile(data, verify=False), onnxruntime.InferenceSession(data)
    assert artifact.manifest.dims[0].low == 1
    assert_as_onnxruntime(artifact, session, {"x": f32(9)})
    with pytest.raises(InputMismatchError, match=f"n is 1 to 65536: node '{output}'"):
        artifact.run({"x": f32(0)})


def test_boxes_of_an_open_count():
    """The counts of batches, classes and boxes include 0."""
    nodes = [node("NonMaxSuppression", ["boxes", "scores", "i", "share"], ["i_y"])]
    inputs = {"boxes": ["b", "n", 4], "scores": ["b", "c", "n"], "i": [1]}
    data = graph(nodes, inputs, {"share": CONSTANTS["share"]}, ["i_y"])
    artifact, session = farrier.compile(data, verify=False), onnxruntime.InferenceSession(data)
    for b, c, n in ((2, 3, 17), (1, 1, 0), (0, 2, 5), (1, 0, 5), (3, 2, 1)):
        low = RNG.random((b, n, 2))
        boxes = np.concatenate([low, low + 0.3], 2).astype(np.float32)
        feed = {"boxes": boxes, "scores": f32(b, c, n), "i": np.array([4])}
        assert_as_onnxruntime(artifact, session, feed)
