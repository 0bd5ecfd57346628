"""Operators that move elements and compute nothing: shapes, slices, joins, look-ups, resizing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUIET = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def f32(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((2, 3, 4), (6, 4)),
        ((2, 3, 4), (-1,)),
        ((2, 3, 4), (0, -1)),
        ((6, 5), (2, 3, 5, 1)),
        ((1, 7, 1), (7,)),
        ((12,), (3, 1, 4)),
        ((4, 6), (3, 8)),
        ((1,), ()),
    ],
)
def test_reshape(check_operator, rng, shape, wanted):
    check_operator("Reshape", [f32(rng, *shape)], static={1: i64(*wanted)})


@QUIET
@given(data=st.data())
def test_reshape_of_any_shape(check_operator, data):
    factors = data.draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=5))

    def grouped():
        cuts = sorted(data.draw(st.sets(st.integers(1, len(factors)), max_size=4)))
        bounds = [0, *cuts, len(factors)]
        return [math.prod(factors[a:b]) for a, b in itertools.pairwise(bounds)]

    shape, wanted = grouped(), grouped()[::-1] if data.draw(st.booleans()) else grouped()
    rng = np.random.default_rng(0)
    check_operator("Reshape", [f32(rng, *shape)], static={1: i64(*wanted)})


def test_squeeze_unsqueeze_flatten(check_operator, rng):
    check_operator("Squeeze", [f32(rng, 1, 3, 1, 5)], static={1: i64(0, -2)})
    check_operator("Squeeze", [f32(rng, 1, 3, 1, 5)])
    check_operator("Unsqueeze", [f32(rng, 3, 5)], static={1: i64(0, -1)})
    for axis in (0, 1, 2, -1, 3):
        check_operator("Flatten", [f32(rng, 2, 3, 5)], axis=axis)


@pytest.mark.parametrize("perm", [None, [0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_transpose(check_operator, rng, perm):
    check_operator("Transpose", [f32(rng, 2, 3, 5)], **({} if perm is None else {"perm": perm}))


def test_expand_and_tile(check_operator, rng):
    check_operator("Expand", [f32(rng, 3, 1)], static={1: i64(2, 1, 5)})
    check_operator("Tile", [f32(rng, 2, 1, 3)], static={1: i64(2, 5, 1)})


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(check_operator, rng, mode):
    check_operator("DepthToSpace", [f32(rng, 2, 12, 3, 5)], blocksize=2, mode=mode)


def test_space_to_depth(check_operator, rng):
    check_operator("SpaceToDepth", [f32(rng, 2, 3, 6, 9)], blocksize=3)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_concat(check_operator, rng, axis, count):
    parts = []
    for position in range(count):
        shape = [2, 3, 5]
        shape[axis] = position + 1
        parts.append(f32(rng, *shape))
    check_operator("Concat", parts, axis=axis)


def test_split(check_operator, rng):
    check_operator("Split", [f32(rng, 2, 7)], static={1: i64(1, 4, 2)}, outputs=3, axis=1)
    check_operator("Split", [f32(rng, 6, 5)], outputs=3, axis=0)
    check_operator("Split", [f32(rng, 2, 7)], outputs=3, axis=-1, opset=18, num_outputs=3)


@QUIET
@given(data=st.data())
def test_slices(check_operator, data):
    def bound():
        return data.draw(st.integers(-12, 12) | st.sampled_from([-(2**63), 2**63 - 1, 2**31 - 1]))

    rank = data.draw(st.integers(1, 3))
    shape = [data.draw(st.integers(1, 7)) for _ in range(rank)]
    axes = data.draw(st.permutations(range(rank)))[: data.draw(st.integers(1, rank))]
    starts, ends = [bound() for _ in axes], [bound() for _ in axes]
    steps = [data.draw(st.sampled_from([1, 1, 2, 3, -1, -2, -(2**63), 2**63 - 1])) for _ in axes]
    # Against the text, ONNX Runtime takes the greatest integer for the end backwards, too.
    ends = [min(end, 100) if step < 0 else end for end, step in zip(ends, steps, strict=True)]
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    static = {1: i64(*starts), 2: i64(*ends), 3: i64(*axes), 4: i64(*steps)}
    check_operator("Slice", [x], static=static)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 1, 2, 3, 0, 2), (1, 1, 1, 0, 0, 0)])
def test_pad(check_operator, rng, mode, pads):
    check_operator("Pad", [f32(rng, 4, 4, 4)], static={1: i64(*pads)}, mode=mode, opset=19)


def test_pad_with_a_value_and_cutting(check_operator, rng):
    value = np.array(1.5, np.float32)
    check_operator("Pad", [f32(rng, 3, 5)], static={1: i64(1, -1, 0, 2), 2: value})
    check_operator("Pad", [f32(rng, 3, 5), None, value], static={1: i64(0, 2, 1, 0)})
    static = {1: i64(2, 1), 3: i64(-1)}
    check_operator("Pad", [f32(rng, 3, 5)], static=static, opset=18)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_trilu(check_operator, rng, upper, diagonal):
    static = {1: np.array(diagonal, np.int64)}
    check_operator("Trilu", [f32(rng, 2, 4, 5)], static=static, upper=upper)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [2, [1], [[0, -1], [2, 1]]])
def test_gather(check_operator, rng, axis, indices):
    check_operator("Gather", [f32(rng, 3, 4, 5), np.array(indices, np.int64)], axis=axis)


def test_gather_stays_in_its_buffer(check_operator, rng):
    x = f32(rng, 3, 2)
    check_operator("Gather", [x, np.array([7, -9], np.int32)], expected=[x[[2, 0]]])


def test_gather_elements_and_nd(check_operator, rng):
    x = f32(rng, 3, 4, 5)
    check_operator("GatherElements", [x, rng.integers(-4, 4, (3, 2, 5))], axis=1)
    check_operator("GatherND", [x, np.array([[0, 1], [2, -1]], np.int64)])
    check_operator("GatherND", [x, np.array([[1], [0], [3]], np.int64)], batch_dims=1)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(check_operator, axis):
    indices, values = np.array([[1, -1], [4, 0]], np.int64), np.array([0.5, 2.0], np.float32)
    static = {1: np.array(5, np.int64)}
    check_operator("OneHot", [indices, None, values], static=static, axis=axis)


MODES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("sizes", [(10, 14), (3, 4), (13, 5), (1, 7)])
def test_resize_to_the_nearest(check_operator, rng, coordinates, rounding, sizes):
    check_operator(
        "Resize",
        [f32(rng, 1, 2, 5, 7)],
        static={3: i64(1, 2, *sizes)},
        mode="nearest",
        coordinate_transformation_mode=coordinates,
        nearest_mode=rounding,
    )


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (0.6, 0.5), (1.7, 3.0), (2.0, 1.0)])
def test_resize_by_weights(check_operator, rng, mode, coordinates, scales):
    check_operator(
        "Resize",
        [f32(rng, 1, 2, 5, 7)],
        static={2: np.array([1, 1, *scales], np.float32)},
        mode=mode,
        coordinate_transformation_mode=coordinates,
        tolerance=1e-5,
    )
