"""Fused operators of com.microsoft, as ONNX Runtime's optimizers write them → their parts.

Formulas are those of ONNX Runtime's ContribOperators.md. The passes fuse the parts again, in their
own way: what comes out of an attention here is what they know as one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from farrier.importer.limits import MICROSOFT
from farrier.importer.raw import RawNode
from farrier.importer.rewrites.sizes import places
from farrier.importer.scope import ImportScope, Upgrade, ints
from farrier.ir.dim import Extent, number
from farrier.ops import Mismatch, NotSupported

_ACTIVATIONS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}


class _Parts:
    """Adds nodes to the model: `parts("Mul", x, y)` gives the name of the product."""

    def __init__(self, node: RawNode, scope: ImportScope) -> None:
        self.scope, self.node, self.attrs = scope, node, node.attrs
        self.dtype = scope.dtype(next(filter(None, node.inputs)))

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        return self.scope.add(op, *inputs, **attrs)

    def ints(self, *values: Any) -> str:
        return self.scope.constant(ints(list(values)))

    def number(self, value: float) -> str:
        """A number of the operands' dtype."""
        return self.scope.constant(np.array(value, self.dtype.numpy))

    def input(self, position: int) -> str:
        return self.node.input(position)

    def sum(self, *terms: str) -> str:
        """The sum of those terms that are not omitted."""
        first, *rest = filter(None, terms)
        for term in rest:
            first = self("Add", first, term)
        return first

    def results(self, *values: str) -> list[RawNode]:
        """The node's outputs, in order; NotSupported where one is read and not given ("")."""
        made = []
        for value, name in zip(values, self.node.outputs, strict=False):
            if name and value:
                made.append(RawNode("Identity", [value], [name], {}, self.node.origin))
            elif name and self.scope.is_read(name):
                raise NotSupported(f"the further output {name!r}")
        for name in self.node.outputs[len(values) :]:
            if name and self.scope.is_read(name):
                raise NotSupported(f"the further output {name!r}")
        return made

    def activated(self, x: str) -> str:
        """`x` after the activation that the attributes name."""
        name = self.attrs.get("activation", "")
        if not name:
            return x
        if name not in _ACTIVATIONS:
            raise NotSupported(f"activation {name!r}")
        keys = _ACTIVATIONS[name]
        given = self.attrs.get("activation_params")
        if given is None:
            named = (self.attrs.get(f"activation_{key}") for key in ("alpha", "beta"))
            given = [value for value in named if value is not None]
        if name == "Clip":
            return self("Clip", x, *(self.number(bound) for bound in given))
        return self(name, x, **dict(zip(keys, map(float, given), strict=False)))


def _product(p: _Parts, a: str, b: str) -> str:
    """The product of FusedMatMul: operands transposed, then scaled by alpha."""
    rank_a, rank_b = (len(p.scope.shape(name)) for name in (a, b))
    if p.attrs.get("transBatchA", 0) or p.attrs.get("transBatchB", 0):
        raise NotSupported("a batch axis among the last two")
    if p.attrs.get("transA", 0) and rank_a > 1:
        a = p("Transpose", a, perm=_swapped(rank_a))
    if p.attrs.get("transB", 0) and rank_b > 1:
        b = p("Transpose", b, perm=_swapped(rank_b))
    result, alpha = p("MatMul", a, b), p.attrs.get("alpha", 1.0)
    return result if alpha == 1.0 else p("Mul", result, p.number(alpha))


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def fused_matmul(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    p = _Parts(node, scope)
    return p.results(p.activated(_product(p, p.input(0), p.input(1))))


def fused_gemm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    p = _Parts(node, scope)
    kept = {k: v for k, v in node.attrs.items() if not k.startswith("activation")}
    return p.results(p.activated(p("Gemm", *node.inputs, **kept)))


def fused_conv(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """A sum after the convolution, then an activation."""
    p = _Parts(node, scope)
    kept = {k: v for k, v in node.attrs.items() if not k.startswith("activation")}
    return p.results(p.activated(p.sum(p("Conv", *node.inputs[:3], **kept), p.input(3))))


def gelu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Gelu and BiasGelu by erf, FastGelu by tanh."""
    p = _Parts(node, scope)
    how = "tanh" if node.op.endswith("FastGelu") else "none"
    return p.results(p("Gelu", p.sum(p.input(0), p.input(1)), approximate=how))


def quick_gelu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    p = _Parts(node, scope)
    alpha = p.number(node.attrs.get("alpha", 1.702))
    return p.results(p("Mul", p.input(0), p("Sigmoid", p("Mul", p.input(0), alpha))))


def bias_add(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    p = _Parts(node, scope)
    return p.results(p.sum(*node.inputs[:3]))


def bias_softmax(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Softmax over the axes from `axis` on, of a sum."""
    p = _Parts(node, scope)
    rank, axis = len(scope.shape(p.input(0))), node.attrs.get("axis", 1)
    if axis not in (-1, rank - 1):
        raise NotSupported(f"axis {axis} of a tensor of rank {rank}")
    return p.results(p("Softmax", p.sum(p.input(0), p.input(1)), axis=-1))


def simplified_layer_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """ONNX Runtime's name for RMSNormalization."""
    p = _Parts(node, scope)
    kept = {k: node.attrs[k] for k in ("axis", "epsilon") if k in node.attrs}
    return p.results(p("RMSNormalization", *node.inputs[:2], **kept))


def skip_layer_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The normalization of a sum, and the sum."""
    p = _Parts(node, scope)
    epsilon = float(node.attrs.get("epsilon", 1e-12))
    if "Simplified" in node.op:
        total = p.sum(p.input(0), p.input(1), p.input(3))
        normal = p("RMSNormalization", total, p.input(2), axis=-1, epsilon=epsilon)
    else:
        total = p.sum(p.input(0), p.input(1), p.input(4))
        parameters = [p.input(2), *filter(None, [p.input(3)])]
        normal = p("LayerNormalization", total, *parameters, axis=-1, epsilon=epsilon)
    return p.results(normal, "", "", total)


def embed_layer_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The sum of the embeddings of tokens, positions and segments, normalized."""
    p = _Parts(node, scope)
    tokens, segments, words, places, kinds, gamma, beta = (p.input(i) for i in range(7))
    p.dtype = scope.dtype(words)
    terms = [p("Gather", words, tokens, axis=0)]
    if p.input(8):
        terms.append(p("Gather", places, p.input(8), axis=0))
    else:
        length = p("Shape", tokens, start=1)
        terms.append(p("Slice", places, p.ints(0), length, p.ints(0)))
    if segments:
        terms.append(p("Gather", kinds, segments, axis=0))
    total = p.sum(*terms)
    epsilon = float(node.attrs.get("epsilon", 1e-12))
    normal = p("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    lengths = ""
    if len(node.outputs) > 1 and scope.is_read(node.outputs[1]):
        if not p.input(7) or node.attrs.get("mask_index_type", 1) != 1:
            raise NotSupported("a mask index that is no length")
        lengths = p("Cast", p("ReduceSum", p.input(7), p.ints(1), keepdims=0), to="i32")
    return p.results(normal, lengths, total)


# Attention ----------------------------------------------------------------------------------------


def _heads(p: _Parts, x: str, count: int) -> str:
    """[batch, length, count · size] → [batch, count, length, size]."""
    return p("Transpose", p("Reshape", x, p.ints(0, 0, count, -1)), perm=(0, 2, 1, 3))


def _joined(p: _Parts, x: str) -> str:
    """[batch, heads, length, size] → [batch, length, heads · size]."""
    return p("Reshape", p("Transpose", x, perm=(0, 2, 1, 3)), p.ints(0, 0, -1))


def _attention(p: _Parts, q: str, k: str, v: str, mask: str) -> str:
    """softmax(q kᵀ · scale + mask) v on heads, `mask` "" where there is none."""
    size = number(p.scope.shape(q)[-1])
    scale = p.attrs.get("scale", 0.0) or 1 / math.sqrt(size)
    scores = p("MatMul", q, p("Transpose", k, perm=(0, 1, 3, 2)))
    scores = p.sum(p("Mul", scores, p.number(scale)), mask)
    return p("MatMul", p("Softmax", scores, axis=-1), v)


def _padding(p: _Parts, mask: str, length: Extent, filtered: float) -> str:
    """What a mask of the keys adds to the scores: 0 where it is 1, `filtered` where it is 0."""
    if not mask:
        return ""
    rank = len(p.scope.shape(mask))
    if rank == 1:  # how many keys count
        if p.scope.shape(mask)[0] != p.scope.shape(p.input(0))[0]:
            raise NotSupported("a mask of the first and the last key that count")
        ends = p("Unsqueeze", p("Cast", mask, to="i64"), p.ints(1))
        is_kept = p("Less", places(length, p.scope), ends)
        rank = 2
    else:
        is_kept = p("Cast", mask, to="bool")
    axes = {2: (1, 2), 3: (1,), 4: ()}[rank]
    added = p("Where", is_kept, p.number(0), p.number(filtered))
    return p("Unsqueeze", added, p.ints(*axes)) if axes else added


def _causal(p: _Parts, queries: Extent, keys: Extent, filtered: float) -> str:
    """What the scores of later keys are raised by."""
    return p("Where", _is_no_later(p, queries, keys), p.number(0), p.number(filtered))


def _is_no_later(p: _Parts, queries: Extent, keys: Extent) -> str:
    """Whether a key is no later than a query, [queries, keys], the last query being as late as the
    last key."""
    places_of_queries = p("Add", places(queries, p.scope), p.scope.constant(ints(keys - queries)))
    return p("LessOrEqual", places(keys, p.scope), p("Unsqueeze", places_of_queries, p.ints(1)))


def attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Attention: one product gives queries, keys and values."""
    p, heads = _Parts(node, scope), int(node.attrs["num_heads"])
    if node.attrs.get("do_rotary", 0) or p.input(6):
        raise NotSupported("rotary embeddings and shared buffers in Attention")
    projected = p.sum(p("MatMul", p.input(0), p.input(1)), p.input(2))
    width = number(scope.shape(p.input(1))[1])
    sizes = node.attrs.get("qkv_hidden_sizes") or (width // 3,) * 3
    bounds = np.cumsum([0, *sizes])
    parts = [
        p("Slice", projected, p.ints(int(low)), p.ints(int(high)), p.ints(2))
        for low, high in itertools.pairwise(bounds)
    ]
    q, k, v = (_heads(p, part, heads) for part in parts)
    present = ""
    if p.input(4):  # [2, batch, heads, past, size]
        pasts = [p("Gather", p.input(4), scope.constant(np.array(i)), axis=0) for i in range(2)]
        k, v = (p("Concat", a, b, axis=2) for a, b in zip(pasts, (k, v), strict=True))
    if len(node.outputs) > 1 and scope.is_read(node.outputs[1]):
        present = p("Concat", *(p("Unsqueeze", x, p.ints(0)) for x in (k, v)), axis=0)
    filtered = float(node.attrs.get("mask_filter_value", -10000.0))
    mask = ""
    if p.input(3) or node.attrs.get("unidirectional", 0):
        queries, keys = scope.shape(q)[2], scope.shape(k)[2]
        mask = _padding(p, p.input(3), keys, filtered)
        if node.attrs.get("unidirectional", 0):
            lowest = float(np.finfo(np.float32).min) / 2
            causal = _causal(p, queries, keys, lowest)
            mask = p.sum(mask, causal)
    mask = p.sum(mask, p.input(5)) if mask or p.input(5) else ""
    return p.results(_joined(p, _attention(p, q, k, v, mask)), present)


def multi_head_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """MultiHeadAttention: queries, keys and values as they are, or packed in one."""
    p, heads = _Parts(node, scope), int(node.attrs["num_heads"])
    if p.input(8) or p.input(9):
        raise NotSupported("shared buffers and beams in MultiHeadAttention")
    q, k, v = _unpacked(p, heads)
    if p.input(6):
        k, v = (p("Concat", past, x, axis=2) for past, x in ((p.input(6), k), (p.input(7), v)))
    filtered = float(node.attrs.get("mask_filter_value", -10000.0))
    mask = ""
    if p.input(4) or node.attrs.get("unidirectional", 0):
        queries, keys = scope.shape(q)[2], scope.shape(k)[2]
        mask = _padding(p, p.input(4), keys, filtered)
        if node.attrs.get("unidirectional", 0):
            mask = p.sum(mask, _causal(p, queries, keys, float(np.finfo(np.float32).min) / 2))
    mask = p.sum(mask, p.input(5)) if mask or p.input(5) else ""
    return p.results(_joined(p, _attention(p, q, k, v, mask)), k, v)


def _unpacked(p: _Parts, heads: int) -> tuple[str, str, str]:
    """Queries, keys and values as [batch, heads, length, size], the bias added."""
    query, key, value, bias = (p.input(i) for i in range(4))
    packed = [name for name in (query, key) if name and len(p.scope.shape(name)) == 5]
    if packed:  # [batch, length, heads, 3 or 2, size]
        if bias:
            raise NotSupported("a bias of packed operands")
        (source,) = packed
        count = 3 if source == query else 2
        parts = [p("Gather", source, p.scope.constant(np.array(i)), axis=3) for i in range(count)]
        turned = [p("Transpose", part, perm=(0, 2, 1, 3)) for part in parts]
        if count == 2:
            turned.insert(0, _heads(p, query, heads))
        return turned[0], turned[1], turned[2]
    given = [query, key, value]
    if not key:
        raise Mismatch("keys are omitted")
    if bias:
        shapes = map(p.scope.shape, given)
        widths = [number(shape[-1]) for shape in shapes if len(shape) == 3]
        bounds = np.cumsum([0, *widths])
        for position in range(len(widths)):
            low, high = int(bounds[position]), int(bounds[position + 1])
            part = p("Slice", bias, p.ints(low), p.ints(high), p.ints(0))
            given[position] = p("Add", given[position], part)
    q, k, v = (x if len(p.scope.shape(x)) == 4 else _heads(p, x, heads) for x in given)
    return q, k, v


def rotary_embedding(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """RotaryEmbedding; positions are given for each token, or the first one's alone."""
    p = _Parts(node, scope)
    x, positions, cosines, sines = (p.input(i) for i in range(4))
    if node.attrs.get("is_packed_batching", 0) or node.attrs.get("scale", 1.0) != 1.0:
        raise NotSupported("packed batches and scales in RotaryEmbedding")
    shape = scope.shape(x)
    length = shape[1 if len(shape) == 3 else 2]
    if len(scope.shape(positions)) == 1:
        positions = p("Add", p("Reshape", positions, p.ints(1, 1)), places(length, scope))
        positions = p("Expand", positions, p.scope.constant(ints([shape[0], length])))
    size = number(scope.shape(cosines)[1]) * 2
    heads = int(node.attrs.get("num_heads", 0))
    if len(shape) == 3 and not heads:
        heads = number(shape[2]) // size
    kept = {"interleaved": int(node.attrs.get("interleaved", 0))}
    if len(shape) == 3:
        kept["num_heads"] = heads
    if node.attrs.get("rotary_embedding_dim", 0):
        kept["rotary_embedding_dim"] = int(node.attrs["rotary_embedding_dim"])
    return p.results(p("RotaryEmbedding", x, cosines, sines, positions, **kept))


def group_query_attention(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """GroupQueryAttention without a shared buffer: keys are the past ones and then the new ones,
    and a query attends to what is no later than itself."""
    p = _Parts(node, scope)
    heads, groups = int(node.attrs["num_heads"]), int(node.attrs["kv_num_heads"])
    plain = {"softcap": 0.0, "smooth_softmax": 0, "local_window_size": -1, "causal": 1}
    plain |= {"qk_output": 0, "sliding_window_cache": 0}
    for name, usual in plain.items():
        if node.attrs.get(name, usual) != usual:
            raise NotSupported(f"{name} of GroupQueryAttention")
    if any(p.input(i) for i in range(10, 16)):
        raise NotSupported("biases, sinks and scales in GroupQueryAttention")
    query, key, value = (p.input(i) for i in range(3))
    if not key:
        size = number(scope.shape(query)[2]) // (heads + 2 * groups)
        at = [0, heads * size, (heads + groups) * size, (heads + 2 * groups) * size]
        query, key, value = (
            p("Slice", query, p.ints(a), p.ints(b), p.ints(2)) for a, b in itertools.pairwise(at)
        )
    q, k, v = _heads(p, query, heads), _heads(p, key, groups), _heads(p, value, groups)
    queries = scope.shape(q)[2]
    keys = queries + (scope.shape(p.input(3))[2] if p.input(3) else 0)
    # seqlens_k: the position of each row's last key.
    last = p("Reshape", p("Cast", p.input(5), to="i64"), p.ints(-1, 1))
    if node.attrs.get("do_rotary", 0):
        steps = p("Add", places(queries, scope), scope.constant(ints(1 - queries)))
        positions = p.input(9) or p("Max", p("Add", last, steps), p.scope.constant(np.array(0)))
        style = int(node.attrs.get("rotary_interleaved", 0))
        caches = (p.input(7), p.input(8))
        q, k = (p("RotaryEmbedding", x, *caches, positions, interleaved=style) for x in (q, k))
    if p.input(3):
        k, v = p("Concat", p.input(3), k, axis=2), p("Concat", p.input(4), v, axis=2)
    counts = p("LessOrEqual", places(keys, scope), last)
    seen = p("And", _is_no_later(p, queries, keys), p("Unsqueeze", counts, p.ints(1)))
    lowest = p.number(float(np.finfo(np.float32).min) / 2 if p.dtype.bits >= 32 else -6e4)
    mask = p("Unsqueeze", p("Where", seen, p.number(0), lowest), p.ints(1))
    all_k, all_v = (_repeated(p, x, heads // groups) for x in (k, v))
    return p.results(_joined(p, _attention(p, q, all_k, all_v, mask)), k, v)


def _repeated(p: _Parts, x: str, times: int) -> str:
    """[batch, groups, length, size] with each group `times` times in a row."""
    if times == 1:
        return x
    batch, groups, length, size = p.scope.shape(x)
    apart = p("Unsqueeze", x, p.ints(2))
    spread = p("Expand", apart, p.ints(batch, groups, times, length, size))
    return p("Reshape", spread, p.ints(batch, groups * times, length, size))


_OWN = {
    "FusedMatMul": fused_matmul,
    "TransposeMatMul": fused_matmul,
    "FusedMatMulActivation": fused_matmul,
    "FusedGemm": fused_gemm,
    "FusedConv": fused_conv,
    "Gelu": gelu,
    "FastGelu": gelu,
    "BiasGelu": gelu,
    "QuickGelu": quick_gelu,
    "BiasAdd": bias_add,
    "BiasSoftmax": bias_softmax,
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_layer_normalization,
    "EmbedLayerNormalization": embed_layer_normalization,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "RotaryEmbedding": rotary_embedding,
    "GroupQueryAttention": group_query_attention,
}
RULES: dict[str, Upgrade] = {
    **{f"{MICROSOFT}:{name}": rule for name, rule in _OWN.items()},
    "SimplifiedLayerNormalization": simplified_layer_normalization,
}
