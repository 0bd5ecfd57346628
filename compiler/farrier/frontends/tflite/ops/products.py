"""Rules of matrix products."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.activations import activated
from farrier.frontends.tflite.ops.hybrid import (
    is_hybrid,
    quantized_activations,
    scaled_sums,
    signed_weights,
)
from farrier.ops import Mismatch, NotSupported


def _fully_connected(call: Call, b: Builder) -> str:
    """Convert FULLY_CONNECTED, with weights [outputs, inputs]."""
    x, weights = call.value(0), call.value(1)
    if is_hybrid(call):
        product = _hybrid(call, b)
    else:
        product = b.add("MatMul", rows(call, b, x), b.add("Transpose", weights, perm=(1, 0)))
    if call.has(2):
        product = b.add("Add", product, call.value(2))
    return activated(b, product, call.option("activation"))


def _hybrid(call: Call, b: Builder) -> str:
    """Convert FULLY_CONNECTED of floats with i8 weights: quantize the rows at run time, and
    multiply integers."""
    weights, x = signed_weights(call), rows(call, b, call.value(0))
    activations = quantized_activations(call, b, x, is_asymmetric=call.option("asymmetric"))
    matrix = b.constant(np.ascontiguousarray(weights.T))
    sums = b.add("MatMul", activations.bytes, matrix, accumulator="i32")
    return scaled_sums(call, b, sums, activations, weights.sum(axis=1, dtype=np.int64), (-1,))


def rows(call: Call, b: Builder, x: str) -> str:
    """Return the left operand of FULLY_CONNECTED reshaped to rows as long as the weights' rows."""
    if call.option("format"):
        raise NotSupported("shuffled weights")
    inner = b.shape(call.value(1))[-1]
    shape = b.shape(x)
    if call.option("keep_dims") or (len(shape) == 2 and shape[-1] == inner):
        return x
    if not isinstance(inner, int) or not inner:
        raise Mismatch(f"its weights have the shape {b.shape(call.value(1))}")
    return b.add("Reshape", x, [-1, inner])


def _batched(call: Call, b: Builder) -> str:
    """Convert BATCH_MATMUL, whose factors may be transposed."""
    factors = call.values()
    for position, name in enumerate(("adj_x", "adj_y")):
        rank = len(b.shape(factors[position]))
        if call.option(name):
            swapped = (*range(rank - 2), rank - 1, rank - 2)
            factors[position] = b.add("Transpose", factors[position], perm=swapped)
    return b.add("MatMul", *factors)


RULES: dict[str, Rule] = {"FULLY_CONNECTED": _fully_connected, "BATCH_MATMUL": _batched}
