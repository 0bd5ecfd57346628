"""Models on which random tests have failed: each had a wrong output or no code at all."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from judged import assert_right, judges, small_model
from onnx import helper

import farrier

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


def test_a_window_in_registers_that_is_extended_under_a_condition():
    node = helper.make_node(
        "MaxPool", ["x"], ["y"], kernel_shape=[4, 2], strides=[1, 2], pads=[1, 0, 2, 1]
    )
    x = normal(3, 1, 7, 9)
    assert_right(small_model([node], {"x": x.shape}), {"x": x})


def test_lanes_that_read_the_values_of_other_lanes():
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Shrink", ["a"], ["s"], lambd=0.5),
        helper.make_node("Pad", ["s", "pads"], ["y"], mode="edge"),
    ]
    x = normal(4, 4, 2, 4)
    pads = np.array([0, 2, 1, 1, 2, 0, 2, 2])
    assert_right(small_model(nodes, {"x": x.shape}, constants={"pads": pads}), {"x": x})


def test_equal_constants_that_are_outputs():
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["c"], ["a"])]
    nodes += [
        helper.make_node("Identity", ["d"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["s"]),
    ]
    c = np.abs(normal(3, 7))
    x = normal(5)
    model = small_model(nodes, {"x": x.shape}, ["y", "a", "b", "s"], {"c": c, "d": c})
    assert_right(model, {"x": x})


@pytest.mark.parametrize("op", ["Asinh", "Acosh", "Acos", "Asin", "Atan"])
def test_inverse_functions_everywhere(op):
    x = np.array([-1e30, -3, -1, -0.5, 0, 0.5, 1, 1.5, 3, 1e5, 1e12, 1e30, np.inf, np.nan], "f")
    node = helper.make_node(op, ["x"], ["y"])
    assert_right(small_model([node], {"x": x.shape}), {"x": x}, special=True)


def test_inverse_functions_of_broadcast_operands_compile_fast():
    nodes = [
        helper.make_node("Max", ["a", "b", "c"], ["m"]),
        helper.make_node("Acos", ["m"], ["y"]),
    ]
    shapes = {"a": (4, 1, 4, 4, 3), "b": (2, 4, 1, 3), "c": (1, 4, 3)}
    feeds = {name: normal(*shape) / 3 for name, shape in shapes.items()}
    start = time.perf_counter()
    assert_right(small_model(nodes, shapes), feeds)
    assert time.perf_counter() - start < 60  # it took forever


def test_a_row_with_nan_normalizes_to_nan():
    x = normal(3, 7)
    x[1, 2] = np.nan
    x[2] = 0
    node = helper.make_node("LpNormalization", ["x"], ["y"], axis=1)
    assert_right(small_model([node], {"x": x.shape}), {"x": x}, special=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_hardest_maximum_scans_as_an_argmax_does(axis):
    """A NaN that leads stays the maximum, which no element equals; another never becomes it."""
    x = normal(4, 13)
    x[1, 2] = x[1, 7] = x[3, 0] = np.nan
    x[0, 5] = np.inf
    node = helper.make_node("Hardmax", ["x"], ["y"], axis=axis)
    model = small_model([node], {"x": x.shape})
    y = farrier.compile(model, threads=1, verify=False).run({"x": x})["y"]
    led_by_nan = np.isnan(np.take(x, 0, axis))
    assert (y.sum(axis) == ~led_by_nan).all()
    expected = np.where(np.isnan(x), -np.inf, x).argmax(axis)
    assert (y.argmax(axis) == expected)[~led_by_nan].all()


def test_remainder_of_an_infinite_divisor():
    feeds = {"a": np.array([3, -3, 0, 5.5], "f"), "b": np.array([np.inf, -np.inf, np.inf, 2], "f")}
    node = helper.make_node("Mod", ["a", "b"], ["y"], fmod=1)
    assert_right(small_model([node], {"a": (4,), "b": (4,)}), feeds, special=True)


def test_rows_turned_into_lanes_of_a_partial_block():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["c", "r"], ["y"]),
    ]
    feeds = {"x": normal(1, 16, 12, 6), "r": normal(1, 33, 12, 6)}
    shapes = {name: array.shape for name, array in feeds.items()}
    assert_right(small_model(nodes, shapes, constants={"w": normal(33, 16, 3, 3)}), feeds)


def test_a_point_convolution_that_reads_padding_alone():
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[2, 1, 0, 0], strides=[3, 3])
    x = normal(2, 3, 1, 1)
    assert_right(small_model([node], {"x": x.shape}, constants={"w": normal(5, 3, 1, 1)}), {"x": x})


@pytest.mark.parametrize("channels", [8, 16, 33])
def test_transposed_convolution_without_overlap_or_bias(channels):
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    x = normal(1, 16, 5, 7)
    model = small_model([node], {"x": x.shape}, constants={"w": normal(16, channels, 2, 2)})
    assert_right(model, {"x": x})


def test_transposed_convolution_of_a_plain_image_whose_lanes_take_turns():
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[1, 2], group=3)
    x = normal(1, 3, 4, 17)
    model = small_model([node], {"x": x.shape}, constants={"w": normal(3, 1, 1, 2)})
    assert_right(model, {"x": x})


def test_points_of_groups_of_two_sizes_meet():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], group=4),
        helper.make_node("Conv", ["x", "v"], ["b"], group=8),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    x = normal(1, 32, 5, 5)
    weights = {"w": normal(24, 8, 1, 1), "v": normal(24, 4, 1, 1)}
    assert_right(small_model(nodes, {"x": x.shape}, constants=weights), {"x": x})


def test_points_of_groups_between_padding():
    """Padding and stride make an image of the same size of other points."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=3, pads=[1] * 4, strides=[2, 2])
    x = normal(1, 12, 3, 3)
    model = small_model([node], {"x": x.shape}, constants={"w": normal(12, 4, 1, 1)})
    assert_right(model, {"x": x})


@pytest.mark.parametrize(
    ("shape", "epsilon", "factor"),
    [((2, 3, 8), (1, 1, 1, 1), (8,)), ((3, 8), (), (1, 1, 8)), ((3, 1), (), (5,))],
)
def test_a_normalization_that_constants_broadcast(shape, epsilon, factor):
    pairs = [
        ("ReduceMean", ["x", "axes"], "m"),
        ("Sub", ["x", "m"], "d"),
        ("Mul", ["d", "d"], "q"),
        ("ReduceMean", ["q", "axes"], "v"),
        ("Add", ["v", "epsilon"], "e"),
        ("Sqrt", ["e"], "s"),
        ("Div", ["d", "s"], "n"),
        ("Mul", ["n", "factor"], "z"),
        ("Add", ["z", "factor"], "y"),
    ]
    nodes = [helper.make_node(op, inputs, [output]) for op, inputs, output in pairs]
    constants = {
        "axes": np.array([-1]),
        "epsilon": np.full(epsilon, 1e-5, np.float32),
        "factor": normal(*factor),
    }
    x = normal(*shape)
    assert_right(small_model(nodes, {"x": x.shape}, constants=constants), {"x": x})


@pytest.mark.parametrize(
    ("dtype", "size", "factors"),
    [
        (np.float16, 0.25, (300, 300)),
        (np.float16, 250, (1e-4, 1e-4)),
        (np.float32, 1e-30, (1e20, 1e30)),
    ],
)
def test_factors_whose_product_their_dtype_does_not_hold(dtype, size, factors):
    nodes = [helper.make_node("Mul", ["x", "a"], ["z"]), helper.make_node("Mul", ["z", "b"], ["y"])]
    x = (size * normal(3, 17)).astype(dtype)
    constants = {name: np.array(f, dtype) for name, f in zip("ab", factors, strict=True)}
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    assert_right(small_model(nodes, {"x": x.shape}, constants=constants, dtype=code), {"x": x})


def test_integers_to_powers_that_a_tensor_holds():
    """Through f64, 2 to the third was 7."""
    node = helper.make_node("Pow", ["x", "n"], ["y"])
    feeds = {
        "x": np.array([0, 1, -1, 2, 3, -5, 2, -1]),
        "n": np.array([64, 64, 65, 3, 4, 3, -1, -3]),
    }
    shapes = {name: array.shape for name, array in feeds.items()}
    assert_right(small_model([node], shapes, dtype=onnx.TensorProto.INT64), feeds)


@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_a_sum_of_exponentials_of_what_is_not_finite(target, special):
    node = helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"])
    x = 30 * normal(5, 37)
    x[1, 3] = special
    x[2, :2] = special, np.inf
    x[3] = -np.inf
    model = small_model([node], {"x": x.shape}, constants={"axes": np.array([1])})
    assert_right(model, {"x": x}, target=target, special=True)


@pytest.mark.parametrize(
    ("op", "shape"), [("Neg", ("n",)), ("Softmax", (5, "n")), ("Softmax", ("n", 5))]
)
def test_what_is_empty_at_its_typical_size(op, shape):
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axis"], ["z"]),
        helper.make_node(op, ["z"], ["y"]),
    ]
    constants = {"start": [-2], "end": [16], "axis": [shape.index("n")]}
    fixed = tuple(17 if size == "n" else size for size in shape)
    constants = {name: np.array(array) for name, array in constants.items()}
    model = small_model(nodes, {"x": shape}, constants=constants)
    open_shape = tuple("n:16..40" if size == "n" else size for size in shape)
    artifact = farrier.compile(model, shapes={"x": open_shape}, threads=2, verify=False)
    x = normal(*fixed)
    expected = judges(small_model(nodes, {"x": fixed}, constants=constants), {"x": x})
    np.testing.assert_allclose(artifact.run({"x": x})["y"], expected[0]["y"], rtol=1e-5)
    wide = normal(*(40 if size == "n" else size for size in shape))
    assert artifact.run({"x": wide})["y"].size == 0


@pytest.mark.parametrize("size", [33, 43])
def test_a_short_sum_of_squares_of_open_length(size):
    node = helper.make_node("ReduceL2", ["x", "axes"], ["y"], keepdims=0)
    constants = {"axes": np.array([1])}
    model = small_model([node], {"x": (1, "n", 4, 3)}, constants=constants)
    artifact = farrier.compile(
        model, target="x86-64-v2", shapes={"x": (1, "n:33..43", 4, 3)}, threads=1, verify=False
    )
    x = normal(1, size, 4, 3)
    expected = np.sqrt(np.sum(x.astype(np.float64) ** 2, axis=1))
    np.testing.assert_allclose(artifact.run({"x": x})["y"], expected, rtol=1e-5)


def test_registers_of_a_last_lane_that_may_not_be_there():
    """With 6 to 9 elements, the ninth is a vector of its own, all of which is conditional."""
    node = helper.make_node("Acos", ["x"], ["y"])
    model = small_model([node], {"x": (3, "n")})
    artifact = farrier.compile(
        model, target="x86-64-v3", shapes={"x": (3, "n:6..9")}, threads=1, verify=False
    )
    for size in range(6, 10):
        x = np.clip(normal(3, size), -1, 1)
        np.testing.assert_allclose(artifact.run({"x": x})["y"], np.arccos(x), rtol=1e-5, atol=1e-6)


def test_threads_share_what_may_be_empty_along_two_axes():
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axes"], ["z"]),
        helper.make_node("Mul", ["z", "z"], ["y"]),
    ]
    constants = {"start": [-64, -64], "end": [64, 64], "axes": [0, 1]}
    constants = {name: np.array(array) for name, array in constants.items()}
    model = small_model(nodes, {"x": ("n", "m", 40)}, constants=constants)
    artifact = farrier.compile(
        model, shapes={"x": ("n:1..200", "m:1..200", 40)}, threads=3, verify=False
    )
    for sizes in ((50, 70), (130, 5), (5, 130)):
        x = normal(*sizes, 40)
        z = x[-64:64, -64:64]
        np.testing.assert_array_equal(artifact.run({"x": x})["y"], z * z)


def test_tiles_of_a_matrix_product_that_may_be_empty():
    """The product has 10 n - 10 rows, in tiles of 10 for each of several panels."""
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axes"], ["z"]),
        helper.make_node("MatMul", ["z", "w"], ["y"]),
    ]
    w = normal(3, 33)
    constants = {"start": np.array([1]), "end": np.array([64]), "axes": np.array([0]), "w": w}
    model = small_model(nodes, {"x": ("n", 10, 3)}, constants=constants)
    for target in ("x86-64-v2", "x86-64-v3"):
        artifact = farrier.compile(
            model, target=target, shapes={"x": ("n:1..2", 10, 3)}, threads=2, verify=False
        )
        for size in (1, 2):
            x = normal(size, 10, 3)
            y = artifact.run({"x": x})["y"]
            np.testing.assert_allclose(y, x[1:] @ w, rtol=1e-5, atol=1e-5)


def test_what_has_one_element_or_none_has_an_address():
    """Values that rows keep in registers have one element at all sizes, not only at typical
    ones."""
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axis"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"], axis=1),
    ]
    constants = {"start": np.array([1]), "end": np.array([2]), "axis": np.array([1])}
    model = small_model(nodes, {"x": (5, "n", 1)}, constants=constants)
    shapes = {"x": (5, "n:1..3", 1)}
    artifact = farrier.compile(model, target="x86-64-v3", shapes=shapes, threads=1, verify=False)
    for size in (1, 2, 3):
        y = artifact.run({"x": normal(5, size, 1)})["y"]
        np.testing.assert_array_equal(y, np.ones((5, min(size - 1, 1), 1), np.float32))


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("image", "kernel", "attrs"),
    [
        ((1, 1), (1, 1), {"pads": (1, 0, 1, 0), "strides": (3, 2)}),  # padding alone
        ((3, 1), (3, 1), {"pads": (3, 0, 1, 0), "dilations": (3, 1)}),  # One line of three remains.
        ((2, 2), (2, 2), {"pads": (1, 1, 0, 0), "strides": (2, 2)}),  # one corner
        ((3, 2), (5, 3), {"pads": (1, 0, 1, 1)}),  # all, and padding
    ],
)
def test_a_point_reads_what_its_window_covers(special, image, kernel, attrs):
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attrs)
    constants = {"w": normal(7, 5, *kernel), "b": normal(7)}
    every = normal(2 * image[0] * image[1], 5, *image)
    for item, spot in enumerate(np.ndindex(2, *image)):
        every[(item, *spot)] = special
    model = small_model([node], {"x": every.shape}, constants=constants)
    assert_right(model, {"x": every}, special=True)


def test_operators_of_hundreds_of_inputs():
    names = RNG.choice(list("abc"), 300).tolist()
    nodes = [helper.make_node(op, names, [op]) for op in ("Sum", "Max", "Min", "Mean")]
    nodes += [helper.make_node("Concat", names, [f"axis{axis}"], axis=axis) for axis in (0, 1)]
    shapes = dict.fromkeys("abc", (2, 3))
    model = small_model(nodes, shapes, outputs=[n.output[0] for n in nodes])
    assert_right(model, {name: normal(*shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("shape", [(2, 5, 7, 4), (2, 5, 4)])
def test_channels_after_a_product_of_as_many_columns(shape):
    """The numbers of BatchNormalization are of the second axis, though the last is as long."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("BatchNormalization", ["m", "s", "b", "s", "s"], ["y"]),
    ]
    constants = {"w": normal(4, 5), "s": np.abs(normal(5)) + 0.5, "b": normal(5)}
    assert_right(small_model(nodes, {"x": shape}, constants=constants), {"x": normal(*shape)})
