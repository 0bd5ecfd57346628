"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381)."""

from __future__ import annotations

import numpy as np

from bench.models.writer import Writer

# expansion, output channels, blocks, stride of the first
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_LAST = 1280


def mobilenet_v2(seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> bytes:
    """Input `x` f32[batch, 3, size, size], output `logits` f32[batch, classes]."""
    w = Writer("mobilenet_v2", seed)
    low, high = w.weight(np.float32(0.0)), w.weight(np.float32(6.0))

    def layer(
        x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        x = w.batch_norm(w.conv(x, inputs, outputs, kernel, stride, groups), outputs)
        return w.node("Clip", x, low, high)

    x = layer(w.input("x", (batch, 3, size, size)), 3, 32, 3, 2)
    channels = 32
    for expansion, outputs, blocks, first_stride in _STAGES:
        for block in range(blocks):
            stride = first_stride if not block else 1
            wide = channels * expansion
            y = x if expansion == 1 else layer(x, channels, wide, 1)
            y = layer(y, wide, wide, 3, stride, wide)
            y = w.batch_norm(w.conv(y, wide, outputs, 1), outputs)
            x = w.node("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    x = layer(x, channels, _LAST, 1)
    x = w.node("Flatten", w.node("GlobalAveragePool", x), axis=1)
    weight, bias = w.normal(classes, _LAST, fan_in=_LAST), w.normal(classes, fan_in=_LAST)
    return w.finish({"logits": (batch, classes)}, [w.node("Gemm", x, weight, bias, transB=1)])
