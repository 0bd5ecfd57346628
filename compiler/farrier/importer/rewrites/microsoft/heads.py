"""The parts that attentions share: heads, masks, and the product of softmax and values.

Shapes: queries [batch, heads, queries, size], keys and values [batch, heads, keys, size], masks
something that broadcasts to the scores, [batch, heads, queries, keys].
"""

from __future__ import annotations

import math

import numpy as np

from farrier.importer.rewrites.microsoft.parts import Parts
from farrier.importer.rewrites.sizes import places
from farrier.ir.dim import Extent, number, product
from farrier.ops import Mismatch, NotSupported

FILTERED = -10000.0  # ONNX Runtime's default for mask_filter_value


def split_heads(p: Parts, x: str, count: int) -> str:
    """[batch, length, count · size] → [batch, count, length, size]."""
    return p.transpose(p.reshape(x, 0, 0, count, -1), 0, 2, 1, 3)


def join_heads(p: Parts, x: str) -> str:
    """[batch, heads, length, size] → [batch, length, heads · size]."""
    batch, heads, length, size = p.shape(x)
    return p.reshape(p.transpose(x, 0, 2, 1, 3), batch, length, number(heads) * number(size))


def scores(p: Parts, q: str, k: str) -> str:
    """q kᵀ · scale, softly capped where the node says so."""
    size = number(p.shape(q)[-1])
    scale = p.attrs.get("scale", 0.0) or 1 / math.sqrt(size)
    raw = p("Mul", p("MatMul", q, p.transpose(k, 0, 1, 3, 2)), p.number(scale))
    cap = float(p.attrs.get("softcap", 0.0))
    if not cap:
        return raw
    return p("Mul", p("Tanh", p("Mul", raw, p.number(1 / cap))), p.number(cap))


def context(p: Parts, q: str, k: str, v: str, mask: str) -> str:
    """softmax(q kᵀ · scale + mask) v, `mask` "" where there is none."""
    return p("MatMul", p("Softmax", p.sum(scores(p, q, k), mask), axis=-1), v)


def lowest(p: Parts) -> str:
    """What scores that do not count are raised by: half of the least number, so that a sum with
    them is finite."""
    return p.number(float(np.finfo(np.float32).min) / 2 if p.dtype.bits >= 32 else -6e4)


def padding(p: Parts, mask: str, past: Extent, q: str, k: str) -> str:
    """What a mask of the keys adds to the scores: 0 where it is 1, `mask_filter_value` where it
    is 0; "" where there is no mask. ONNX Runtime's forms of it:

        [batch]                    how many keys count
        [2 · batch]                the ends of those that count, then their beginnings
        [3 · batch + 2]            how many keys count, then where rows begin in a packed form
        [batch, keys]              of each key
        [batch, queries, keys]     of each pair
        [batch, 1, most, most]     of each pair of positions, the past being the first ones
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
    """`x` with zeros behind its last axis, where it is shorter than a buffer of that many keys."""
    missing = keys - p.shape(x)[-1]
    if not x or missing == 0:
        return x
    return p("Pad", x, p.ints(*(0,) * (2 * len(p.shape(x)) - 1), missing))


def _between(p: Parts, mask: str, batch: Extent, keys: Extent) -> str:
    """Which keys lie between the beginnings and ends that a mask holds, [batch, keys]."""
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
    """What is added to the scores of keys that are later than the query, [queries, keys], of which
    `past` lie before the first query; "" where the node is not unidirectional."""
    if not p.attrs.get("unidirectional", 0):
        return ""
    own = p("Add", places(p.shape(q)[2], p.scope), past)
    is_seen = p("LessOrEqual", places(p.shape(k)[2], p.scope), p.unsqueeze(own, 1))
    return p("Where", is_seen, p.number(0), lowest(p))


def unpacked(p: Parts, heads: int, query: str, key: str, value: str, bias: str) -> tuple[str, ...]:
    """Queries, keys and values with their heads apart, of the forms that ONNX Runtime packs them
    in, plus a bias of [the queries' width + the keys' + the values']."""
    packed = [name for name in (query, key) if name and len(p.shape(name)) == 5]
    if packed:  # [batch, length, heads, 3 or 2, size]
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
