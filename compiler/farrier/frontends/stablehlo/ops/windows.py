"""Rules of window reductions: pools, and running sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from farrier.frontends.stablehlo.ops import bodies
from farrier.frontends.stablehlo.ops.reductions import combined
from farrier.frontends.stablehlo.scope import Scope
from farrier.frontends.stablehlo.table import hlo
from farrier.ir.dim import product
from farrier.ir.types import DType
from farrier.ops import NotSupported

_MOST_SPATIAL = 3  # Axes that a pool has besides batch and channels.


class _Window(NamedTuple):
    """The window of a reduction along one axis."""

    size: int
    stride: int
    dilation: int
    low: int
    high: int

    @property
    def is_active(self) -> bool:
        """True unless the window leaves the axis unchanged."""
        return (self.size, self.stride, self.low, self.high) != (1, 1, 0, 0)


@hlo("stablehlo.reduce_window")
def reduce_window(s: Scope, *operands: str) -> tuple[str, ...]:
    if len(operands) != 2 or any(each != 1 for each in s.ints_of("base_dilations", [1])):
        raise NotSupported("reduce_window of several tensors, or with a stretched base")
    x, init = operands
    [region] = s.operation.regions
    (first, _, _), (second, _, _) = region.arguments
    body = bodies.combined_by(s, region, first, second, region.returned[0])
    windows = _windows(s)
    if body == "add" and (axis := _running_axis(s, x, windows)) is not None:
        return (_running(s, x, axis, windows[axis]),)
    if body not in ("add", "maximum", "minimum"):
        raise bodies.unknown(s, region)
    return (combined(s, body, _pooled(s, body, x, windows), init),)


def _windows(s: Scope) -> list[_Window]:
    sizes = s.ints_of("window_dimensions")
    ones = [1] * len(sizes)
    strides, dilations = s.ints_of("window_strides", ones), s.ints_of("window_dilations", ones)
    pads = s.ints_of("padding", [0] * (2 * len(sizes)))
    return [
        _Window(*each)
        for each in zip(sizes, strides, dilations, pads[0::2], pads[1::2], strict=True)
    ]


def _running_axis(s: Scope, x: str, windows: Sequence[_Window]) -> int | None:
    """Return the axis along which a window reduction is a running sum: the window of each element
    reaches from one end of the axis to the element. Return None for any other reduction."""
    active = [axis for axis, window in enumerate(windows) if window.is_active]
    if len(active) != 1:
        return None
    window = windows[active[0]]
    size = s.shape(x)[active[0]]
    reaches = window.size == size and window.low + window.high == window.size - 1
    is_plain = window.stride == 1 and window.dilation == 1 and 0 in (window.low, window.high)
    return active[0] if reaches and is_plain and window.size > 1 else None


def _running(s: Scope, x: str, axis: int, window: _Window) -> str:
    return s.node("CumSum", x, s.scalar(axis, DType.I64), reverse=int(window.low == 0))


def _pooled(s: Scope, body: str, x: str, windows: Sequence[_Window]) -> str:
    active = [axis for axis, window in enumerate(windows) if window.is_active]
    if not active:
        return x
    if len(active) > _MOST_SPATIAL:
        raise NotSupported(f"a window along {len(active)} axes")
    spatial = list(range(1, len(windows) - 1))
    if len(windows) > 2 and set(active) <= set(spatial) and len(spatial) <= _MOST_SPATIAL:
        image = _pool(s, body, s.b.channels_first(x), [windows[axis] for axis in spatial])
        return s.b.channels_last(image)
    others = [axis for axis in range(len(windows)) if axis not in active]
    order = [*others, *active]
    moved = s.transpose(x, order)
    shape = s.shape(moved)
    count = len(others)
    image = s.reshape(moved, [product(shape[:count]), 1, *shape[count:]])
    pooled = _pool(s, body, image, [windows[axis] for axis in active])
    apart = s.reshape(pooled, [*shape[:count], *s.shape(pooled)[2:]])
    return s.transpose(apart, sorted(range(len(order)), key=lambda place: order[place]))


def _pool(s: Scope, body: str, image: str, windows: Sequence[_Window]) -> str:
    dtype = s.dtype(image)
    if not dtype.is_float:
        wide = s.cast(image, DType.F64 if dtype.bits > 16 else DType.F32)
        return s.cast(_pool(s, body, wide, windows), dtype)
    if body == "minimum":
        return s.node("Neg", _pool(s, "maximum", s.node("Neg", image), windows))
    low, high = [window.low for window in windows], [window.high for window in windows]
    if any(each >= window.size for window in windows for each in (window.low, window.high)) or any(
        each < 0 for each in (*low, *high)
    ):
        outside = -math.inf if body == "maximum" else 0.0
        image = s.node("Pad", image, [0, 0, *low, 0, 0, *high], s.scalar(outside, dtype))
        low = high = [0] * len(windows)
    attrs = {
        "kernel_shape": tuple(window.size for window in windows),
        "strides": tuple(window.stride for window in windows),
        "dilations": tuple(window.dilation for window in windows),
        "pads": (*low, *high),
    }
    if body == "maximum":
        return s.node("MaxPool", image, **attrs)
    mean = s.node("AveragePool", image, count_include_pad=1, **attrs)
    count = math.prod(window.size for window in windows)
    return s.node("Mul", mean, s.scalar(float(count), dtype))
