"""Recover the float model from which a quantized model was derived, to compare the speed of the
two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType
from farrier.ops import product_of
from farrier.ops.quantize import DEQUANTIZE, QUANTIZE
from farrier.passes.rewriting import Rewriter

_BYTES = (DType.U8, DType.I8)


def float_form(graph: Graph) -> Graph:
    """Return the graph without rounding between its operators.

    A QuantizeLinear followed by a DequantizeLinear becomes a Clip, which preserves an activation
    that was folded into the quantization. Dequantized constants are left to fold-constants.
    """
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        rewriter.emit(_clip(rewriter, node) or node)
    return rewriter.finish()


def has_pairs(graph: Graph) -> bool:
    """Check whether a DequantizeLinear reads the result of a QuantizeLinear."""
    quantized = {n.outputs[0].name for n in graph.nodes if QUANTIZE.matches(n)}
    read = (n.inputs[0] for n in graph.nodes if DEQUANTIZE.matches(n))
    return any(value is not None and value.name in quantized for value in read)


def products_of_bytes(graph: Graph) -> Iterator[Node]:
    """Yield the contractions whose operands are bytes, or were dequantized from bytes."""
    producers = {value.name: node for node in graph.nodes for value in node.outputs}
    for node in graph.nodes:
        if product_of(node) is None:
            continue
        if all(_holds_bytes(value, producers) for value in node.inputs[:2]):
            yield node


def _holds_bytes(value: Value | None, producers: dict[str, Node]) -> bool:
    if value is None or value.type.dtype in _BYTES:
        return value is not None
    node = producers.get(value.name)
    if not DEQUANTIZE.matches(node):
        return False
    source = node.inputs[0]
    return source is not None and source.type.dtype in _BYTES


def _clip(rewriter: Rewriter, node: Node) -> Node | None:
    """Return the Clip with the effect of a QuantizeLinear and DequantizeLinear on floats, except
    for the rounding; None if `node` is not such a pair."""
    quantize = rewriter.producer(node.inputs[0]) if DEQUANTIZE.matches(node) else None
    source = quantize.inputs[0] if QUANTIZE.matches(quantize) else None
    (y,) = node.outputs[:1]
    if source is None or source.type != y.type:
        return None
    scale, zero = (rewriter.data(value) for value in (*node.inputs[1:], None)[:2])
    between = node.inputs[0]
    assert between is not None
    if scale is None or scale.size != 1 or not between.type.dtype.is_integer:
        return None
    edges = np.array(between.type.dtype.limits, np.float32)
    point = np.float32(0) if zero is None else zero.reshape(-1)[:1].astype(np.float32)
    low, high = (
        rewriter.constant(np.array(edge, y.type.dtype.numpy), f"{y.name}_{name}")
        for name, edge in zip(("low", "high"), (edges - point) * scale.reshape(()), strict=True)
    )
    return Node("Clip", (source, low, high), node.outputs, origin=node.origin)
