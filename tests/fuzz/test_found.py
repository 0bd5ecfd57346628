"""What random models have found: each was a wrong answer or no code at all."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from judged import assert_right, small_model
from onnx import helper

RNG = np.random.default_rng(4)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", ["host", "x86-64-v3", "x86-64-v2"])
def test_transposed_convolution_whose_taps_miss_the_stride(target):
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 3], pads=[1, 0, 1, 1])
    x = normal(1, 4, 4, 5)
    model = small_model([node], {"x": x.shape}, constants={"w": normal(4, 8, 3, 2)})
    assert_right(model, {"x": x}, target=target)


def test_tails_of_several_widths_share_no_loads():
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[0, 1, 1, 1])
    x = normal(1, 4, 1, 3)
    model = small_model([node], {"x": x.shape}, constants={"w": normal(1, 4, 2, 3)})
    assert_right(model, {"x": x})


@pytest.mark.parametrize("shape", [(3, 8, 34, 2), (1, 5, 5, 4), (2, 15, 11, 16), (1, 24, 15, 2)])
@pytest.mark.parametrize("target", ["host", "x86-64-v3", "x86-64-v2"])
def test_axes_walked_as_one(shape, target):
    node = helper.make_node("Mul", ["x", "x"], ["y"])
    x = normal(*shape)
    assert_right(small_model([node], {"x": shape}), {"x": x}, target=target, threads=2)


@pytest.mark.parametrize(("shape", "axis"), [((3, 3, 3, 5), 2), ((1, 2, 3, 4), 1), ((2, 3), 0)])
def test_rows_beside_each_other_that_fit_one_vector(shape, axis):
    node = helper.make_node("Softmax", ["x"], ["y"], axis=axis)
    assert_right(small_model([node], {"x": shape}), {"x": normal(*shape)})


def test_a_sum_of_everything_is_a_scalar():
    node = helper.make_node("ReduceL2", ["x"], ["y"], keepdims=0)
    x = normal(3, 7)
    assert_right(small_model([node], {"x": x.shape}), {"x": x})


@pytest.mark.parametrize("op", ["Or", "And", "Xor"])
def test_operators_named_like_words_of_python(op):
    nodes = [helper.make_node(op, ["a", "b"], ["c"]), helper.make_node("Not", ["c"], ["y"])]
    shapes = {"a": (3, 5), "b": (3, 5)}
    model = small_model(nodes, shapes, outputs=["y", "c"], dtype=onnx.TensorProto.BOOL)
    assert_right(model, {name: RNG.random(shape) < 0.5 for name, shape in shapes.items()})


def test_a_value_read_twice_in_a_vector():
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Neg", ["e"], ["n"]),
        helper.make_node("Greater", ["e", "n"], ["y"]),
    ]
    assert_right(small_model(nodes, {"x": (11,)}), {"x": normal(11)})
