"""Winograd's filtering is the convolution: its matrices, its stages, its reference, its errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.evaluate import evaluate
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.ops import lookup
from farrier.ops.filtering import ERRORS, FILTERINGS, Filtering
from farrier.ops.operator import Mismatch
from farrier.ops.winograd import transformed


def winograd_region(x, u, b, filtering, pads, halo=0, block=1):
    """One WinogradConv of arrays of these shapes and dtypes, with an f32 sum; its images in blocks,
    the input within zeros."""

    def layout(zeros):
        around = ((0, 0), (0, 0), (zeros, zeros), (zeros, zeros)) if zeros else ()
        return Layout.blocked(4, 1, block, around) if block > 1 or zeros else None

    def value(name, array, layout=None):
        return Value(name, TensorType(DType.from_numpy(array.dtype), array.shape, layout))

    inputs = [value("x", x, layout(halo)), value("u", u)]
    inputs += [] if b is None else [value("b", b)]
    attrs = {"tile": filtering.tile, "strides": (filtering.stride,) * 2, "accumulator": "f32"}
    attrs |= {"kernel_shape": (3, 3), "pads": pads}
    (kind,) = lookup("WinogradConv").infer([v.type for v in inputs], {}, attrs)
    y = Value("y", TensorType(DType.F32, kind.shape, layout(0)))
    node = Node("WinogradConv", tuple(inputs), (y,), attributes(**attrs))
    return Graph("region", tuple(inputs), (), (node,), (y,))


def direct(x, w, b, stride, pads):
    """The convolution in f64."""
    arrays = [None if a is None else a.astype(np.float64) for a in (x, w, b)]
    (y,) = lookup("Conv").reference(arrays, {"strides": (stride, stride), "pads": pads})
    return y


@pytest.mark.parametrize("filtering", FILTERINGS, ids=str)
def test_the_three_transforms_filter_a_line(filtering):
    rng = np.random.default_rng(0)
    d, g = rng.standard_normal(filtering.points), rng.standard_normal(3)
    factors = np.array(filtering.input_sums([np.float64(v) for v in d]))
    products = (filtering.weight_matrix() @ g) * factors
    actual = filtering.output_sums(list(products))
    starts = range(0, filtering.tile * filtering.stride, filtering.stride)
    expected = [d[at : at + 3] @ g for at in starts]
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("filtering", FILTERINGS, ids=str)
def test_there_are_as_many_products_as_inputs(filtering):
    d = [np.float64(1)] * filtering.points
    assert len(filtering.input_sums(d)) == filtering.points
    assert len(filtering.output_sums(d)) == filtering.tile
    assert filtering.weight_matrix().shape == (filtering.points, 3)


@st.composite
def convolutions(draw):
    filtering = draw(st.sampled_from(FILTERINGS))
    pads = tuple(draw(st.tuples(*[st.integers(0, 1)] * 4)))
    height = draw(st.integers(max(3 - pads[0] - pads[2], 1), 11))
    width = draw(st.integers(max(3 - pads[1] - pads[3], 1), 11))
    n, ic, oc = draw(st.integers(1, 2)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((n, ic, height, width)).astype(np.float32)
    w = rng.standard_normal((oc, ic, 3, 3)).astype(np.float32)
    b = rng.standard_normal(oc).astype(np.float32) if draw(st.booleans()) else None
    return filtering, pads, x, w, b, draw(st.integers(0, 2)), draw(st.sampled_from((1, 4)))


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_reference_and_stages_are_the_convolution(drawn):
    filtering, pads, x, w, b, halo, block = drawn
    expected = direct(x, w, b, filtering.stride, pads)
    u = transformed(w, filtering)
    graph = winograd_region(x, u, b, filtering, pads, halo, block)
    arrays = {v.name: a for v, a in zip(graph.inputs, (x, u, b), strict=False)}
    (node,) = graph.nodes
    (reference,) = lookup("WinogradConv").reference(list(arrays.values()), dict(node.attrs))
    (computed,) = evaluate(to_program(graph, "kernel"), arrays).values()
    assert graph.outputs[0].type.shape == expected.shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(reference, expected, rtol=0, atol=2e-6 * scale)
    np.testing.assert_allclose(computed, expected, rtol=0, atol=10 * ERRORS[filtering.tile] * scale)


def test_any_factors_have_one_meaning():
    """Factors that no window has, as a tuner draws them: reference and stages still agree."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 3, 6, 7)).astype(np.float32)
    u = rng.standard_normal((6, 6, 2, 3)).astype(np.float32)
    graph = winograd_region(x, u, None, Filtering(1, 4), (1, 1, 1, 1))
    (expected,) = lookup("WinogradConv").reference([x, u], dict(graph.nodes[0].attrs))
    (computed,) = evaluate(to_program(graph, "kernel"), {"x": x, "u": u}).values()
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("filtering", "weights"),
    [
        (Filtering(1, 2), DType.BF16),
        (Filtering(1, 4), DType.BF16),
        (Filtering(1, 6), DType.F32),
        (Filtering(2, 2), DType.BF16),
    ],
)
@pytest.mark.parametrize("block", [1, 4])
def test_factors_are_rounded_to_the_dtype_of_the_weights(filtering, weights, block):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 4, 6, 7)).astype(DType.BF16.numpy)
    w = rng.standard_normal((3, 4, 3, 3)).astype(np.float32)
    u = transformed(w, filtering).astype(weights.numpy)
    graph = winograd_region(x, u, None, filtering, (1, 1, 1, 1), 1, block)
    (reference,) = lookup("WinogradConv").reference([x, u], dict(graph.nodes[0].attrs))
    (computed,) = evaluate(to_program(graph, "kernel"), {"x": x, "u": u}).values()
    expected = direct(x, w, None, filtering.stride, (1, 1, 1, 1))
    scale = np.abs(expected).max()
    assert reference.dtype == np.float32
    # A factor between two bf16 may be rounded to either: tile 4 has coefficients that are inexact.
    tile = filtering.tile
    apart = 1e-3 if weights is DType.BF16 and tile > 2 else ERRORS[tile]
    np.testing.assert_allclose(computed, reference, rtol=0, atol=apart * scale)
    error = np.abs(reference - expected).max() / scale
    assert (error > 1e-4) == (weights is DType.BF16)
    assert error < 5e-2


def test_transformed_weights_are_exact_sums():
    w = np.random.default_rng(2).standard_normal((2, 3, 3, 3)).astype(np.float32)
    (u,) = lookup("WinogradWeights").reference([w], {"tile": 4})
    assert u.shape == (6, 6, 2, 3)
    assert u.dtype == np.float32
    np.testing.assert_array_equal(u[5, 5], w[:, :, 2, 2])  # The point at infinity.
    np.testing.assert_array_equal(u[0, 0], w[:, :, 0, 0])  # The point 0.


@pytest.mark.parametrize(
    ("x", "u", "attrs"),
    [
        ((1, 4, 6, 6), (7, 7, 8, 4), {"tile": 5}),
        ((1, 4, 6, 6), (4, 4, 8, 4), {"tile": 4}),
        ((1, 5, 6, 6), (4, 4, 8, 4), {"tile": 2}),
        ((1, 4, 6, 6), (4, 4, 8, 4), {"tile": 2, "strides": (2, 2)}),
        ((1, 4, 6, 6), (4, 4, 8, 4), {"tile": 2, "strides": (1, 2)}),
        ((1, 4, 6, 6), (13, 13, 8, 4), {"tile": 6, "strides": (2, 2)}),
        ((1, 4, 2, 6), (4, 4, 8, 4), {"tile": 2}),
    ],
)
def test_what_does_not_fit_is_refused(x, u, attrs):
    types = [TensorType(DType.F32, x), TensorType(DType.F32, u)]
    with pytest.raises(Mismatch):
        lookup("WinogradConv").infer(types, {}, attrs)


def test_weights_of_other_windows_are_refused():
    with pytest.raises(Mismatch):
        lookup("WinogradWeights").infer([TensorType(DType.F32, (4, 4, 5, 5))], {}, {"tile": 2})
