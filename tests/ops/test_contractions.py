"""Conv, ConvTranspose, MatMul, Gemm and Einsum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

QUIET = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def f32(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 3, 7, 11), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 4, 5, 5), (6, 4, 1, 1), {}),
        ((1, 6, 9, 7), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((1, 6, 9, 7), (4, 3, 3, 2), {"group": 2, "dilations": [2, 3], "pads": [2, 0, 1, 3]}),
        ((1, 4, 6, 6), (8, 1, 2, 2), {"group": 4}),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}),
        ((2, 3, 13), (5, 3, 5), {"strides": [3], "pads": [2, 1]}),
        ((1, 2, 5, 4, 3), (3, 2, 2, 2, 2), {"strides": [2, 1, 1]}),
        ((1, 3, 8, 9), (2, 3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((1, 3, 8, 9), (2, 3, 4, 4), {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
        ((1, 3, 8, 9), (2, 3, 4, 4), {"auto_pad": "VALID"}),
    ],
)
def test_conv(check_operator, rng, x, w, attrs, bias):
    inputs = [f32(rng, *x), f32(rng, *w)] + [f32(rng, w[0])] * bias
    check_operator("Conv", inputs, tolerance=1e-5, **attrs)


@QUIET
@given(data=st.data())
def test_conv_of_any_parameters(check_operator, data):
    def pick(low, high):
        return data.draw(st.integers(low, high))

    group, depth, outputs = pick(1, 3), pick(1, 3), pick(1, 3)
    extents, kernel = (pick(1, 9), pick(1, 9)), (pick(1, 4), pick(1, 4))
    strides, dilations = [pick(1, 3), pick(1, 3)], [pick(1, 3), pick(1, 3)]
    pads = [pick(0, 3) for _ in range(4)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    assume(all(extents[a] + pads[a] + pads[a + 2] >= reach[a] for a in range(2)))
    rng = np.random.default_rng(pick(0, 999))
    check_operator(
        "Conv",
        [f32(rng, pick(1, 2), group * depth, *extents), f32(rng, group * outputs, depth, *kernel)],
        group=group,
        strides=strides,
        dilations=dilations,
        pads=pads,
        tolerance=1e-5,
    )


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 4, 5, 7), (4, 3, 2, 2), {"strides": [2, 2]}),
        ((1, 4, 5, 7), (4, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        (
            (2, 4, 5, 3),
            (4, 2, 3, 3),
            {"strides": [2, 3], "group": 2, "pads": [1, 0, 0, 1], "output_padding": [1, 2]},
        ),
        ((1, 2, 4, 4), (2, 3, 3, 3), {"dilations": [2, 1]}),
        ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
        ((1, 3, 7), (3, 2, 4), {"strides": [2]}),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_conv_transpose(check_operator, rng, x, w, attrs, bias):
    outputs = w[1] * attrs.get("group", 1)
    inputs = [f32(rng, *x), f32(rng, *w)] + [f32(rng, outputs)] * bias
    check_operator("ConvTranspose", inputs, tolerance=1e-5, **attrs)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 5), (5, 7)),
        ((1, 1), (1, 1)),
        ((2, 3, 5), (2, 5, 7)),
        ((4, 1, 3, 5), (2, 5, 7)),
        ((3, 5), (2, 4, 5, 1)),
        ((5,), (5, 7)),
        ((2, 3, 5), (5,)),
        ((5,), (5,)),
        ((5,), (3, 5, 2)),
    ],
)
def test_matmul(check_operator, rng, a, b):
    check_operator("MatMul", [f32(rng, *a), f32(rng, *b)], tolerance=1e-5)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(
    ("addend", "factors"),
    [
        (None, {}),
        (None, {"alpha": 0.5}),
        ((7,), {}),
        ((3, 1), {"beta": 2.5}),
        ((), {"alpha": -2.0}),
    ],
)
def test_gemm(check_operator, rng, trans_a, trans_b, addend, factors):
    a = f32(rng, 5, 3) if trans_a else f32(rng, 3, 5)
    b = f32(rng, 7, 5) if trans_b else f32(rng, 5, 7)
    inputs = [a, b] if addend is None else [a, b, f32(rng, *addend)]
    check_operator("Gemm", inputs, transA=trans_a, transB=trans_b, tolerance=1e-5, **factors)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij->ji", [(3, 5)]),
        ("ij->", [(3, 5)]),
        ("ij,kj", [(3, 4), (5, 4)]),
        ("i,j->ij", [(3,), (4,)]),
    ],
)
def test_einsum(check_operator, rng, equation, shapes):
    inputs = [f32(rng, *shape) for shape in shapes]
    check_operator("Einsum", inputs, equation=equation, tolerance=1e-5)


def test_wide_reference_is_closer(rng):
    """The float64 reference is what a float32 result is judged by: it must be better than one."""
    from farrier.ops import lookup

    x, w = f32(rng, 1, 64, 9, 9), f32(rng, 8, 64, 3, 3)
    (narrow,) = lookup("Conv").reference([x, w], {})
    (wide,) = lookup("Conv").reference([x.astype(np.float64), w.astype(np.float64)], {})
    exact = np.einsum(
        "nchwij,ocij->nohw",
        np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3)),
        w.astype(np.float64),
    )
    assert narrow.dtype == np.float32
    assert np.abs(wide - exact).max() < 1e-12 < np.abs(narrow - exact).max()
