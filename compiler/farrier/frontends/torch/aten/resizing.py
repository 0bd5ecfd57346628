"""Rules of interpolation, padding, and sampling by a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ops import NotSupported

_PADS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "constant": "constant"}


def _resized(s: Scope, x: str, sizes: Any, factors: Sequence[Any], attrs: dict[str, Any]) -> str:
    """Resize all spatial axes to `sizes`, or by `factors`."""
    axes = tuple(range(2, s.rank(x)))
    if sizes is not None:
        return s.node("Resize", x, "", "", list(sizes), axes=axes, **attrs)
    each = factors[0] if len(factors) == 1 else factors
    scales = [1.0 if factor is None else float(factor) for factor in each]
    if all(scale.is_integer() for scale in scales):
        sizes = [s.shape(x)[a] * int(scale) for a, scale in zip(axes, scales, strict=True)]
        return s.node("Resize", x, "", "", sizes, axes=axes, **attrs)
    return s.node("Resize", x, "", s.b.constant(np.array(scales, np.float32)), axes=axes, **attrs)


def _nearest(way: str, rounding: str) -> Callable[..., str]:
    attrs = {
        "mode": "nearest",
        "coordinate_transformation_mode": way,
        "nearest_mode": rounding,
    }

    def rule(s: Scope, x: str, output_size: Any = None, *factors: Any) -> str:
        return _resized(s, x, output_size, factors, attrs)

    return rule


def _smooth(mode: str, **extra: Any) -> Callable[..., str]:
    def rule(s: Scope, x: str, output_size: Any, align_corners: bool, *factors: Any) -> str:
        way = "align_corners" if align_corners else "half_pixel"
        attrs = {"mode": mode, "coordinate_transformation_mode": way, **extra}
        return _resized(s, x, output_size, factors, attrs)

    return rule


def _both(name: str) -> tuple[str, str]:
    return f"aten.{name}.default", f"aten.{name}.vec"


for _rank in (1, 2, 3):
    aten(*_both(f"upsample_nearest{_rank}d"))(_nearest("asymmetric", "floor"))
    aten(*_both(f"_upsample_nearest_exact{_rank}d"))(_nearest("half_pixel", "round_prefer_ceil"))
for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    aten(*_both(_name))(_smooth("linear"))
aten(*_both("upsample_bicubic2d"))(_smooth("cubic", cubic_coeff_a=-0.75))
aten(*_both("_upsample_bilinear2d_aa"))(_smooth("linear", antialias=1))
aten(*_both("_upsample_bicubic2d_aa"))(_smooth("cubic", cubic_coeff_a=-0.5, antialias=1))


@aten("aten.pad.default")
def pad(
    s: Scope, x: str, pads: Sequence[Any], mode: str = "constant", value: float | None = None
) -> str:
    rank = s.rank(x)
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for position in range(len(pads) // 2):
        axis = rank - 1 - position
        before[axis], after[axis] = pads[2 * position], pads[2 * position + 1]
    if mode not in _PADS:
        raise NotSupported(f"the padding mode {mode!r}")
    fill = s.tensor(value or 0, s.dtype(x)) if mode == "constant" else ""
    return s.node("Pad", x, [*before, *after], fill, mode=_PADS[mode])


@aten("aten.constant_pad_nd.default")
def constant_pad_nd(s: Scope, x: str, pads: Sequence[Any], value: float = 0) -> str:
    return pad(s, x, pads, "constant", value)


def _padding(mode: str) -> Callable[..., str]:
    def rule(s: Scope, x: str, pads: Sequence[Any]) -> str:
        return pad(s, x, pads, mode)

    return rule


for _rank in (1, 2, 3):
    aten(f"aten.reflection_pad{_rank}d.default")(_padding("reflect"))
    aten(f"aten.replication_pad{_rank}d.default")(_padding("replicate"))


@aten("aten.grid_sampler.default", "aten.grid_sampler_2d.default")
def grid_sampler(s: Scope, x: str, grid: str, mode: int, padding: int, align: bool) -> str:
    return s.node(
        "GridSample",
        x,
        grid,
        mode=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=int(align),
    )
