"""Let operators on floats of at most 16 bits compute in f32."""

from __future__ import annotations

import dataclasses

from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType
from farrier.ops import Kind, Product, Trait, lookup
from farrier.passes.rewriting import Rewriter

_COMPUTING = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.CONTRACTION)
# Products that multiply factors as they are, and sum in their accumulator.
_SUMMED_WIDE = (Product.MATRIX, Product.CONVOLUTION)


def widen_floats(graph: Graph) -> Graph:
    """Let every operator on f16 or bf16 compute in f32, and round its result once. The conversions
    before and after an operator are fused with its neighbours. Products read their operands without
    conversion. The pass must run after the last eliminate-common-subexpressions, so that every
    reader has a conversion of its own.

    before:
        @graph
        def g(x: f16[2, 4], w: f16[4, 4]):
            a: f16[2, 4] = MatMul(x, w)
            r: f16[2, 4] = Relu(a)
            y: f16[2, 4] = Softmax(r, axis=-1)
            return y

    after:
        @graph
        def g(x: f16[2, 4], w: f16[4, 4]):
            a_f32: f32[2, 4] = MatMul(x, w, accumulator='f32')
            a: f16[2, 4] = Cast(a_f32, to='f16')
            r: f16[2, 4] = Relu(a)
            r_f32: f32[2, 4] = Cast(r, to='f32')
            y_f32: f32[2, 4] = Softmax(r_f32, axis=-1)
            y: f16[2, 4] = Cast(y_f32, to='f16')
            return y
    """
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        if _is_widened(node):
            _widen(node, rewriter)
        else:
            rewriter.emit(node)
    return rewriter.finish()


def _is_widened(node: Node) -> bool:
    operator = lookup(node.op)
    if node.regions or operator.kind not in _COMPUTING or operator.has(Trait.EXACT):
        return False
    if any(name == "accumulator" for name, _ in node.attrs):
        return False
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return any(map(_is_narrow, values))


def _is_narrow(value: Value) -> bool:
    return value.type.dtype in (DType.F16, DType.BF16)


def _widen(node: Node, rewriter: Rewriter) -> None:
    operator = lookup(node.op)
    factors = 2 if operator.product in _SUMMED_WIDE else 0
    static = operator.static
    inputs = tuple(
        value
        if value is None or position < factors or position in static or not _is_narrow(value)
        else _converted(value, node, rewriter)
        for position, value in enumerate(node.inputs)
    )
    outputs = tuple(
        _wide(value, rewriter) if _is_narrow(value) else value for value in node.outputs
    )
    attrs = dict(node.attrs)
    if factors:
        attrs["accumulator"] = DType.F32.value
    wide = dataclasses.replace(
        node, inputs=inputs, outputs=outputs, attrs=tuple(sorted(attrs.items()))
    )
    rewriter.emit(wide)
    for narrow, wide_output in zip(node.outputs, outputs, strict=True):
        if wide_output is not narrow:
            rewriter.emit(_cast(wide_output, narrow, node.origin))


def _converted(value: Value, node: Node, rewriter: Rewriter) -> Value:
    wide = _wide(value, rewriter)
    rewriter.emit(_cast(value, wide, node.origin))
    return wide


def _wide(value: Value, rewriter: Rewriter) -> Value:
    type = dataclasses.replace(value.type, dtype=DType.F32)
    return Value(rewriter.fresh(f"{value.name}_f32"), type)


def _cast(source: Value, result: Value, origin: str) -> Node:
    return Node("Cast", (source,), (result,), (("to", result.type.dtype.value),), (), origin)
