"""Rewrite RotaryEmbedding of com.microsoft to ONNX's RotaryEmbedding."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import Extent, number


def rotary_embedding(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite RotaryEmbedding, whose position input has the positions of all tokens or only of the
    first one."""
    p = Parts(node, scope)
    x, cosines, sines = p.input(0), p.input(2), p.input(3)
    shape = scope.shape(x)
    length = shape[1 if len(shape) == 3 else 2]
    positions = each_position(p, p.input(1), shape[0], length)
    width, heads = number(scope.shape(cosines)[1]) * 2, int(node.attrs.get("num_heads", 0))
    kept = {"interleaved": int(node.attrs.get("interleaved", 0))}
    if len(shape) == 3:
        kept["num_heads"] = heads or number(shape[2]) // width
    if len(shape) == 4 or heads:
        size = number(shape[-1]) // (kept.get("num_heads", 1))
        kept["rotary_embedding_dim"] = 0 if width == size else width
    # The attribute `scale` has no effect in ONNX Runtime either.
    return p.results(p("RotaryEmbedding", x, cosines, sines, positions, **kept))


def each_position(p: Parts, positions: str, batch: Extent, length: Extent) -> str:
    """Return the positions of all tokens, [batch, length]; `positions` may have only the first one
    of each row."""
    if len(p.shape(positions)) > 1:
        return positions
    first = p.reshape(positions, 1, 1)
    return p("Expand", p("Add", first, places(length, p.scope)), p.ints(batch, length))


RULES: dict[str, Upgrade] = {"RotaryEmbedding": rotary_embedding}
