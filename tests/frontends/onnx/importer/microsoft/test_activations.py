"""Fused activations, sums and products, against ONNX Runtime, or numpy where it has no kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.frontends.onnx.importer.microsoft.against import (
    Numbers,
    by_onnx_runtime,
    check,
    one_node,
)

NUMBERS = Numbers(20261130)
f32 = NUMBERS.f32


def softmax(x, axes):
    powers = np.exp(x - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "QuickGelu"])
def test_gelu(op):
    inputs = [f32(2, 3, 7), f32(7)]
    check(op, inputs if op in ("BiasGelu", "FastGelu") else inputs[:1])
    if op == "QuickGelu":
        check(op, inputs[:1], alpha=-0.7)


def test_one_half_is_multiplied_by_the_gelu_of_the_other():
    x, bias = f32(2, 3, 8), f32(8)
    left, right = np.split(x + bias, 2, axis=-1)
    error = np.vectorize(math.erf)(right / math.sqrt(2))
    check("BiasSplitGelu", [x, bias], expected=[(left * right * (1 + error) / 2).astype(x.dtype)])


def test_biases_are_added():
    x, bias, skip = f32(2, 3, 8), f32(8), f32(2, 3, 8)
    check("BiasAdd", [x, bias, skip], expected=[x + bias + skip])


@pytest.mark.parametrize(("axis", "bias"), [(3, (2, 1, 1, 5)), (2, (4, 5)), (-1, (1, 3, 1, 5))])
def test_softmax_of_a_sum_over_the_axes_from_one_on(axis, bias):
    x, added = f32(2, 3, 4, 5), f32(*bias)
    want = softmax(x + added, tuple(range(axis % 4, 4)))
    check("BiasSoftmax", [x, added], expected=[want], axis=axis, is_inner_broadcast=1)


@pytest.mark.parametrize("batch_a", [0, 1])
@pytest.mark.parametrize("batch_b", [0, 1])
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_with_transposed_operands(batch_a, batch_b, turned):
    """Rows and inner are turned, then the rows put before the batch."""
    a, b = f32(2, 3, 4, 5), f32(2, 3, 5, 6)
    a, b = (x.swapaxes(-1, -2) if turn else x for x, turn in zip((a, b), turned, strict=True))
    a, b = (
        np.moveaxis(x, -2, 0) if is_inside else x for x, is_inside in ((a, batch_a), (b, batch_b))
    )
    attrs = {"transA": turned[0], "transB": turned[1], "alpha": 0.5}
    check("FusedMatMul", [a, b], transBatchA=batch_a, transBatchB=batch_b, **attrs)


def test_vectors_are_not_transposed():
    check("FusedMatMul", [f32(5), f32(5, 3)], transA=1)
    check("FusedMatMul", [f32(3, 5), f32(5)], transB=1)


@pytest.mark.parametrize(
    ("activation", "attrs"),
    [
        ("Relu", {}),
        ("LeakyRelu", {"activation_alpha": 0.2}),
        ("Sigmoid", {}),
        ("Tanh", {}),
    ],
)
def test_activations_of_products(activation, attrs):
    operands = [f32(3, 5), f32(7, 5), f32(7)]
    check("FusedGemm", operands, transB=1, alpha=1.5, activation=activation, **attrs)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", []),
        ("LeakyRelu", [0.3]),
        ("HardSigmoid", [0.2, 0.4]),
        ("Clip", [-0.5, 0.5]),
    ],
)
def test_activations_of_convolutions(activation, parameters):
    image, weights, bias, more = f32(1, 3, 7, 7), f32(4, 3, 3, 3), f32(4), f32(1, 4, 5, 5)
    attrs = {"activation": activation}
    if parameters:
        attrs["activation_params"] = parameters
    for inputs in ([image, weights], [image, weights, bias, more]):
        check("FusedConv", inputs, **attrs)


def test_channels_last():
    """Convolutions and pools are those of the image whose channels come first."""
    image, weights, bias, more = f32(1, 3, 7, 7), f32(4, 3, 3, 3), f32(4), f32(1, 4, 5, 5)
    last = image.transpose(0, 2, 3, 1)
    for op, inputs, moved, attrs in (
        ("FusedConv", [image, weights, bias], [last, weights, bias], {}),
        (
            "FusedConv",
            [image, weights, bias, more],
            [last, weights, bias, more.transpose(0, 2, 3, 1)],
            {"activation": "Relu"},
        ),
    ):
        (want,) = by_onnx_runtime(*one_node(op, inputs, **attrs))
        expected = [want.transpose(0, 2, 3, 1)]
        check("NhwcFusedConv" if attrs else "NhwcConv", moved, expected=expected, **attrs)
    codes = NUMBERS.codes(np.int8, 1, 7, 7, 3)
    check("NhwcMaxPool", [codes], kernel_shape=[2, 2], strides=[2, 2])
