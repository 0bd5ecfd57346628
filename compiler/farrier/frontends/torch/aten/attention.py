"""Rules of attention, which the exporter does not decompose: the products and softmax that passes
recognize."""

from __future__ import annotations

import math

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.types import DType
from farrier.ops import NotSupported


@aten("aten.scaled_dot_product_attention.default")
def attention(
    s: Scope,
    query: str,
    key: str,
    value: str,
    attn_mask: str | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str:
    if dropout_p:
        raise NotSupported("dropout in attention (call module.eval() before the export)")
    if enable_gqa:
        key, value = _repeated(s, key, query), _repeated(s, value, query)
    factor = s.scalar(_scale(s, query) if scale is None else scale, s.dtype(query))
    scores = s.node("MatMul", s.node("Mul", query, factor), s.swapped(key, -1, -2))
    if is_causal:
        scores = _masked(s, scores, _causal(s, query, key))
    if attn_mask is not None:
        scores = _masked(s, scores, attn_mask)
    weights = s.node("Softmax", scores, axis=-1)
    if attn_mask is not None and s.dtype(attn_mask) is DType.BOOL:
        weights = _without_empty(s, weights)
    return s.node("MatMul", weights, value)


def _scale(s: Scope, query: str) -> float:
    width = s.shape(query)[-1]
    if not isinstance(width, int):
        raise NotSupported("attention over heads of open width")
    return 1 / math.sqrt(width)


def _masked(s: Scope, scores: str, mask: str) -> str:
    if s.dtype(mask) is not DType.BOOL:
        return s.node("Add", scores, s.cast(mask, s.dtype(scores)))
    return s.node("Where", mask, scores, s.scalar(-math.inf, s.dtype(scores)))


def _without_empty(s: Scope, weights: str) -> str:
    """Replace NaN by zeros in the weights of a query that attends to no key, as torch does."""
    return s.node("Where", s.node("IsNaN", weights), s.scalar(0.0, s.dtype(weights)), weights)


def _causal(s: Scope, query: str, key: str) -> str:
    """Return the causal mask, aligned at the first query and the first key, as torch does."""
    rows, columns = s.shape(query)[-2], s.shape(key)[-2]
    row = s.unsqueeze(s.node("Range", 0, rows, 1), 1)
    return s.node("LessOrEqual", s.node("Range", 0, columns, 1), row)


def _repeated(s: Scope, x: str, query: str) -> str:
    """Return keys or values with each head repeated for the query heads that share it."""
    heads, wanted = s.shape(x)[-3], s.shape(query)[-3]
    if heads == wanted:
        return x
    *outer, _, length, width = s.shape(x)
    wide = [*outer, heads, wanted // heads, length, width]
    repeated = s.expand(s.unsqueeze(x, s.rank(x) - 2), wide)
    return s.reshape(repeated, [*outer, wanted, length, width])
