"""Operands that decide shapes and are known only when the model runs: bounds of slices, targets of
reshapes, amounts of padding, how many are the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

import farrier
from farrier.errors import InputMismatchError
from tests.control_flow.test_models import assert_as_onnxruntime, info, model, node, normal

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def ints(*values):
    return np.array(values, np.int64)


def one_node(op, x_shape, operands, outputs=("y",), **attrs):
    """A model of one node, whose operands but the first are integer inputs of these lengths."""
    operator = node(op, ["x", *operands], list(outputs), **attrs)
    inputs = [info("x", FLOAT, x_shape)]
    inputs += [info(name, INT64, [count]) for name, count in operands.items() if name]
    kinds = {"places": INT64}
    return model([operator], inputs, [info(name, kinds.get(name, FLOAT)) for name in outputs])


SLICES = [  # The starts and ends of axes 0 and 2 of [5, 3, 6].
    ([1, 0], [4, 6]),
    ([0, 0], [5, 6]),
    ([-3, 2], [-1, -1]),
    ([4, -100], [2, 100]),
    ([7, 5], [9, 6]),
    ([-5, 1], [100, 2]),
]


@pytest.mark.parametrize("steps", [None, (1, 1), (2, 1), (-1, 3), (1, -2)])
def test_bounds_of_slices(steps):
    constants = {"axes": ints(0, 2)} | ({} if steps is None else {"steps": ints(*steps)})
    slice_node = node("Slice", ["x", "starts", "ends", *constants], ["y"])
    inputs = [info("x", FLOAT, [5, 3, 6]), info("starts", INT64, [2]), info("ends", INT64, [2])]
    data = model([slice_node], inputs, [info("y")], constants)
    values = normal(5, 3, 6)
    assert_as_onnxruntime(
        data, *({"x": values, "starts": ints(*s), "ends": ints(*e)} for s, e in SLICES)
    )


def test_axes_and_steps_of_slices():
    data = one_node("Slice", [5, 3, 6], {"starts": 2, "ends": 2, "axes": 2, "steps": 2})
    values = normal(5, 3, 6)
    assert_as_onnxruntime(
        data,
        *(
            {"x": values, "starts": ints(*s), "ends": ints(*e), "axes": ints(*a), "steps": ints(*t)}
            for s, e in SLICES
            for a, t in (([0, 2], [1, 1]), ([-1, 1], [2, -1]))
        ),
    )


@pytest.fixture(scope="module")
def slicing():
    data = one_node("Slice", [7], {"starts": 1, "ends": 1, "axes": 1, "steps": 1})
    return farrier.compile(data, threads=1, verify=False)


BOUND = st.one_of(st.integers(-9, 9), st.sampled_from([-(1 << 62), (1 << 63) - 1]))


STEP = st.one_of(st.integers(-8, 8).filter(bool), st.sampled_from([-(1 << 63), (1 << 63) - 1]))


def sliced(x, start, end, step):
    """As Python slices, but that a start before the axis is its first element backwards too."""
    return x[max(start, -len(x)) : end : step]


@given(BOUND, BOUND, STEP)
def test_slices_by_what_is_computed(slicing, start, end, step):
    x = normal(7)
    operands = {"starts": ints(start), "ends": ints(end), "axes": ints(0), "steps": ints(step)}
    y = slicing.run({"x": x, **operands})["y"]
    np.testing.assert_array_equal(y, sliced(x, start, end, step))


BACKWARDS = (
    (-3, -(1 << 63), -2),
    (-9, 0, -1),
    (-1, -3, -(1 << 63)),
    (1 << 62, -4, -3),
    (-2, 1, -1),
)


def test_slices_backwards_of_an_open_axis():
    nodes, constants = [], {"axis": ints(0)}
    for i, bounds in enumerate(BACKWARDS):
        names = [f"{name}{i}" for name in ("start", "end", "step")]
        constants |= {name: ints(value) for name, value in zip(names, bounds, strict=True)}
        nodes.append(node("Slice", ["x", *names[:2], "axis", names[2]], [f"y{i}"]))
    outputs = [info(f"y{i}") for i in range(len(BACKWARDS))]
    data = model(nodes, [info("x", FLOAT, ["n"])], outputs, constants)
    session = farrier.compile(data, threads=1, verify=False).session()
    for length in (1, 2, 3, 5, 8):
        x = normal(length)
        ys = session.run({"x": x})
        for i, bounds in enumerate(BACKWARDS):
            np.testing.assert_array_equal(ys[f"y{i}"], sliced(x, *bounds), f"{length} {bounds}")


def test_a_step_of_zero_is_refused():
    data = one_node("Slice", [5], {"starts": 1, "ends": 1, "axes": 1, "steps": 1})
    artifact = farrier.compile(data, threads=1, verify=False)
    values = {"starts": ints(0), "ends": ints(5), "axes": ints(0)}
    with pytest.raises(InputMismatchError, match="node 'y'"):
        artifact.run({"x": normal(5), "steps": ints(0), **values})
    assert artifact.run({"x": normal(5), "steps": ints(2), **values})["y"].shape == (3,)


def test_slices_of_an_open_axis_by_what_is_computed():
    """Equal bounds yield equal sizes, so that sums of slices are possible."""
    nodes = [
        node("ReduceSum", ["n"], ["end"], keepdims=1),
        node("Slice", ["x", "one", "end", "zero"], ["a"]),
        node("Slice", ["z", "one", "end", "zero"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    inputs = [info("x", FLOAT, ["t", 3]), info("z", FLOAT, ["t", 1]), info("n", INT64, [2])]
    data = model(nodes, inputs, [info("y")], {"zero": ints(0), "one": ints(1)})
    assert_as_onnxruntime(
        data,
        *(
            {"x": normal(t, 3), "z": normal(t, 1), "n": ints(*n)}
            for t, n in ((4, (1, 2)), (9, (1, 0)), (1, (1, 1)), (30, (-5, -1)), (30, (10, 11)))
        ),
        shapes={"x": ("t:1..64", 3), "z": ("t", 1)},
    )


def test_lengths_of_parts():
    data = one_node("Split", [2, 10], {"split": 3}, ("y", "u", "v"), axis=1)
    values = normal(2, 10)
    assert_as_onnxruntime(
        data, *({"x": values, "split": ints(*s)} for s in ((3, 3, 4), (1, 8, 1), (0, 10, 0)))
    )
    artifact = farrier.compile(data, threads=1, verify=False)
    for bad in ((3, 3, 3), (11, 0, -1), (-1, 1, 10)):
        with pytest.raises(InputMismatchError, match="gets the size"):
            artifact.run({"x": values, "split": ints(*bad)})


TARGETS = [(4, 6), (2, 12), (24, 1), (-1, 8), (3, -1), (0, -1), (2, 0)]


@pytest.mark.parametrize("after", [[], ["Relu"]])
def test_targets_of_reshapes(after):
    nodes = [node("Reshape", ["x", "shape"], ["y" if not after else "r"])]
    nodes += [node(op, ["r"], ["y"]) for op in after]
    data = model(nodes, [info("x", FLOAT, [2, 12]), info("shape", INT64, [2])], [info("y")])
    values = normal(2, 12)
    assert_as_onnxruntime(data, *({"x": values, "shape": ints(*t)} for t in TARGETS))


def test_targets_that_do_not_fit_are_refused():
    data = one_node("Reshape", [2, 12], {"shape": 2})
    artifact = farrier.compile(data, threads=1, verify=False)
    for bad in ((5, 5), (-1, 7), (-2, -12), (0, 1), (1 << 40, 1 << 40)):
        with pytest.raises((InputMismatchError, farrier.errors.MemoryLimitError)):
            artifact.run({"x": normal(2, 12), "shape": ints(*bad)})


def test_a_target_that_the_other_extents_settle():
    """The batch is known only at run time, but is what remains: no room must be made."""
    nodes = [
        node("Concat", ["n", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["r"]),
        node("Add", ["r", "bias"], ["y"]),
    ]
    inputs = [info("x", FLOAT, ["b", 12]), info("n", INT64, [1])]
    data = model(nodes, inputs, [info("y")], {"rest": ints(3, 4), "bias": normal(4)})
    artifact = assert_as_onnxruntime(
        data,
        *({"x": normal(b, 12), "n": ints(n)} for b, n in ((2, 2), (5, -1), (3, 0), (1, 1))),
        shapes={"x": ("b:1..16", 12)},
    )
    assert not artifact.manifest.capacities
    with pytest.raises(InputMismatchError, match=r"the size 3 .* must be "):
        artifact.run({"x": normal(2, 12), "n": ints(3)})


def test_reshaping_what_the_data_counts():
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Reshape", ["places", "shape"], ["y"]),
        node("Neg", ["y"], ["z"]),
    ]
    inputs = [info("x", FLOAT, [6]), info("shape", INT64, [2])]
    data = model(nodes, inputs, [info("z", INT64)])
    x = np.array([1, 0, 2, 3, 0, 4], np.float32)
    cases = [(x, (2, 2)), (x, (-1, 1)), (x, (4, -1)), (x * 0, (0, 5)), (x + 1, (3, 2))]
    assert_as_onnxruntime(data, *({"x": x, "shape": ints(*t)} for x, t in cases[:3] + cases[4:]))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_amounts_of_padding(mode):
    data = one_node("Pad", [3, 4], {"pads": 4}, mode=mode)
    cases = [(0, 0, 0, 0), (1, 2, 0, 1), (2, 0, 2, 3), (0, 3, 1, 0)]
    if mode == "constant":
        cases += [(-1, 2, 0, -2), (-3, 0, 5, 0), (40, 0, 0, 700), (0, -2, 0, -2)]
    values = normal(3, 4)
    assert_as_onnxruntime(data, *({"x": values, "pads": ints(*p)} for p in cases))


def test_padding_along_axes_that_are_values():
    pad = node("Pad", ["x", "pads", "", "axes"], ["y"])
    inputs = [info("x", FLOAT, [2, 3, 4]), info("pads", INT64, [4]), info("axes", INT64, [2])]
    data = model([pad], inputs, [info("y")], opset=18)
    values = normal(2, 3, 4)
    assert_as_onnxruntime(
        data,
        *(
            {"x": values, "pads": ints(1, 2, 3, 0), "axes": ints(*axes)}
            for axes in ((0, 2), (-1, 1), (2, 0))
        ),
    )


def test_padding_beyond_what_there_is_to_repeat_is_refused():
    data = one_node("Pad", [3], {"pads": 2}, mode="reflect")
    artifact = farrier.compile(data, threads=1, verify=False)
    for bad in ((3, 0), (0, 3), (1, 1 << 50)):
        with pytest.raises(InputMismatchError, match="node 'y'"):
            artifact.run({"x": normal(3), "pads": ints(*bad)})


@pytest.mark.parametrize("largest", [0, 1])
def test_how_many_are_the_best(largest):
    data = one_node("TopK", [3, 40], {"k": 1}, ("y", "places"), largest=largest)
    values = normal(3, 40)
    assert_as_onnxruntime(data, *({"x": values, "k": ints(k)} for k in (1, 5, 40, 2, 39)))
    artifact = farrier.compile(data, threads=1, verify=False)
    assert artifact.run({"x": values, "k": ints(0)})["y"].shape == (3, 0)
    with pytest.raises(InputMismatchError, match=r"the size 41 .* 0 to 40"):
        artifact.run({"x": values, "k": ints(41)})


def test_the_best_of_what_the_data_counts():
    """No more than there are, whatever there is room for."""
    nodes = [
        node("Compress", ["x", "keep"], ["kept"], axis=0),
        node("TopK", ["kept", "k"], ["y", "places"]),
    ]
    inputs = [info("x", FLOAT, [9]), info("keep", TensorProto.BOOL, [9]), info("k", INT64, [1])]
    data = model(nodes, inputs, [info("y"), info("places", INT64)])
    values, keep = normal(9), np.arange(9) % 2 == 0
    assert_as_onnxruntime(data, *({"x": values, "keep": keep, "k": ints(k)} for k in (5, 1, 3)))
    artifact = farrier.compile(data, threads=1, verify=False)
    with pytest.raises(InputMismatchError, match="the size 6"):
        artifact.run({"x": values, "keep": keep, "k": ints(6)})


@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals(upper):
    trilu = node("Trilu", ["x", "k"], ["y"], upper=upper)
    data = model([trilu], [info("x", FLOAT, [2, 4, 5]), info("k", INT64, [])], [info("y")])
    values = normal(2, 4, 5)
    assert_as_onnxruntime(data, *({"x": values, "k": np.array(k)} for k in (0, 1, -2, 9, -9)))


def test_how_many_classes():
    one_hot = node("OneHot", ["x", "depth", "values"], ["y"])
    inputs = [info("x", INT64, [5]), info("depth", INT64, [1])]
    data = model([one_hot], inputs, [info("y")], {"values": np.array([0, 1], np.float32)})
    values = ints(0, 3, -1, 7, 2)
    assert_as_onnxruntime(data, *({"x": values, "depth": ints(d)} for d in (4, 8, 1, 600)))


@pytest.mark.parametrize(
    ("mode", "where"), [("nearest", "asymmetric"), ("linear", "pytorch_half_pixel")]
)
def test_sizes_of_images(mode, where):
    resize = node(
        "Resize", ["x", "", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=where
    )
    inputs = [info("x", FLOAT, [1, 2, 5, 7]), info("s", INT64, [4])]
    data = model([resize], inputs, [info("y")])
    sizes, values = ((10, 7), (3, 9), (1, 1), (50, 2)), normal(1, 2, 5, 7)
    assert_as_onnxruntime(data, *({"x": values, "s": ints(1, 2, *s)} for s in sizes))


def test_sizes_that_keep_the_ratio():
    resize = node(
        "Resize", ["x", "", "", "s"], ["y"], axes=[2, 3], keep_aspect_ratio_policy="not_larger"
    )
    inputs = [info("x", FLOAT, [1, 1, 4, 6]), info("s", INT64, [2])]
    data = model([resize], inputs, [info("y")], opset=18)
    values = normal(1, 1, 4, 6)
    assert_as_onnxruntime(data, *({"x": values, "s": ints(*s)} for s in ((8, 8), (2, 30), (4, 6))))


def test_how_far_frames_are_apart():
    nodes = [node("STFT", ["x", "step", "window"], ["y"])]
    inputs = [info("x", FLOAT, [2, 32, 1]), info("step", INT64, [])]
    window = np.hanning(8).astype(np.float32)
    data = model(nodes, inputs, [info("y")], {"window": window})
    values = normal(2, 32, 1)
    assert_as_onnxruntime(data, *({"x": values, "step": np.array(step)} for step in (4, 1, 7, 24)))
    with pytest.raises(InputMismatchError, match="the size -1"):
        farrier.compile(data, threads=1, verify=False).run({"x": values, "step": np.array(0)})
