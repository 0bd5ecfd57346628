"""The pass `block-products`, which multiplies by weights that are quantized in blocks without
dequantizing them first."""

from __future__ import annotations

import dataclasses

from farrier.intrinsics.dot import held_as
from farrier.ir.dim import product
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType
from farrier.ops.conversion import CAST
from farrier.ops.quantize import DEQUANTIZE
from farrier.ops.slicing import SLICE
from farrier.ops.view import RESHAPE
from farrier.passes.block_weights import (
    BlockWeights,
    drops_ends,
    finished_product,
    multiplied_weights,
    replace_products,
    whole_rows,
)
from farrier.passes.rewriting import Replacement, Rewriter
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes.block_tables import gathered_codes
from farrier.targets.cpu.target import CpuTarget, as_cpu

# The operators that move or convert the elements of rows.
_MOVES = frozenset(move.name for move in (CAST, SLICE, RESHAPE))


def block_products(graph: Graph, settings: Settings) -> Graph:
    """Replace a product with a dequantized weight matrix by a BlockMatMul, which reads the
    quantized codes (the integers of the weights) directly. The dequantized matrix is then never
    stored. The pass applies if the codes have less than a byte each, or if their scales apply to
    blocks of rows.

    Codes of less than a byte become unsigned, with the middle of their range as zero point, so that
    unpacking them needs no sign extension. The rows of the other factor are padded with zeros to
    whole blocks. If the other factor was quantized in the same blocks as well, the product is
    computed in integers on targets with fitting dot products.

    before:
        @graph
        def g(x: f32[1, 2]):
            w: u4[1, 2, 8] = constant([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0])
            s: f32[1, 1, 8] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            k: i64[2] = constant([2, 8])
            d: f32[1, 2, 8] = DequantizeLinear(w, s, to='f32')
            m: f32[2, 8] = Reshape(d, k, allowzero=0)
            y: f32[1, 8] = MatMul(x, m)
            return y

    after:
        @graph
        def g(x: f32[1, 2]):
            w_codes: u4[1, 2, 8] = constant([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0])
            s_scales: f32[1, 8] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            y: f32[1, 8] = BlockMatMul(x, w_codes, s_scales, zero=0)
            return y
    """
    target = as_cpu(settings.target)

    def replaced(node: Node, rewriter: Rewriter) -> tuple[Node, ...]:
        return _product(node, rewriter, target) or gathered_codes(node, rewriter)

    return replace_products(graph, replaced)


def _product(node: Node, rewriter: Rewriter, target: CpuTarget) -> tuple[Node, ...]:
    """Return the nodes that replace `node` and multiply by codes, or none if `node` is not such a
    product."""
    weights = multiplied_weights(node, rewriter)
    if weights is None:
        return ()
    x = node.inputs[0]
    assert x is not None
    rows = _rows(x, weights, rewriter)
    has_real_zeros = weights.zeros is not None and weights.zeros.type.dtype.is_float
    if rows is not None and not has_real_zeros and has_dot(weights.codes.type.dtype, target):
        return _multiplied(node, x, weights, rewriter, rows)
    return _multiplied(node, x, weights, rewriter)


def _rows(x: Value, weights: BlockWeights, rewriter: Rewriter) -> tuple[Value, Value] | None:
    """Return the codes and scales from which the left factor `x` was dequantized, if its rows are
    i8 in the same blocks as the weights; else None. Codes have the shape [..., blocks, block],
    scales [..., blocks, 1]."""
    node = rewriter.producer(x)
    while node is not None and node.op in _MOVES:
        before, after = node.inputs[0], node.outputs[0]
        assert before is not None
        if SLICE.matches(node) and (
            before.type.shape[:-1] != after.type.shape[:-1] or not drops_ends(node, rewriter)
        ):
            return None
        node = rewriter.producer(node.inputs[0])
    if not DEQUANTIZE.matches(node) or len(node.inputs) != 2:
        return None
    codes, scales = node.inputs
    assert codes is not None
    assert scales is not None
    blocks, block, _ = weights.codes.type.static_shape
    lead = x.type.shape[:-1]
    shapes = codes.type.shape, scales.type.shape
    if codes.type.dtype is not DType.I8 or shapes != ((*lead, blocks, block), (*lead, blocks, 1)):
        return None
    return codes, scales


def has_dot(codes: DType, target: CpuTarget) -> bool:
    """Check whether the target has a dot product for factors of the dtype `codes` and i8."""
    dots = (target.dot_of(kind, DType.I8, DType.I32) for kind in held_as(codes))
    return any(dot is not None for dot in dots)


def _multiplied(
    node: Node,
    x: Value,
    weights: BlockWeights,
    rewriter: Rewriter,
    rows: tuple[Value, Value] | None = None,
) -> tuple[Node, ...]:
    replacement = Replacement(node, rewriter)
    real = dataclasses.replace(node.outputs[0].type, dtype=DType.F32)
    operands: list[Value | None]
    if rows is None:
        operands = [whole_rows(x, weights, replacement, rewriter)]
        operands += [weights.codes, weights.scales]
        operands += [] if weights.zeros is None else [weights.zeros]
    else:
        codes, row_scales = rows
        lead = codes.type.shape[:-2]
        flat = replacement.reshape(codes, (*lead, product(codes.type.shape[-2:])), "codes")
        scales = replacement.reshape(row_scales, row_scales.type.shape[:-1], "scales")
        operands = [flat, weights.codes, weights.scales, weights.zeros, scales]
    result = replacement.add("BlockMatMul", operands, real, "product", zero=weights.zero)
    return finished_product(node, result, replacement)
