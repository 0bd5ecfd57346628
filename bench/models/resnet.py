"""ResNet-18 and ResNet-50 (He et al., 2015, arXiv:1512.03385; strides as in torchvision)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.models.writer import Writer

_WIDTHS = (64, 128, 256, 512)


def resnet18(seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> bytes:
    """Input `x` f32[batch, 3, size, size], output `logits` f32[batch, classes]."""
    return _resnet("resnet18", (2, 2, 2, 2), False, seed, batch, size, classes)


def resnet50(seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> bytes:
    """Input `x` f32[batch, 3, size, size], output `logits` f32[batch, classes]."""
    return _resnet("resnet50", (3, 4, 6, 3), True, seed, batch, size, classes)


def _resnet(
    name: str,
    depths: Sequence[int],
    bottleneck: bool,
    seed: int,
    batch: int,
    size: int,
    classes: int,
) -> bytes:
    w = Writer(name, seed)
    x = w.input("x", (batch, 3, size, size))
    x = _conv_norm_relu(w, x, 3, 64, 7, 2)
    x = w.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels, expansion = 64, 4 if bottleneck else 1
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True)):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            x = _block(w, x, channels, width, width * expansion, stride, bottleneck)
            channels = width * expansion
    x = w.node("Flatten", w.node("GlobalAveragePool", x), axis=1)
    weight = w.normal(classes, channels, fan_in=channels)
    bias = w.normal(classes, fan_in=channels)
    logits = w.node("Gemm", x, weight, bias, transB=1)
    return w.finish({"logits": (batch, classes)}, [logits])


def _block(
    w: Writer, x: str, inputs: int, width: int, outputs: int, stride: int, bottleneck: bool
) -> str:
    """One residual block; the sum is halved in variance by the norm that each branch ends with."""
    if bottleneck:
        y = _conv_norm_relu(w, x, inputs, width, 1)
        y = _conv_norm_relu(w, y, width, width, 3, stride)
        y = w.batch_norm(w.conv(y, width, outputs, 1), outputs)
    else:
        y = _conv_norm_relu(w, x, inputs, width, 3, stride)
        y = w.batch_norm(w.conv(y, width, outputs, 3), outputs)
    if stride != 1 or inputs != outputs:
        x = w.batch_norm(w.conv(x, inputs, outputs, 1, stride), outputs)
    return w.node("Relu", w.node("Add", y, x))


def _conv_norm_relu(
    w: Writer, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1
) -> str:
    return w.node("Relu", w.batch_norm(w.conv(x, inputs, outputs, kernel, stride), outputs))
