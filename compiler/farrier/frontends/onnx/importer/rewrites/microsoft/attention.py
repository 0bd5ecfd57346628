"""Rewrite multi-head attention to matrix products, a mask and a softmax."""

from __future__ import annotations

import dataclasses
import itertools

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.onnx.importer.rewrites.microsoft.heads import (
    causal,
    context,
    join_heads,
    lowest,
    padding,
    scores,
    split_heads,
    unpacked,
    widened,
)
from farrier.frontends.onnx.importer.rewrites.microsoft.integers import in_floats
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.rewrites.quantized import integer_product
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import Extent, number
from farrier.ops import Mismatch, NotSupported


@dataclasses.dataclass(frozen=True, slots=True)
class _Cache:
    """The cached keys and values, [batch, heads, slots, size]; "" without a cache.

    `length` is the number of slots in use; new keys and values are written into the slots after
    them. If `length` is "", all slots are in use, and new keys and values are concatenated to them.
    """

    keys: str = ""
    values: str = ""
    length: str = ""

    def size(self, p: Parts) -> Extent:
        return p.shape(self.keys)[2] if self.keys else 0

    def in_use(self, p: Parts) -> str:
        """Return the name of an i64 value: the number of keys in the cache, after which the keys of
        this call are written."""
        if not self.length:
            return p.whole(self.size(p))
        return p("Cast", p.reshape(self.length), to="i64")

    def appended(self, p: Parts, past: str, new: str) -> str:
        """Return the cached keys (or values) followed by the new ones."""
        if not past:
            return new
        if not self.length:
            return p("Concat", past, new, axis=2)
        starts = p("Expand", self.in_use(p), p.ints(p.shape(past)[0]))
        return p("TensorScatter", past, new, starts, axis=2, mode="linear")

    def empty_slots(self, p: Parts, new: Extent) -> str:
        """Return a mask, [slots], that is added to the scores to hide unused slots."""
        if not self.length:
            return ""
        end = p("Add", self.in_use(p), p.whole(new))
        is_used = p("Less", places(self.size(p), p.scope), end)
        return p("Where", is_used, p.number(0), lowest(p))


def _descended(p: Parts, sources: str, past: str, k: str) -> str:
    """Return the keys (or values) that each beam of a beam search attends to.

    `k` is the cache, [batch · beams, heads, slots, size]. For each of the first `past` slots,
    `sources`, [batch, beams, slots], is the number of the beam whose row contains the key; later
    slots are taken from the beam's own row.
    """
    rows, heads, slots, size = p.shape(k)
    beams, last = p.shape(sources)[1:]
    if last != slots:
        raise Mismatch(f"{last} slots of cache_indirection for a buffer of {slots}")
    own = places(rows, p.scope)
    first = p("Sub", own, p("Mod", own, p.whole(beams)))  # The first row of the same batch.
    source = p("Cast", p.reshape(sources, rows, slots), to="i64")
    source = p("Add", source, p.unsqueeze(first, 1))
    at = places(slots, p.scope)
    source = p("Where", p("Less", at, past), source, p.unsqueeze(own, 1))
    by_slot = p.reshape(p.transpose(k, 0, 2, 1, 3), rows * slots, heads, size)
    slot = p("Add", p("Mul", source, p.whole(slots)), at)
    return p.transpose(p("Gather", by_slot, slot, axis=0), 0, 2, 1, 3)


def attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Attention, whose queries, keys and values are computed by a single product."""
    p = Parts(node, scope)
    projected = p.sum(p("MatMul", p.input(0), p.input(1)), p.input(2))
    return _self_attention(p, projected, p.input(3), p.input(4), p.input(5), p.input(6))


def quantized_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QAttention: Attention whose projection is a product of quantized matrices."""
    p = Parts(node, scope)
    p.dtype = scope.dtype(p.input(3))
    product = integer_product(p.input(0), p.input(1), p.input(6), p.input(7), scope)
    projected = in_floats(product, p.input(3), p.input(4), scope)
    return _self_attention(p, p.sum(projected, p.input(2)), p.input(5), p.input(8), "", "")


def masked_self_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DecoderMaskedSelfAttention with a growing cache: Attention of one query, which
    attends to all keys."""
    p = Parts(node, scope)
    if p.input(7) or p.input(8) or node.attrs.get("past_present_share_buffer", 0):
        raise NotSupported("beams, or keys whose order is that of a GPU's buffer,")
    projected = p.sum(p("MatMul", p.input(0), p.input(1)), p.input(2))
    return _self_attention(p, projected, p.input(3), p.input(4), p.input(5), "")


def _self_attention(
    p: Parts, projected: str, mask: str, past: str, bias: str, length: str
) -> list[RawNode]:
    """Return the nodes that bind the outputs of a self-attention: the context, and the keys and
    values to cache, [2, batch, heads, keys, size]. `projected`, [batch, length, columns], contains
    the queries, keys and values in its columns, one after another."""
    if p.attrs.get("do_rotary", 0):
        raise NotSupported("do_rotary")
    heads = int(p.attrs["num_heads"])
    width = number(p.shape(projected)[2])
    sizes = p.attrs.get("qkv_hidden_sizes") or (width // 3,) * 3
    if sum(sizes) != width or any(size % heads for size in sizes):
        raise Mismatch(f"qkv_hidden_sizes {tuple(sizes)} for {width} columns and {heads} heads")
    bounds = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    q, k, v = (split_heads(p, p.cut(projected, low, high, 2), heads) for low, high in bounds)
    cache = _Cache()
    if past:
        shared = length if p.attrs.get("past_present_share_buffer", 0) else ""
        cache = _Cache(p.pick(past, 0, 0), p.pick(past, 1, 0), shared)
    k, v = cache.appended(p, cache.keys, k), cache.appended(p, cache.values, v)
    y, _ = _attended(p, (q, k, v), cache, mask, bias)
    present = ""
    if p.is_read(1):
        present = p("Concat", p.unsqueeze(k, 0), p.unsqueeze(v, 0), axis=0)
    return p.results(y, present)


def multi_head_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MultiHeadAttention, whose queries, keys and values are separate or packed inputs."""
    p, heads = Parts(node, scope), int(node.attrs["num_heads"])
    q, k, v = unpacked(p, heads, *(p.input(i) for i in range(4)))
    cache = _Cache(*(p.input(i) for i in (6, 7, 8)))
    return _with_past(p, (q, k, v), cache, p.input(4), p.input(5))


def masked_multi_head_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DecoderMaskedMultiHeadAttention: MultiHeadAttention of one query, which attends to
    all keys before it."""
    p, heads = Parts(node, scope), int(node.attrs["num_heads"])
    operands = [p.input(i) for i in range(3)]
    if not operands[1]:  # They are packed: [batch, 1, sum of the three widths].
        size = number(scope.shape(operands[0])[2]) // 3
        operands = [p.cut(operands[0], low, low + size, 2) for low in (0, size, 2 * size)]
    query, key, value = operands
    q, k, v = unpacked(p, heads, query, key, value, p.input(10))
    length = p.input(7) if node.attrs.get("past_present_share_buffer", 0) else ""
    cache = _Cache(p.input(5), p.input(6), length)
    return _with_past(p, (q, k, v), cache, p.input(3), p.input(4))


def _with_past(
    p: Parts, operands: tuple[str, str, str], cache: _Cache, mask: str, bias: str
) -> list[RawNode]:
    """Return the nodes that bind the outputs of a multi-head attention: the context, the keys and
    values to cache, and the scores. If the node has input 9, it is the number of the beam that
    computed each cached slot (`_descended`)."""
    q, k, v = operands
    k, v = cache.appended(p, cache.keys, k), cache.appended(p, cache.values, v)
    seen_k, seen_v = k, v
    if p.input(9):
        if not cache.length:
            raise NotSupported("cache_indirection without a buffer that past and present share")
        seen_k, seen_v = (_descended(p, p.input(9), cache.in_use(p), x) for x in (k, v))
    y, raw = _attended(p, (q, seen_k, seen_v), cache, mask, bias)
    return p.results(y, k, v, raw)


def _attended(
    p: Parts, operands: tuple[str, str, str], cache: _Cache, mask: str, bias: str
) -> tuple[str, str]:
    """Return the context, [batch, queries, heads · size], and the masked scores. The latter are ""
    if no node reads them."""
    q, k, v = operands
    keys = p.shape(k)[2]
    terms = (
        padding(p, mask, cache.size(p), q, k),
        causal(p, q, k, cache.in_use(p)),
        widened(p, bias, keys) if bias else "",
        cache.empty_slots(p, p.shape(q)[2]),
    )
    added = p.sum(*terms)
    if not p.is_read(3):
        return join_heads(p, context(p, q, k, v, added)), ""
    raw = p.sum(scores(p, q, k), added)
    return join_heads(p, p("MatMul", p("Softmax", raw, axis=-1), v)), raw


RULES: dict[str, Upgrade] = {
    "Attention": attention,
    "QAttention": quantized_attention,
    "MultiHeadAttention": multi_head_attention,
    "DecoderMaskedSelfAttention": masked_self_attention,
    "DecoderMaskedMultiHeadAttention": masked_multi_head_attention,
}
