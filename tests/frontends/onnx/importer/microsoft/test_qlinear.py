"""Operators on quantized tensors: the same integers as ONNX Runtime's, ties included."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.importer.microsoft.against import Numbers, check

NUMBERS = Numbers(20261204)
# Of a quotient of scales like 0.5, every other sum lies half way between two integers.
SCALES = [(0.25, 0.5, 0.5), (0.5, 0.25, 0.125), (0.1, 0.05, 0.1), (0.0537, 0.0213, 0.0611)]


def exact(op, inputs, **options):
    """All but the first input are initializers where they are scalars."""
    fixed = [i for i, x in enumerate(inputs) if np.ndim(x) == 0]
    check(op, inputs, steps=0, fixed=fixed, **options)


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_every_integer_is_that_of_onnx_runtime(dtype, scales):
    def codes(*shape):
        return NUMBERS.codes(dtype, *shape)

    first, second, result = ([np.float32(scale), codes()] for scale in scales)
    is_compiled = scales == SCALES[2]
    a, b = codes(40, 30), codes(1, 30)
    for op in ("QLinearAdd", "QLinearMul"):
        exact(op, [a, *first, b, *second, *result], is_compiled=is_compiled)
    exact("QLinearAdd", [a, *first, b, *second, result[0]])
    exact("QLinearConcat", [*result, a, *first, codes(2, 30), *second], axis=0)
    exact("QLinearLeakyRelu", [a, *first, *result], alpha=0.25)
    exact("QLinearSigmoid", [a, *first, np.float32(scales[2] / 64), codes()])
    image, last = codes(2, 16, 9, 8), codes(2, 9, 8, 16)
    window = {"kernel_shape": [2, 2]}
    padded = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    for attrs in (window, padded, {**padded, "count_include_pad": 1}):
        exact("QLinearAveragePool", [image, *first, *result], is_compiled=is_compiled, **attrs)
        exact("QLinearAveragePool", [last, *first, *result], channels_last=1, **attrs)
    op = "QLinearGlobalAveragePool"
    exact(op, [image, *first, *result], is_compiled=is_compiled)
    exact(op, [last, *first, *result], channels_last=1, is_compiled=is_compiled)


@pytest.mark.parametrize(("axis", "opset"), [(1, 12), (2, 12), (-1, 12), (1, 13), (-1, 13)])
def test_softmax_along_one_axis_or_over_all_from_one_on(axis, opset):
    """ONNX Runtime looks powers up in a table, so results may be one off."""
    x = NUMBERS.codes(np.uint8, 2, 3, 7)
    inputs = [x, np.float32(0.05), np.uint8(120), np.float32(1 / 256), np.uint8(0)]
    check("QLinearSoftmax", inputs, steps=1, fixed=range(1, 5), axis=axis, opset=opset)
