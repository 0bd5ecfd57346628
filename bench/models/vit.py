"""ViT-B/16 (Dosovitskiy et al., 2020, arXiv:2010.11929)."""

from __future__ import annotations

import numpy as np

from bench.models.writer import Writer

_EPSILON = 1e-6


def vit(
    seed: int = 0,
    batch: int = 1,
    size: int = 224,
    patch: int = 16,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    classes: int = 1000,
) -> bytes:
    """Input `x` f32[batch, 3, size, size], output `logits` f32[batch, classes]."""
    w = Writer("vit", seed)
    image = w.input("x", (batch, 3, size, size))
    kernel = w.normal(width, 3, patch, patch, fan_in=3 * patch * patch)
    bias = w.normal(width, fan_in=width)
    patches = w.node("Conv", image, kernel, bias, kernel_shape=[patch] * 2, strides=[patch] * 2)
    count = (size // patch) ** 2
    x = w.node("Transpose", w.node("Reshape", patches, w.ints(batch, width, count)), perm=[0, 2, 1])
    token = w.node("Expand", w.normal(1, 1, width, fan_in=4), w.ints(batch, 1, width))
    x = w.node("Concat", token, x, axis=1)
    tokens = count + 1
    x = w.node("Add", x, w.normal(1, tokens, width, fan_in=4))
    for _ in range(layers):
        y = w.attention(w.layer_norm(x, width, _EPSILON), width, heads, batch, tokens)
        x = w.node("Add", y, x)
        y = w.layer_norm(x, width, _EPSILON)
        y = w.linear(w.gelu(w.linear(y, width, 4 * width)), 4 * width, width)
        x = w.node("Add", y, x)
    x = w.layer_norm(x, width, _EPSILON)
    first = w.node("Gather", x, w.weight(np.int64(0)), axis=1)
    weight, bias = w.normal(classes, width, fan_in=width), w.normal(classes, fan_in=width)
    return w.finish({"logits": (batch, classes)}, [w.node("Gemm", first, weight, bias, transB=1)])
