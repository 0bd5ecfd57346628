"""The pass `widen-integers`, which multiplies bytes as 16-bit integers if the target has dot
products only for these."""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import Extent, is_less
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType
from farrier.ops import Product, product_of
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings
from farrier.targets.cpu.target import CpuTarget, as_cpu

_FIT = frozenset((DType.I8, DType.U8, DType.I16))  # The types whose values i16 holds.


def widen_integers(graph: Graph, settings: Settings) -> Graph:
    """Convert the operands of integer products to i16 if the target has dot products for i16 but
    not for the operands' dtype. The conversions are fused with the computation of the operand, and
    folded for constant weights. Products whose terms do not divide into groups for the dot product
    stay unchanged. The pass must run after the last eliminate-common-subexpressions.

    before:
        @graph
        def g(x: i8[2, 4], w: i8[4, 8]):
            y: i32[2, 8] = MatMul(x, w, accumulator='i32')
            return y

    after:
        @graph
        def g(x: i8[2, 4], w: i8[4, 8]):
            x_i16: i16[2, 4] = Cast(x, to='i16')
            w_i16: i16[4, 8] = Cast(w, to='i16')
            y: i32[2, 8] = MatMul(x_i16, w_i16, accumulator='i32')
            return y
    """
    rewriter, target = Rewriter(graph), as_cpu(settings.target)
    widened: dict[str, Value] = {}
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        if _is_widened(node, target):
            wide = tuple(_wide(value, widened, rewriter) for value in node.inputs[:2])
            node = dataclasses.replace(node, inputs=(*wide, *node.inputs[2:]))
        rewriter.emit(node)
    return rewriter.finish()


def _is_widened(node: Node, target: CpuTarget) -> bool:
    if product_of(node) not in (Product.MATRIX, Product.CONVOLUTION):
        return False
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    kinds, total = {x.type.dtype, w.type.dtype}, node.outputs[0].type.dtype
    if not kinds <= _FIT or target.dot_of(x.type.dtype, w.type.dtype, total) is not None:
        return False
    dot = target.dot_of(DType.I16, DType.I16, total)
    if dot is None or kinds == {DType.I16}:
        return False
    return _neighbours(node, x, w, target.lanes) % dot.group == 0


def _neighbours(node: Node, x: Value, w: Value, lanes: int) -> Extent:
    """Return how many terms of a product's sum are adjacent in memory. Images with few channels are
    stored plane by plane (`integer-products`)."""
    if product_of(node) is Product.MATRIX:
        return x.type.shape[-1]
    return w.type.shape[-1] if is_less(w.type.shape[1], lanes) else w.type.shape[1]


def _wide(value: Value | None, widened: dict[str, Value], rewriter: Rewriter) -> Value:
    """Return a value converted to i16. All nodes that read the converted value share one
    conversion."""
    assert value is not None
    if value.type.dtype is DType.I16:
        return value
    if value.name not in widened:
        kind = dataclasses.replace(value.type, dtype=DType.I16)
        widened[value.name] = Value(rewriter.fresh(f"{value.name}_i16"), kind)
        cast = attributes(to=DType.I16.value)
        rewriter.emit(Node("Cast", (value,), (widened[value.name],), cast))
    return widened[value.name]
