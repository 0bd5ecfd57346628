"""Elementwise rules for images that are available in NCHW layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier.frontends.builder.images import ImageBuilder, first_axes
from farrier.frontends.tflite.call import Call, Rule

_NAMES = frozenset({
    "ABS", "ADD", "ADD_N", "CAST", "CEIL", "COS", "DEQUANTIZE", "DIV", "ELU", "EQUAL", "EXP",
    "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "GELU", "GREATER", "GREATER_EQUAL", "HARD_SWISH",
    "LEAKY_RELU", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR",
    "LOGISTIC", "MAXIMUM", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "POW", "PRELU", "QUANTIZE",
    "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SELECT_V2", "SIGN", "SIN",
    "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "SUB", "TANH",
})  # fmt: skip
_IMAGE_RANK = 4


def in_channels_first(rule: Rule) -> Rule:
    """Return a rule for an elementwise operator. If an operand is an image that is available in
    NCHW, the rule applies `rule` to NCHW operands; otherwise it applies `rule` unchanged."""

    def ruled(call: Call, b: ImageBuilder) -> Sequence[str] | str:
        if call.op not in _NAMES or None in call.inputs:
            return rule(call, b)
        names = call.values()
        shapes = [b.shape(name) for name in names]
        is_image = any(b.has_channels_first(name) for name in names)
        if not is_image or max(map(len, shapes)) != _IMAGE_RANK:
            return rule(call, b)
        moved = tuple(_moved(b, name) for name in names)
        result = rule(dataclasses.replace(call, names=moved), b)
        assert isinstance(result, str)
        return b.channels_last(result)

    return ruled


def _moved(b: ImageBuilder, x: str) -> str:
    """Return an operand reshaped and transposed so that it broadcasts against NCHW images as it did
    against NHWC images."""
    shape = b.shape(x)
    if all(extent == 1 for extent in shape):
        return b.add("Reshape", x, []) if shape else x
    if len(shape) == _IMAGE_RANK:
        return b.channels_first(x)
    whole = b.add("Reshape", x, [*(1,) * (_IMAGE_RANK - len(shape)), *shape])
    return b.add("Transpose", whole, perm=first_axes(_IMAGE_RANK))
