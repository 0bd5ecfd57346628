"""The pass `round-factors`, which rounds the factors of products to f16, bf16 or tf32; sums stay
f32."""

from __future__ import annotations

import dataclasses

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Product, product_of
from farrier.options.precision import Precision
from farrier.passes.attention import attention_regions
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings


def round_factors(graph: Graph, settings: Settings) -> Graph:
    """Round the factors of f32 convolutions and matrix products to f16 or bf16 (to nearest even) if
    the settings request it. Sums and all other values stay f32.

    With tf32, memory holds f32: an attribute asks the product to round its factors. Only products
    that tensor cores can compute have it; those of an attention and convolutions of each channel
    stay exact.

    before:
        @graph
        def g(x: f32[2, 4], v: f32[4, 8]):
            a: f32[2, 8] = MatMul(x, v)
            y: f32[2, 8] = Relu(a)
            return y

    after:
        @graph
        def g(x: f32[2, 4], v: f32[4, 8]):
            x_f16: f16[2, 4] = Cast(x, to='f16')
            v_f16: f16[4, 8] = Cast(v, to='f16')
            a: f32[2, 8] = MatMul(x_f16, v_f16, accumulator='f32')
            y: f32[2, 8] = Relu(a)
            return y
    """
    if settings.precision is Precision.F32:
        return graph
    if settings.precision is Precision.TF32:
        return _round_to_tf32(graph)
    dtype = settings.precision.dtype
    rewriter = Rewriter(graph)
    rounded: dict[str, Value] = {}
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        if _is_of_f32(node):
            factors = [_rounded(value, dtype, rounded, rewriter, node) for value in node.inputs[:2]]
            attrs = attributes(**dict(node.attrs), accumulator=DType.F32.value)
            inputs = (*factors, *node.inputs[2:])
            node = dataclasses.replace(node, inputs=inputs, attrs=attrs)
        rewriter.emit(node)
    return rewriter.finish()


def _round_to_tf32(graph: Graph) -> Graph:
    attended = attention_regions(graph)
    contexts = {id(node) for node in attended.values()}
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        is_attended = id(original) in attended or id(original) in contexts
        if _is_of_f32(node) and not is_attended and not _is_of_each_channel(node):
            attrs = attributes(**dict(node.attrs), factors=Precision.TF32.value)
            node = dataclasses.replace(node, attrs=attrs)
        rewriter.emit(node)
    return rewriter.finish()


def _is_of_each_channel(node: Node) -> bool:
    weights = node.inputs[1]
    assert weights is not None
    return product_of(node) is Product.CONVOLUTION and weights.type.shape[1] == 1


def _is_of_f32(node: Node) -> bool:
    if product_of(node) not in (Product.MATRIX, Product.CONVOLUTION):
        return False
    factors = node.inputs[:2]
    return all(factor is not None and factor.type.dtype is DType.F32 for factor in factors)


def _rounded(
    value: Value | None, dtype: DType, rounded: dict[str, Value], rewriter: Rewriter, node: Node
) -> Value:
    """Return a factor converted to the narrow dtype. All products that read the factor share one
    conversion."""
    assert value is not None
    if value.name not in rounded:
        kind = TensorType(dtype, value.type.shape)
        new = Value(rewriter.fresh(f"{value.name}_{dtype.value}"), kind)
        cast = attributes(to=dtype.value)
        rewriter.emit(Node("Cast", (value,), (new,), cast, origin=node.origin))
        rounded[value.name] = new
    return rounded[value.name]
