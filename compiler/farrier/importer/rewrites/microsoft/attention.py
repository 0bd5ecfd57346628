"""Attention of several heads → products, a mask and a softmax."""

from __future__ import annotations

import itertools

from farrier.importer.raw import RawNode
from farrier.importer.rewrites.microsoft.heads import (
    causal,
    context,
    join_heads,
    padding,
    scores,
    split_heads,
    unpacked,
)
from farrier.importer.rewrites.microsoft.parts import Parts
from farrier.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number
from farrier.ops import Mismatch, NotSupported


def attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Attention: one product computes queries, keys and values."""
    p = Parts(node, scope)
    projected = p.sum(p("MatMul", p.input(0), p.input(1)), p.input(2))
    return self_attention(p, projected, p.input(3), p.input(4), p.input(5), p.input(6))


def self_attention(
    p: Parts, projected: str, mask: str, past: str, bias: str, past_length: str
) -> list[RawNode]:
    """The attention of [batch, length, queries' width + keys' + values'], and what is kept of it
    for the next call: keys and values, [2, batch, heads, keys, size]."""
    if p.attrs.get("do_rotary", 0):
        raise NotSupported("do_rotary")
    if past_length or p.attrs.get("past_present_share_buffer", 0):
        raise NotSupported("a buffer that past and present share")
    heads = int(p.attrs["num_heads"])
    width = number(p.shape(projected)[2])
    sizes = p.attrs.get("qkv_hidden_sizes") or (width // 3,) * 3
    if sum(sizes) != width or any(size % heads for size in sizes):
        raise Mismatch(f"qkv_hidden_sizes {tuple(sizes)} for {width} columns and {heads} heads")
    bounds = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    q, k, v = (split_heads(p, p.cut(projected, low, high, 2), heads) for low, high in bounds)
    before = p.shape(past)[3] if past else 0
    if past:
        k, v = (p("Concat", p.pick(past, i, 0), x, axis=2) for i, x in enumerate((k, v)))
    present = ""
    if p.is_read(1):
        present = p("Concat", p.unsqueeze(k, 0), p.unsqueeze(v, 0), axis=0)
    masks = (padding(p, mask, p.shape(q)[0], before, q, k), causal(p, q, k), bias)
    return p.results(join_heads(p, context(p, q, k, v, p.sum(*masks))), present)


def multi_head_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """MultiHeadAttention: queries, keys and values as they are, or packed in one."""
    p, heads = Parts(node, scope), int(node.attrs["num_heads"])
    if p.input(8) or p.input(9):
        raise NotSupported("a buffer that past and present share, or beams")
    q, k, v = unpacked(p, heads, *(p.input(i) for i in range(4)))
    before = scope.shape(p.input(6))[2] if p.input(6) else 0
    if p.input(6):
        k, v = (p("Concat", past, x, axis=2) for past, x in ((p.input(6), k), (p.input(7), v)))
    mask = padding(p, p.input(4), scope.shape(q)[0], before, q, k)
    return _attended(p, q, k, v, p.sum(mask, causal(p, q, k), p.input(5)))


def _attended(p: Parts, q: str, k: str, v: str, mask: str) -> list[RawNode]:
    """The context, keys, values, and where that is read the softmax."""
    if not p.is_read(3):
        return p.results(join_heads(p, context(p, q, k, v, mask)), k, v)
    weights = p("Softmax", p.sum(scores(p, q, k), mask), axis=-1)
    return p.results(join_heads(p, p("MatMul", weights, v)), k, v, weights)


RULES: dict[str, Upgrade] = {
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
}
