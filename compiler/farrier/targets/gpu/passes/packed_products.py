"""The pass `packed-products`, which multiplies by weights that are quantized in blocks as their
codes are packed in words."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.dim import product, typical
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType, TensorType
from farrier.ops.packed import RUN, WORDS, group_of, packed, packed_by_column
from farrier.options.precision import Precision
from farrier.passes.block_weights import (
    BlockWeights,
    finished_product,
    multiplied_weights,
    replace_products,
    whole_rows,
)
from farrier.passes.rewriting import Replacement, Rewriter, derived
from farrier.passes.settings import Settings

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

# Tensor cores multiply this many rows of narrow factors at once; they read dequantized weights.
_ROWS_OF_TENSOR_CORES = 16
_BITS = (2, 4, 8)


def packed_products(graph: Graph, settings: Settings) -> Graph:
    """Replace a product with a dequantized weight matrix by a PackedMatMul, which reads the
    quantized codes (the integers of the weights) from words of 32 bits; the dequantized matrix is
    never stored. If the other factor is rounded to a narrow type, products of many rows keep their
    dequantized weights, which tensor cores multiply.

    before:
        @graph
        def g(x: f32[1, 4]):
            w: u4[1, 4, 8] = constant([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8])
            s: f32[1, 1, 8] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            k: i64[2] = constant([4, 8])
            d: f32[1, 4, 8] = DequantizeLinear(w, s, to='f32')
            m: f32[4, 8] = Reshape(d, k, allowzero=0)
            y: f32[1, 8] = MatMul(x, m)
            return y

    after:
        @graph
        def g(x: f32[1, 4]):
            w_codes_words: u32[1, 1, 4] = constant([572657937, 1145320243, 1717982549, 2290644855])
            s_scales_groups: f32[1, 1, 8] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            y: f32[1, 8] = PackedMatMul(x, w_codes_words, s_scales_groups, bits=4, columns=8, zero=0)
            return y
    """  # noqa: E501
    return replace_products(
        graph, lambda node, rewriter: _product(node, rewriter, settings.precision)
    )


def _product(node: Node, rewriter: Rewriter, precision: Precision) -> tuple[Node, ...]:
    """Return the nodes that replace `node` and multiply by packed codes, or none if `node` is not
    such a product."""
    weights = multiplied_weights(node, rewriter)
    if weights is None:
        return ()
    x = node.inputs[0]
    assert x is not None
    _, block, columns = weights.codes.type.static_shape
    if block % RUN or weights.codes.type.dtype.bits not in _BITS:
        return ()
    rows = typical(product(x.type.shape[:-1]))
    if precision is not Precision.F32 and rows >= _ROWS_OF_TENSOR_CORES:
        return ()
    replacement = Replacement(node, rewriter)
    zero, operands = _operands(weights, rewriter)
    rounded = whole_rows(x, weights, replacement, rewriter)
    kind = dataclasses.replace(node.outputs[0].type, dtype=DType.F32)
    attrs = {"bits": weights.codes.type.dtype.bits, "columns": columns, "zero": zero}
    result = replacement.add("PackedMatMul", (rounded, *operands), kind, "product", **attrs)
    return finished_product(node, result, replacement)


def _operands(weights: BlockWeights, rewriter: Rewriter) -> tuple[int, list[Value]]:
    """Return the zero point of all codes, and the operands of a PackedMatMul other than its rows.
    Signed codes are raised to be unsigned, and their zero points with them."""
    codes = weights.codes.type
    blocks, block, columns = codes.static_shape
    bits = codes.dtype.bits
    group = group_of(bits)
    groups, terms = -(-columns // group), blocks * block
    raised = 1 << bits - 1 if codes.dtype.is_signed else 0

    def unsigned(array: Array) -> npt.NDArray[np.uint8]:
        return array.view(np.uint8) + np.uint8(raised)

    def words(array: Array) -> Array:
        return packed(unsigned(array).reshape(terms, columns), bits)

    def zero_points(array: Array) -> Array:
        return packed_by_column(unsigned(array), bits)

    def by_group(array: Array) -> Array:
        padded = np.pad(array, ((0, 0), (0, groups * group - columns)))
        return np.ascontiguousarray(padded.reshape(blocks, groups, group).transpose(1, 0, 2))

    def by_group_raised(array: Array) -> Array:
        return by_group(np.asarray(array + raised, array.dtype))

    def added(value: Value, kind: TensorType, function: Any, hint: str) -> Value:
        constant = rewriter.constant_of(value)
        assert constant is not None
        content = derived(kind, (constant,), function, f"{hint} {kind} {raised}")
        return rewriter.constant(content, f"{value.name}_{hint}")

    of_words = TensorType(DType.U32, (groups, terms // RUN, WORDS))
    of_scales = TensorType(weights.scales.type.dtype, (groups, blocks, group))
    operands = [
        added(weights.codes, of_words, words, "words"),
        added(weights.scales, of_scales, by_group, "groups"),
    ]
    zeros = weights.zeros
    if zeros is None:
        return weights.zero + raised, operands
    if zeros.type.dtype.is_float:
        kind = dataclasses.replace(of_scales, dtype=zeros.type.dtype)
        return 0, [*operands, added(zeros, kind, by_group_raised, "groups")]
    kind = TensorType(DType.U32, (groups, blocks))
    return 0, [*operands, added(zeros, kind, zero_points, "words")]
