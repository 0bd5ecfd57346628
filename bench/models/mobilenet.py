"""MobileNetV2 (Sandler et al., arXiv:1801.04381)."""

from __future__ import annotations

from bench.models.writer import Size, Writer, image

# Each entry has the expansion, output channels, blocks, and the stride of the first block.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    seed: int,
    *,
    batch: Size = 1,
    size: Size | tuple[Size, Size] = 224,
    classes: int = 1000,
    stages: int = len(_STAGES),
) -> bytes:
    """Return MobileNetV2 with input `x` f32[batch, 3, *size] and output `logits` f32[batch,
    classes].

    `stages` below 7 omits the last stages.
    """
    w = Writer("mobilenet_v2", seed)
    x = w.input("x", image(batch, size))
    channels, last = 32, 1280
    x = _relu6(w, w.batch_norm(w.conv(x, 3, channels, 3, stride=2), channels))
    for expansion, outputs, blocks, first_stride in _STAGES[:stages]:
        for block in range(blocks):
            x = _block(w, x, channels, outputs, expansion, 1 if block else first_stride)
            channels = outputs
    x = _relu6(w, w.batch_norm(w.conv(x, channels, last, 1), last))
    x = w.op("Flatten", w.op("GlobalAveragePool", x), axis=1)
    w.output(w.gemm(x, last, classes), "logits", (batch, classes))
    return w.finish()


def _relu6(w: Writer, x: str) -> str:
    return w.op("Clip", x, w.constant(0.0), w.constant(6.0))


def _block(w: Writer, x: str, channels: int, outputs: int, expansion: int, stride: int) -> str:
    """Add an inverted residual block: expand the channels, convolve each, project; the input is
    added if the shapes are equal."""
    inner, y = channels * expansion, x
    if expansion > 1:
        y = _relu6(w, w.batch_norm(w.conv(y, channels, inner, 1), inner))
    y = w.conv(y, inner, inner, 3, stride=stride, group=inner)
    y = _relu6(w, w.batch_norm(y, inner))
    y = w.batch_norm(w.conv(y, inner, outputs, 1), outputs, 0.7)
    return w.op("Add", x, y) if stride == 1 and channels == outputs else y
