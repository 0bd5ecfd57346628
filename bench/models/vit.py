"""ViT-B/16 (Dosovitskiy et al., arXiv:2010.11929)."""

from __future__ import annotations

import math

import numpy as np

from bench.models.writer import Size, Writer


def vit_b16(
    seed: int,
    *,
    batch: Size = 1,
    size: int = 224,
    patch: int = 16,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    classes: int = 1000,
) -> bytes:
    """Return the ViT-B/16 classifier as torchvision's model is exported, with the attention of
    torch.nn.MultiheadAttention.

    Input `x` f32[batch, 3, size, size], output `logits` f32[batch, classes].
    """
    w = Writer("vit", seed)
    x = w.input("x", (batch, 3, size, size))
    side = size // patch
    weight = w.normal((width, 3, patch, patch), math.sqrt(1 / (3 * patch * patch)))
    x = w.op(
        "Conv",
        x,
        weight,
        w.normal((width,), 0.1),
        dilations=[1, 1],
        group=1,
        kernel_shape=[patch, patch],
        pads=[0, 0, 0, 0],
        strides=[patch, patch],
    )
    x = w.op("Transpose", w.reshape(x, (batch, width, side * side)), perm=[0, 2, 1])
    token = w.op("Expand", w.normal((1, 1, width), 1.0), w.shape((batch, 1, width)))
    tokens = side * side + 1
    x = w.op("Concat", token, x, axis=1)
    x = w.op("Add", x, w.normal((1, tokens, width), 0.5))
    for _ in range(layers):
        y = _packed_attention(w, w.layer_norm(x, width, 1e-6), batch, tokens, width, heads)
        x = w.op("Add", y, x)
        y = w.gelu(w.linear(w.layer_norm(x, width, 1e-6), width, 4 * width))
        y = w.linear(y, 4 * width, width)
        x = w.op("Add", x, y)
    first = w.op("Gather", w.layer_norm(x, width, 1e-6), w.constant(0, np.int64), axis=1)
    w.output(w.gemm(first, width, classes), "logits", (batch, classes))
    return w.finish()


def _packed_attention(w: Writer, x: str, batch: Size, tokens: int, width: int, heads: int) -> str:
    """Add attention with a single projection for queries, keys and values; the sequence is axis 0,
    and heads are merged into the batch."""
    head = width // heads
    x = w.op("Transpose", x, perm=[1, 0, 2])
    packed = w.reshape(w.linear(x, width, 3 * width), (tokens, batch, 3, width))
    packed = w.op("Unsqueeze", packed, w.constant([0], np.int64))
    packed = w.op("Transpose", packed, perm=[3, 1, 2, 0, 4])
    packed = w.op("Squeeze", packed, w.constant([-2], np.int64))
    parts = [w.op("Gather", packed, w.constant(i, np.int64), axis=0) for i in range(3)]
    folded = -1 if isinstance(batch, str) else batch * heads
    parts = [
        w.op("Transpose", w.reshape(part, (tokens, folded, head)), perm=[1, 0, 2]) for part in parts
    ]
    query, key, value = (w.reshape(part, (batch, heads, tokens, head)) for part in parts)
    root = w.op("Sqrt", w.constant(1 / math.sqrt(head)))
    key = w.op("Transpose", key, perm=[0, 1, 3, 2])
    scores = w.op("MatMul", w.op("Mul", query, root), w.op("Mul", key, root))
    mixed = w.op("MatMul", w.op("Softmax", scores, axis=-1), value)
    mixed = w.op("Transpose", mixed, perm=[2, 0, 1, 3])
    flat = -1 if isinstance(batch, str) else tokens * batch
    rows = w.gemm(w.reshape(mixed, (flat, width)), width, width)
    return w.op("Transpose", w.reshape(rows, (tokens, batch, width)), perm=[1, 0, 2])
