"""Rewrite normalizations fused with sums, embeddings and activations to unfused nodes."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.microsoft.activations import swish
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.rewrites.quantized import real
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number, product
from farrier.ir.types import DType
from farrier.ops import NotSupported

_EPSILON = 1e-12  # The default of ONNX Runtime's schemas for normalizations of transformers.
_GROUP_EPSILON = 1e-5  # The default of ONNX Runtime's schemas for GroupNorm and SkipGroupNorm.


def simplified_layer_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite SimplifiedLayerNormalization, ONNX Runtime's name for RMSNormalization."""
    p = Parts(node, scope)
    kept = {k: node.attrs[k] for k in ("axis", "epsilon") if k in node.attrs}
    return p.results(p("RMSNormalization", *node.inputs[:2], **kept))


def skip_layer_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite SkipLayerNormalization and SkipSimplifiedLayerNormalization: the normalization of a
    sum, its statistics, and the sum."""
    p = Parts(node, scope)
    epsilon = float(node.attrs.get("epsilon", _EPSILON))
    is_simple = "Simplified" in node.op
    total = p.sum(p.input(0), p.input(1), p.input(3 if is_simple else 4))
    if is_simple:
        normal = p("RMSNormalization", total, p.input(2), axis=-1, epsilon=epsilon)
    else:
        normal = _normal(p, total, p.input(2), p.input(3), epsilon)
    mean, inverse = _statistics(p, total, epsilon, is_simple)
    return p.results(normal, mean, inverse, total)


def _normal(p: Parts, x: str, gamma: str, beta: str, epsilon: float) -> str:
    parameters = [gamma, *filter(None, [beta])]
    return p("LayerNormalization", x, *parameters, axis=-1, epsilon=epsilon)


def _statistics(p: Parts, x: str, epsilon: float, is_simple: bool) -> tuple[str, str]:
    """Return the mean along the last axis and 1 / sqrt(variance + epsilon), in f32, or "" for those
    that no node reads. If `is_simple` (RMSNormalization), the mean is not subtracted."""
    if not (p.is_read(1) or p.is_read(2)):
        return "", ""
    x, axis = p.cast(x, DType.F32), p.ints(-1)
    mean = p("ReduceMean", x, axis, keepdims=1)
    centred = x if is_simple else p("Sub", x, mean)
    variance = p("ReduceMean", p("Mul", centred, centred), axis, keepdims=1)
    spread = p("Sqrt", p("Add", variance, p.single(epsilon)))
    return mean, p("Reciprocal", spread)


def embed_layer_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite EmbedLayerNormalization: the sum of the embeddings of tokens, positions and segments,
    normalized."""
    p = Parts(node, scope)
    tokens, segments, words, positions, kinds, gamma, beta = (p.input(i) for i in range(7))
    epsilon = float(node.attrs.get("epsilon", _EPSILON))
    terms = _rows(p, (words, tokens), (positions, p.input(8)), (kinds, segments))
    total = p.sum(*terms)
    normal = _normal(p, total, gamma, beta, epsilon)
    return p.results(normal, _counted_tokens(p, tokens, p.input(7)), total)


def quantized_embed_layer_normalization(
    node: RawNode, opset: int, scope: ImportScope
) -> list[RawNode]:
    """Rewrite QEmbedLayerNormalization, whose tables and parameters are each quantized with one
    scale."""
    p = Parts(node, scope)
    tokens, segments, words, positions, kinds, gamma, beta = (p.input(i) for i in range(7))
    rows = _rows(p, (words, tokens), (positions, ""), (kinds, segments))
    quantized = zip((*rows, gamma, beta), (0, 1, 2, 3, 4), strict=True)
    *terms, gamma, beta = (
        real(x, p.input(8 + at), p.input(13 + at), scope) if x else "" for x, at in quantized
    )
    epsilon = float(node.attrs.get("epsilon", _EPSILON))
    normal = _normal(p, p.sum(*terms), gamma, beta, epsilon)
    return p.results(normal, _counted_tokens(p, tokens, p.input(7)))


def _rows(p: Parts, *tables: tuple[str, str]) -> tuple[str, str, str]:
    """Return the rows gathered from three tables (table, indices): tokens, positions and segments.
    Omitted positions are 0, 1, 2, …; for omitted segments the result is ""."""
    (words, tokens), (table, positions), (kinds, segments) = tables
    rows = p("Gather", words, tokens, axis=0)
    if positions:
        places = p("Gather", table, positions, axis=0)
    else:
        places = p("Slice", table, p.ints(0), p("Shape", tokens, start=1), p.ints(0))
    return rows, places, p("Gather", kinds, segments, axis=0) if kinds and segments else ""


def _counted_tokens(p: Parts, tokens: str, mask: str) -> str:
    """Return the number of tokens that a mask selects in each row, i32 [batch], or "" if no node
    reads it. As in ONNX Runtime it is 0 without a mask."""
    if not p.is_read(1):
        return ""
    if mask:
        return p("Cast", p("ReduceSum", mask, p.ints(1), keepdims=0), to=str(DType.I32))
    return p("Cast", p("Expand", p.whole(0), p.ints(p.shape(tokens)[0])), to=str(DType.I32))


def group_norm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite GroupNorm and SkipGroupNorm: a sum, its normalization by groups of channels, and
    SiLU."""
    p = Parts(node, scope)
    activation = int(node.attrs.get("activation", 0))
    if activation not in (0, 1):
        raise NotSupported(f"activation {activation}")
    is_last = bool(node.attrs.get("channels_last", 1))
    total, rank = _skipped(p, is_last), len(p.shape(p.input(0)))
    x = p.transpose(total, 0, rank - 1, *range(1, rank - 1)) if is_last else total
    groups, epsilon = int(node.attrs["groups"]), float(node.attrs.get("epsilon", _GROUP_EPSILON))
    wide = p.cast(x, DType.F32)
    scales = (p.cast(name, DType.F32) for name in (p.input(1), p.input(2)))
    normal = p("GroupNormalization", wide, *scales, num_groups=groups, epsilon=epsilon)
    normal = p.cast(swish(p, normal) if activation else normal, p.dtype)
    normal = p.transpose(normal, 0, *range(2, rank), 1) if is_last else normal
    return p.results(normal, total)


def _skipped(p: Parts, is_last: bool) -> str:
    """Return the input of SkipGroupNorm's normalization: the sum of an image, a skip connection
    (possibly one vector per image), and a bias per channel."""
    x, skip, bias = p.input(0), p.input(3), p.input(4)
    inner = (1,) * (len(p.shape(x)) - 2)
    if skip and product(p.shape(skip)[1:]) == p.shape(x)[-1 if is_last else 1]:
        batch, channels = p.shape(skip)[0], number(product(p.shape(skip)[1:]))
        shape = (batch, *inner, channels) if is_last else (batch, channels, *inner)
        skip = p.reshape(skip, *shape)
    if bias and not is_last:
        bias = p.reshape(bias, -1, *inner)
    return p.sum(x, skip, bias)


RULES: dict[str, Upgrade] = {
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_layer_normalization,
    "EmbedLayerNormalization": embed_layer_normalization,
    "QEmbedLayerNormalization": quantized_embed_layer_normalization,
    "GroupNorm": group_norm,
    "SkipGroupNorm": group_norm,
}
