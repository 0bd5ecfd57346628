"""ResNet-18 and ResNet-50 (He et al., arXiv:1512.03385) with torchvision's strides (v1.5), and
ResNeXt-50, whose 3 × 3 convolutions have 32 groups of 4 to 32 channels (Xie et al.,
arXiv:1611.05431)."""

from __future__ import annotations

from bench.models.writer import Size, Writer, image

# The gain of a block's last normalization, so that sums of blocks stay near one.
_RESIDUAL_GAIN = 0.2


def resnet18(
    seed: int,
    *,
    batch: Size = 1,
    size: Size | tuple[Size, Size] = 224,
    width: int = 64,
    classes: int = 1000,
) -> bytes:
    """Return ResNet-18 with input `x` f32[batch, 3, *size] and output `logits` f32[batch,
    classes]."""
    return _resnet("resnet18", seed, (2, 2, 2, 2), False, batch, size, width, classes)


def resnet50(
    seed: int,
    *,
    batch: Size = 1,
    size: Size | tuple[Size, Size] = 224,
    width: int = 64,
    classes: int = 1000,
) -> bytes:
    """Return ResNet-50 with input `x` f32[batch, 3, *size] and output `logits` f32[batch,
    classes]."""
    return _resnet("resnet50", seed, (3, 4, 6, 3), True, batch, size, width, classes)


def resnext50(
    seed: int,
    *,
    batch: Size = 1,
    size: Size | tuple[Size, Size] = 224,
    width: int = 64,
    groups: int = 32,
    classes: int = 1000,
) -> bytes:
    """Return ResNeXt-50 with input `x` f32[batch, 3, *size] and output `logits` f32[batch,
    classes]."""
    return _resnet("resnext50", seed, (3, 4, 6, 3), True, batch, size, width, classes, groups)


def _resnet(
    name: str,
    seed: int,
    depths: tuple[int, ...],
    bottleneck: bool,
    batch: Size,
    size: Size | tuple[Size, Size],
    width: int,
    classes: int,
    groups: int = 1,
) -> bytes:
    w = Writer(name, seed)
    x = w.input("x", image(batch, size))
    x = w.op("Relu", w.batch_norm(w.conv(x, 3, width, 7, stride=2), width))
    x = w.op(
        "MaxPool",
        x,
        ceil_mode=0,
        dilations=[1, 1],
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[2, 2],
    )
    channels, expansion = width, 4 if bottleneck else 1
    for stage, depth in enumerate(depths):
        inner = width << stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            y = _branch(w, x, channels, inner, stride, bottleneck, groups)
            if stride > 1 or channels != inner * expansion:
                x = w.conv(x, channels, inner * expansion, 1, stride=stride)
                x = w.batch_norm(x, inner * expansion, 0.5)
            channels = inner * expansion
            x = w.op("Relu", w.op("Add", y, x))
    x = w.op("Flatten", w.op("GlobalAveragePool", x), axis=1)
    w.output(w.gemm(x, channels, classes), "logits", (batch, classes))
    return w.finish()


def _branch(
    w: Writer, x: str, channels: int, inner: int, stride: int, bottleneck: bool, groups: int
) -> str:
    """Add the residual branch of a block. With groups, its inner convolution has twice the number
    of channels."""
    if not bottleneck:
        x = w.op("Relu", w.batch_norm(w.conv(x, channels, inner, 3, stride=stride), inner))
        return w.batch_norm(w.conv(x, inner, inner, 3), inner, _RESIDUAL_GAIN)
    outputs, between = 4 * inner, inner if groups == 1 else 2 * inner
    x = w.op("Relu", w.batch_norm(w.conv(x, channels, between, 1), between))
    x = w.conv(x, between, between, 3, stride=stride, group=groups)
    x = w.op("Relu", w.batch_norm(x, between))
    return w.batch_norm(w.conv(x, between, outputs, 1), outputs, _RESIDUAL_GAIN)
