"""Rules of convolutions, which the exporter does not decompose, and of channel and pixel
shuffles."""

from __future__ import annotations

from typing import Any

from farrier.frontends.torch.scope import Scope, each
from farrier.frontends.torch.table import aten
from farrier.ops import NotSupported


def conv(
    s: Scope,
    x: str,
    weight: str,
    bias: str | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    """Add a convolution, and return its name."""
    rank = s.rank(weight) - 2
    attrs: dict[str, Any] = {
        "strides": each(stride, rank),
        "dilations": each(dilation, rank),
        "group": groups,
    }
    if isinstance(padding, str):
        attrs["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
    else:
        attrs["pads"] = each(padding, rank) * 2
    with s.batched(x, rank) as batch:
        batch.y = s.node("Conv", batch.x, weight, bias or "", **attrs)
    return batch.result


for _rank in (1, 2, 3):
    aten(f"aten.conv{_rank}d.default", f"aten.conv{_rank}d.padding")(conv)


@aten("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    s: Scope,
    x: str,
    weight: str,
    bias: str | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> str:
    rank = s.rank(weight) - 2
    attrs = {
        "strides": each(stride, rank),
        "pads": each(padding, rank) * 2,
        "output_padding": each(output_padding, rank),
        "dilations": each(dilation, rank),
        "group": groups,
    }
    with s.batched(x, rank) as batch:
        batch.y = s.node("ConvTranspose", batch.x, weight, bias or "", **attrs)
    return batch.result


@aten("aten.convolution.default")
def convolution(
    s: Scope,
    x: str,
    weight: str,
    bias: str | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> str:
    if transposed:
        return conv_transpose(s, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(s, x, weight, bias, stride, padding, dilation, groups)


@aten("aten.pixel_shuffle.default")
def pixel_shuffle(s: Scope, x: str, factor: int) -> str:
    _check_images(s, x)
    return s.node("DepthToSpace", x, blocksize=factor, mode="CRD")


@aten("aten.pixel_unshuffle.default")
def pixel_unshuffle(s: Scope, x: str, factor: int) -> str:
    _check_images(s, x)
    n, c, h, w = s.shape(x)
    split = s.reshape(x, [n, c, h // factor, factor, w // factor, factor])
    moved = s.transpose(split, [0, 1, 3, 5, 2, 4])
    return s.reshape(moved, [n, c * factor * factor, h // factor, w // factor])


@aten("aten.channel_shuffle.default")
def channel_shuffle(s: Scope, x: str, groups: int) -> str:
    n, c, *rest = s.shape(x)
    split = s.reshape(x, [n, groups, c // groups, *rest])
    return s.reshape(s.swapped(split, 1, 2), [n, c, *rest])


def _check_images(s: Scope, x: str) -> None:
    if s.rank(x) != 4:
        raise NotSupported(f"{s.call.target} of {s.rank(x)} dimensions, not 4,")
