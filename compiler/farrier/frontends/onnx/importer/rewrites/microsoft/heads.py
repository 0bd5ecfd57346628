"""The common parts of attention rewrites: heads, masks, scores, and the product of softmax and
values.

Queries are [batch, heads, queries, size], keys and values [batch, heads, keys, size]. Masks
broadcast to the scores, [batch, heads, queries, keys].
"""

from __future__ import annotations

import math

import numpy as np

from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.ir.dim import Extent, number, product
from farrier.ops import Mismatch, NotSupported

FILTERED = -10000.0  # The default of mask_filter_value in ONNX Runtime's schemas.


def split_heads(p: Parts, x: str, count: int) -> str:
    """Reshape [batch, length, count · size] to [batch, count, length, size]."""
    return p.transpose(p.reshape(x, 0, 0, count, -1), 0, 2, 1, 3)


def join_heads(p: Parts, x: str) -> str:
    """Reshape [batch, heads, length, size] to [batch, length, heads · size]."""
    batch, heads, length, size = p.shape(x)
    return p.reshape(p.transpose(x, 0, 2, 1, 3), batch, length, number(heads) * number(size))


def scores(p: Parts, q: str, k: str) -> str:
    """Return q kᵀ · scale, with a soft cap if the attribute `softcap` is set."""
    size = number(p.shape(q)[-1])
    scale = p.attrs.get("scale", 0.0) or 1 / math.sqrt(size)
    raw = p("Mul", p("MatMul", q, p.transpose(k, 0, 1, 3, 2)), p.number(scale))
    cap = float(p.attrs.get("softcap", 0.0))
    if not cap:
        return raw
    return p("Mul", p("Tanh", p("Mul", raw, p.number(1 / cap))), p.number(cap))


def context(p: Parts, q: str, k: str, v: str, mask: str) -> str:
    """Return softmax(q kᵀ · scale + mask) v; `mask` is "" if there is none."""
    return p("MatMul", p("Softmax", p.sum(scores(p, q, k), mask), axis=-1), v)


def lowest(p: Parts) -> str:
    """Return the number that is added to hidden scores: half of the lowest f32, or for types of 16
    bits about the lowest f16 (-65504), so that the sum with a score is finite."""
    return p.number(float(np.finfo(np.float32).min) / 2 if p.dtype.bits >= 32 else -6e4)


def padding(p: Parts, mask: str, past: Extent, q: str, k: str) -> str:
    """Return the padding mask as numbers to add to the scores, or "" without a mask: 0 for visible
    keys, `mask_filter_value` for hidden ones. ONNX Runtime accepts these forms of masks:

        [batch]                    the number of visible keys
        [2 · batch]                the ends of the visible keys, then their starts
        [3 · batch + 2]            the number of visible keys, then ignored offsets of a packed form
        [batch, keys]              1 for each visible key
        [batch, queries, keys]     1 for each visible pair
        [batch, 1, most, most]     1 for each visible pair of positions, including the past
    """
    if not mask:
        return ""
    batch, _, queries, _ = p.shape(q)
    keys, shape = p.shape(k)[2], p.shape(mask)
    if len(shape) == 1:
        is_kept = _between(p, mask, batch, keys)
    else:
        if len(shape) == 4:
            mask = p.cut(p.cut(mask, past, past + queries, 2), 0, keys, 3)
        is_kept = p("Cast", widened(p, mask, keys), to="bool")
    filtered = float(p.attrs.get("mask_filter_value", FILTERED))
    added = p("Where", is_kept, p.number(0), p.number(filtered))
    match len(p.shape(is_kept)):
        case 2:
            return p.unsqueeze(added, 1, 2)
        case 3:
            return p.unsqueeze(added, 1)
    return added


def widened(p: Parts, x: str, keys: Extent) -> str:
    """Return `x` with its last axis padded with zeros to `keys` elements, one for each slot of the
    cache."""
    missing = keys - p.shape(x)[-1]
    if not x or missing == 0:
        return x
    return p("Pad", x, p.ints(*(0,) * (2 * len(p.shape(x)) - 1), missing))


def _between(p: Parts, mask: str, batch: Extent, keys: Extent) -> str:
    """Return a bool [batch, keys], true for the visible keys according to a mask of rank 1, which
    contains their numbers, or their ends and starts (`padding`)."""
    bounds, at = p("Cast", mask, to="i64"), places(keys, p.scope)
    (count,) = p.shape(mask)
    if count == batch:
        return p("Less", at, p.unsqueeze(bounds, 1))
    if count == product((3, batch)) + 2:
        return p("Less", at, p.unsqueeze(p.cut(bounds, 0, batch, 0), 1))
    if count != product((2, batch)):
        raise NotSupported(f"a mask of shape ({count},) for {batch} rows")
    ends, starts = (p.unsqueeze(p.cut(bounds, low, high, 0), 1) for low, high in (
        (0, batch), (batch, count)
    ))  # fmt: skip
    return p("And", p("Less", at, ends), p("GreaterOrEqual", at, starts))


def causal(p: Parts, q: str, k: str, past: str) -> str:
    """Return the mask, [queries, keys], that hides keys later than the query, or "" without the
    attribute `unidirectional`. `past` is the number of keys before the first query."""
    if not p.attrs.get("unidirectional", 0):
        return ""
    own = p("Add", places(p.shape(q)[2], p.scope), past)
    is_seen = p("LessOrEqual", places(p.shape(k)[2], p.scope), p.unsqueeze(own, 1))
    return p("Where", is_seen, p.number(0), lowest(p))


def unpacked(p: Parts, heads: int, query: str, key: str, value: str, bias: str) -> tuple[str, ...]:
    """Return queries, keys and values, [batch, heads, length, size], from separate inputs or from
    ONNX Runtime's packed forms. `bias` is the concatenation of the three biases."""
    packed = [name for name in (query, key) if name and len(p.shape(name)) == 5]
    if packed:  # The packed input is [batch, length, heads, 3 or 2, size].
        if bias:
            raise NotSupported("a bias of packed operands")
        (source,) = packed
        count = 3 if source == query else 2
        parts = [p.transpose(p.pick(source, i, 3), 0, 2, 1, 3) for i in range(count)]
        return (*([] if count == 3 else [split_heads(p, query, heads)]), *parts)
    if not key:
        raise Mismatch("keys are omitted")
    operands, low = [query, key, value], 0
    for position, name in enumerate(operands):
        if bias and len(p.shape(name)) == 3:
            high = low + number(p.shape(name)[-1])
            operands[position] = p("Add", name, p.cut(bias, low, high, 0))
            low = high
    return tuple(x if len(p.shape(x)) == 4 else split_heads(p, x, heads) for x in operands)
