"""Rewrite GroupQueryAttention to rotations, an update of the cache of keys and values, and an
attention.

After the call, row b of the batch has `seqlens_k[b] + 1` tokens in the cache, of which the last S
are new. With P slots in the past cache and T the greatest number of tokens in a row:

    start[b] = max(seqlens_k[b] + 1 - S, 0)                 the position of the first new token
    present[b, :, slot] = past[b, :, slot]                  slot < start[b]
                          new[b, :, slot - start[b]]        slot < start[b] + S
                          0                                 otherwise; max(T, P) slots

The queries of a group, [batch, groups, heads per group · S, size], are the rows of one product with
the group's keys, so that the keys are read once. An attention sink is an additional key of zeros,
whose score comes from the mask.
"""

from __future__ import annotations

import dataclasses

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.onnx.importer.rewrites.microsoft.heads import (
    context,
    join_heads,
    lowest,
    split_heads,
)
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.rewrites.microsoft.rotary import each_position
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import Extent, Undecided, maximum, number
from farrier.ops import NotSupported
from farrier.ops.operator import to_extents

# The only supported values of attributes, and the unsupported inputs: ONNX Runtime's CPU provider
# does not have them either, or no exporter writes them.
_USUAL = {
    "sliding_window_cache": 0,
    "qk_output": 0,
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
}
_FOREIGN = {12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight"}


def group_query_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite GroupQueryAttention: the attention of each new token to all tokens up to its
    position, and the updated cache."""
    p = Parts(node, scope)
    for name, usual in _USUAL.items():
        if node.attrs.get(name, usual) != usual:
            raise NotSupported(f"{name} of GroupQueryAttention")
    for position, name in _FOREIGN.items():
        if p.input(position):
            raise NotSupported(f"{name} of GroupQueryAttention")
    heads, groups = int(node.attrs["num_heads"]), int(node.attrs["kv_num_heads"])
    q, k, v = _operands(p, heads, groups)
    step = _Step.of(p, q)
    if node.attrs.get("do_rotary", 0):
        style = int(node.attrs.get("rotary_interleaved", 0))
        positions, width = step.positions(p), number(p.shape(p.input(7))[1]) * 2
        kept = {"rotary_embedding_dim": width} if width < number(p.shape(q)[3]) else {}
        caches = (p.input(7), p.input(8), positions)
        q, k = (p("RotaryEmbedding", x, *caches, interleaved=style, **kept) for x in (q, k))
    keys, values = (step.appended(p, p.input(at), x) for at, x in ((3, k), (4, v)))
    y = _attended(p, step, q, keys, values)
    presents = (step.present(p, x) for x in (keys, values))
    return p.results(join_heads(p, y), *presents)


def _operands(p: Parts, heads: int, groups: int) -> tuple[str, str, str]:
    """Return queries, keys and values, [batch, heads, S, size], from separate or packed inputs."""
    query, key, value = (p.input(i) for i in range(3))
    if not key:
        size = number(p.shape(query)[2]) // (heads + 2 * groups)
        first, second = heads * size, (heads + groups) * size
        query, key, value = (
            p.cut(query, low, high, 2)
            for low, high in ((0, first), (first, second), (second, second + groups * size))
        )
    return split_heads(p, query, heads), split_heads(p, key, groups), split_heads(p, value, groups)


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """The sizes and positions of a call.

    `new` tokens are added to a cache of `past` slots. The call computes with `slots` slots and
    returns `kept` of them.

    Four tensors of i64 have a row for each row of the batch: `start` is the position of the first
    new token, `end` the position after the last new token, and `count` the total number of tokens,
    each [batch, 1]; `own`, [batch, new], are the positions of the new tokens.
    """

    batch: Extent
    new: Extent
    past: Extent
    slots: Extent
    kept: Extent
    start: str
    end: str
    count: str
    own: str

    @classmethod
    def of(cls, p: Parts, q: str) -> _Step:
        batch, _, new, _ = p.shape(q)
        past = p.shape(p.input(3))[2] if p.input(3) else 0
        slots, kept = _slots(p, new, past) if p.input(3) else (new, new)
        length = p.whole(new)
        if p.input(16):
            length = p.reshape(p("Cast", p.input(16), to="i64"), batch, 1)
        count = p("Add", p("Cast", p.input(5), to="i64"), p.whole(1))
        count = p.reshape(count, batch, 1)
        start = p("Max", p("Sub", count, length), p.whole(0))
        end, own = p("Add", start, length), p("Add", start, places(new, p.scope))
        return cls(batch, new, past, slots, kept, start, end, count, own)

    def positions(self, p: Parts) -> str:
        """Return the positions for the rotation of the new tokens, [batch, S]. For a first prompt,
        ONNX Runtime reads a single position, that of the first token of every row."""
        ids = p.input(9)
        if not ids:
            return self.own
        first = p.cut(p.reshape(ids, -1), 0, 1, 0)
        first = each_position(p, first, self.batch, self.new)
        if not p.input(3):
            return first
        # This is asked only of models with position ids: if sizes decide it, the answer fixes them.
        total = p.scope.unknown(p("Cast", p.reshape(p.input(6)), to="i64"))
        is_first = p("Equal", total, p.whole(self.new))
        return p("Where", is_first, first, each_position(p, ids, self.batch, self.new))

    def appended(self, p: Parts, past: str, new: str) -> str:
        """Return the cached keys (or values) updated with the new ones, [batch, groups, slots,
        size]."""
        if not past:
            return new
        cache = past if self.slots == self.past else p("Concat", past, new, axis=2)
        starts = p.reshape(self.start, self.batch)
        cache = p("TensorScatter", cache, new, starts, axis=2, mode="linear")
        slots = p.reshape(places(self.slots, p.scope), -1, 1)
        return p("Where", p("Less", slots, p.unsqueeze(self.end, 1, 3)), cache, p.number(0))

    def present(self, p: Parts, cache: str) -> str:
        return cache if self.kept == self.slots else p.cut(cache, 0, self.kept, 2)


def _slots(p: Parts, new: Extent, past: Extent) -> tuple[Extent, Extent]:
    """Return the number of slots to compute with, and the number of slots to return.

    Both are `past` if the cache is large enough for all tokens (past and present share a buffer),
    else `past + new`. If that depends on symbolic sizes or data, the call computes with `past +
    new`.
    """
    grown = past + new
    data = p.scope.data(p.input(6))
    if data is None:
        data = p.scope.sizes(p.reshape(p.input(6)), (grown,), None)
    (total,) = to_extents(data)
    try:
        return (past, past) if total <= past else (grown, grown)
    except Undecided:
        return (grown, grown) if total == grown else (grown, maximum(total, past))


def _attended(p: Parts, step: _Step, q: str, k: str, v: str) -> str:
    """Return the context, [batch, heads, S, size]."""
    batch, heads, new, size = p.shape(q)
    groups, width = p.shape(k)[1], p.shape(v)[3]
    rows = number(heads) // number(groups) * new
    if rows != new:
        q = p.reshape(q, batch, groups, rows, size)
    mask = _mask(p, step, number(heads), number(groups))
    if _has_sink(p):
        k, v = (_with_zeros(p, x) for x in (k, v))
    y = context(p, q, k, v, mask)
    return y if rows == new else p.reshape(y, batch, heads, new, width)


def _has_sink(p: Parts) -> bool:
    return bool(p.input(11)) or p.attrs.get("smooth_softmax", -1) == 1


def _with_zeros(p: Parts, x: str) -> str:
    """Append a key (or value) of zeros to `x`."""
    batch, groups, _, size = p.shape(x)
    return p("Concat", x, p("Expand", p.number(0), p.ints(batch, groups, 1, size)), axis=2)


def _mask(p: Parts, step: _Step, heads: int, groups: int) -> str:
    """Return the mask that is added to the scores of a group: the bias for visible keys, a very low
    number for hidden ones, and the attention sink for the key after the last slot."""
    slots = places(step.slots + _has_sink(p), p.scope)
    own = _by_group(p, p.unsqueeze(step.own, 1, 3), 1, heads // groups)
    seen = p("Less", slots, p.unsqueeze(step.count, 1, 3))
    if p.attrs.get("causal", 1):
        is_no_later = p("LessOrEqual", slots, own)
        # A single new token is the last of its row, so no keys behind the row's end are visible.
        seen = is_no_later if step.new == 1 else p("And", seen, is_no_later)
    window = int(p.attrs.get("local_window_size", -1))
    if window > 0:
        seen = p("And", seen, p("Greater", slots, p("Sub", own, p.whole(window))))
    mask = p("Where", seen, _bias(p, step, heads, groups), lowest(p))
    if not _has_sink(p):
        return mask
    sink = p.number(0)
    if p.input(11):
        each = p("Expand", p.reshape(p.input(11), 1, heads, 1, 1), p.ints(1, heads, step.new, 1))
        sink = _by_group(p, each, groups, heads // groups)
    return p("Where", p("Equal", slots, p.whole(step.slots)), sink, mask)


def _bias(p: Parts, step: _Step, heads: int, groups: int) -> str:
    """Return the scores' bias for the rows of a group, padded to all slots."""
    bias = p.input(10)
    if not bias:
        return p.number(0)
    missing = step.slots + _has_sink(p) - p.shape(bias)[3]
    if missing != 0:
        bias = p("Pad", bias, p.ints(0, 0, 0, 0, 0, 0, 0, missing))
    return _by_group(p, bias, groups if p.shape(bias)[1] == heads else 1, heads // groups)


def _by_group(p: Parts, x: str, groups: int, times: int) -> str:
    """Reshape [batch, groups · times or 1, S, keys] to [batch, groups or 1, times · S, keys]."""
    batch, heads, new, keys = p.shape(x)
    if times == 1:
        return x
    if heads == 1:
        x = p("Expand", x, p.ints(batch, times, new, keys))
    return p.reshape(x, batch, groups, times * new, keys)


RULES: dict[str, Upgrade] = {"GroupQueryAttention": group_query_attention}
