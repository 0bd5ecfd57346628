"""Defects that random models with open dims have found: internal errors and wrong answers.

Every model is compiled without options, and run at several sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from judged import is_close, small_model
from onnx import helper
from outside import onnxruntime_outputs

import farrier

node = helper.make_node
RNG = np.random.default_rng(5)
LAST = 2**63 - 1


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def assert_right_at(model: bytes, *shapes: tuple[int, ...]) -> None:
    """Fail unless the model of one input x agrees with ONNX Runtime for x of these shapes."""
    feeds = [{"x": normal(*shape)} for shape in shapes]
    artifact = farrier.compile(model)
    for feed, expected in zip(feeds, onnxruntime_outputs(model, feeds), strict=True):
        assert expected is not None
        for name, array in artifact.run(feed).items():
            assert is_close(array, expected[name]), (name, feed["x"].shape)


def sliced(start: int, end: int, axis: int, step: int, x: str = "x", y: str = "s"):
    """A Slice of one axis, and its constants."""
    numbers = {"start": start, "end": end, "axis": axis, "step": step}
    constants = {f"{y}_{name}": np.array([number]) for name, number in numbers.items()}
    return node("Slice", [x, *constants], [y]), constants


@pytest.mark.parametrize("op", ["Softmax", "Exp", "Concat"])
@pytest.mark.parametrize(
    ("start", "end", "step"), [(-6, LAST, 3), (-2, -LAST, -3), (5, 1, -2), (-3, 1, 1)]
)
def test_slices_by_steps(op, start, end, step):
    cut, constants = sliced(start, end, 0, step)
    inputs = ["s", "s"] if op == "Concat" else ["s"]
    attrs = {} if op == "Exp" else {"axis": 0}
    model = small_model([cut, node(op, inputs, ["y"], **attrs)], {"x": ("n",)}, constants=constants)
    assert_right_at(model, (8,), (128,), (17,), (3,))


def test_a_gate_on_all_but_the_last():
    cut, constants = sliced(0, -1, 2, 1)
    nodes = [
        cut,
        node("Split", ["s", "halves"], ["k", "g"], axis=1),
        node("Sigmoid", ["g"], ["h"]),
        node("Mul", ["k", "h"], ["y"]),
    ]
    constants["halves"] = np.array([2, 2])
    model = small_model(nodes, {"x": ("b", 4, "t")}, constants=constants)
    assert_right_at(model, (2, 4, 9), (1, 4, 2), (3, 4, 130))


def test_transposed_convolutions_of_different_channels():
    nodes = [
        node("ConvTranspose", ["x", "v"], ["t"], strides=[2, 2]),
        node("ConvTranspose", ["t", "w"], ["y"], strides=[2, 2]),
    ]
    weights = {"v": normal(32, 24, 2, 2), "w": normal(24, 16, 2, 2)}
    model = small_model(nodes, {"x": (1, 32, "h", "w_")}, constants=weights)
    assert_right_at(model, (1, 32, 4, 6), (1, 32, 1, 1))


def test_rows_of_two_slices():
    first, constants = sliced(-15, 4, 0, -1)
    second, more = sliced(2, LAST, 1, 1, "s", "r")
    nodes = [first, second, node("MatMul", ["r", "w"], ["y"])]
    constants |= {**more, "w": normal(13, 8)}
    model = small_model(nodes, {"x": ("p", "q", 2, 13)}, constants=constants)
    assert_right_at(model, (33, 5, 2, 13), (20, 3, 2, 13))


def test_a_pad_up_to_a_multiple_behind_a_convolution():
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Shape", ["c"], ["shape"], start=3),
        node("Neg", ["shape"], ["negative"]),
        node("Mod", ["negative", "four"], ["missing"]),
        node("Concat", ["none", "missing"], ["pads"], axis=0),
        node("Pad", ["c", "pads"], ["y"]),
    ]
    constants = {"w": normal(8, 3, 1, 1), "four": np.array([4]), "none": np.zeros(7, np.int64)}
    model = small_model(nodes, {"x": (1, 3, "h", "w_")}, constants=constants)
    assert_right_at(model, (1, 3, 5, 10), (1, 3, 5, 8), (1, 3, 1, 1))


@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization_of_open_channels(opset):
    scale = {18: (4,), 21: ("c",)}[opset]
    inputs = {"x": (2, "c", 3)} | ({"s": scale, "b": scale} if opset == 21 else {})
    constants = {"s": normal(4), "b": normal(4)} if opset == 18 else {}
    group = node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=4)
    model = onnx.load_from_string(small_model([group], inputs, constants=constants))
    model.opset_import[0].version = opset
    artifact = farrier.compile(model, typical={"c": 8})
    for channels in (4, 8, 24):
        x = normal(2, channels, 3)
        s, b = (constants.get(name, normal(channels)) for name in "sb")
        fed = artifact.run({"x": x} if opset == 18 else {"x": x, "s": s, "b": b})
        rows = x.reshape(2, 4, -1)
        rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
        s, b = (v.repeat(channels // 4) if opset == 18 else v for v in (s, b))
        expected = rows.reshape(x.shape) * s[:, None] + b[:, None]
        np.testing.assert_allclose(fed["y"], expected, rtol=1e-4, atol=1e-5)


def test_a_part_of_a_split_that_is_empty_and_not_read():
    split = node("Split", ["x"], ["y", "rest"], axis=0, num_outputs=2)
    model = small_model([split], {"x": ("n", 5)})
    assert_right_at(model, (1, 5), (2, 5), (17, 5))


def test_threads_share_chunks_of_what_is_no_whole_vectors():
    window = {"kernel_shape": [3, 7], "pads": [2, 3, 1, 1], "strides": [2, 3]}
    nodes = [node("MaxPool", ["x"], ["p"], **window), node("Slice", ["p", *"abcd"], ["y"])]
    bounds = ((2, 30, 1), (-LAST, 33, 0), (0, 1, 2), (-1, 1, -1))
    constants = {name: np.array(bound) for name, bound in zip("abcd", bounds, strict=True)}
    model = small_model(nodes, {"x": ("b", "c", "h", "w")}, constants=constants)
    assert_right_at(model, (3, 33, 2, 8), (2, 33, 17, 128), (5, 31, 9, 131))


def test_a_slice_that_is_empty_at_most_sizes():
    cut, constants = sliced(-3, 2, 2, 1)
    constants["two"] = np.array(2)
    model = small_model(
        [cut, node("Trilu", ["s", "two"], ["y"])], {"x": ("b", 3, "t")}, constants=constants
    )
    assert_right_at(model, (2, 3, 4), (1, 3, 3), (1, 3, 128))


@pytest.mark.parametrize("rows", ["n", 0])
def test_a_concat_of_empty_tensors_is_as_long_as_they_are(rows):
    """Extents along the axis add up, though no tensor has an element."""
    constants = {"c": np.zeros((0, 3), np.float32)}
    model = small_model(
        [node("Concat", ["c", "x", "c"], ["y"], axis=1)], {"x": (rows, 2)}, constants=constants
    )
    artifact = farrier.compile(model)
    assert artifact.run({"x": normal(0, 2)})["y"].shape == (0, 8)


def test_parts_of_a_split_beyond_the_end_are_empty():
    nodes = [node("Split", ["x"], ["a", "b", "c", "d"], axis=0, num_outputs=4)]
    nodes.append(node("Concat", ["d", "c", "b", "a"], ["y"], axis=0))
    assert_right_at(small_model(nodes, {"x": (9,)}), (9,))


def test_a_convolution_reads_the_padding_of_an_empty_image():
    """Its producer has no elements to write, but a halo."""
    constants = {"w": normal(3, 33, 1, 4)}
    nodes = [node("Relu", ["x"], ["r"]), node("Conv", ["r", "w"], ["y"], pads=[0, 3, 2, 3])]
    model = small_model(nodes, {"x": (1, 33, 11, "w")}, constants=constants)
    assert_right_at(model, (1, 33, 11, 8), (1, 33, 11, 0))


def test_extents_of_slices_multiply_to_a_size():
    shape = ("b", "h", "w")
    numbers = {"starts": [0, 4, 8], "ends": [2, 6, 9], "axes": [0, 1, 2]}
    constants = {name: np.array(values) for name, values in numbers.items()}
    nodes = [node("Slice", ["x", *constants], ["s"]), node("Flatten", ["s"], ["y"], axis=0)]
    assert_right_at(small_model(nodes, {"x": shape}, constants=constants), (3, 9, 16), (1, 5, 9))


@pytest.mark.parametrize(
    ("op", "weights", "shape"),
    [("Conv", (2, 0, 4), ("n", "c", "w")), ("ConvTranspose", (0, 3, 4), (2, 0, 7))],
)
def test_groups_of_no_channels(op, weights, shape):
    convolution = node(op, ["x", "k"], ["y"], group=2)
    model = small_model([convolution], {"x": shape}, constants={"k": normal(*weights)})
    assert_right_at(model, (2, 0, 7))


def test_a_scatter_asks_for_room_along_the_other_axes():
    constants = {
        "i": np.arange(3)[None].repeat(4, 0) % 3,
        "u": normal(4, 3),
    }
    scatter = node("ScatterElements", ["x", "i", "u"], ["y"], axis=1, reduction="add")
    model = small_model([scatter], {"x": ("n", "m")}, constants=constants)
    assert_right_at(model, (128, 128), (4, 3), (5, 7))
    with pytest.raises(farrier.FarrierError, match="ScatterElements"):
        farrier.compile(model).run({"x": normal(3, 7)})


def test_a_pool_of_an_open_image_that_is_empty_at_its_typical_size():
    """Split leaves the second half no image, where there is one."""
    constants = {"repeats": np.array([3, 2, 3, 2])}
    nodes = [
        node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2),
        node("Softmax", ["b"], ["s"], axis=-1),
        node("Tile", ["s", "repeats"], ["t"]),
        node("GlobalMaxPool", ["t"], ["y"]),
    ]
    model = small_model(nodes, {"x": ("n", "c", "h", "w")}, constants=constants)
    assert_right_at(model, (2, 16, 1, 1), (4, 3, 5, 2))
