"""Sliding windows: the common code of Conv, ConvTranspose and the pools.

Along one spatial axis, output position o reads input positions o·stride + k·dilation − before for
taps (kernel positions) k in [0, kernel); positions outside the input are padding.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv, is_less, maximum, minimum, number
from farrier.ir.expr import Expr
from farrier.ir.graph import Node
from farrier.ir.types import Shape
from farrier.ops.builder import Operand
from farrier.ops.operator import Array, Attrs, Mismatch, as_ints
from farrier.ops.scalar import Scalar, scalar, where


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The window of a node: tuples with one entry per spatial axis. `before` and `after` are the
    padding. `covers` is set in auto_pad's SAME modes, in which output extents are ceil(input /
    stride)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: Shape
    after: Shape
    covers: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def reach(self, axis: int) -> int:
        """Return the number of input positions from the first to the last tap of the window, both
        included."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    @overload
    def outputs(self, spatial: tuple[int, ...], ceil: bool = False) -> tuple[int, ...]: ...
    @overload
    def outputs(self, spatial: Shape, ceil: bool = False) -> Shape: ...
    def outputs(self, spatial: Shape, ceil: bool = False) -> Shape:
        """Return the output extents over an input of extents `spatial`; raises Mismatch if they are
        negative."""
        extents: list[Extent] = []
        for axis, extent in enumerate(spatial):
            stride = self.strides[axis]
            if self.covers:
                extents.append(ceildiv(extent, stride))
                continue
            room = extent + self.before[axis] + self.after[axis] - self.reach(axis)
            # With ceil_mode a last window may extend beyond the input and its padding.
            if room + (stride - 1 if ceil else 0) < 0:
                raise Mismatch(
                    f"a window of {self.reach(axis)} does not fit into {extent} elements padded by "
                    f"{self.before[axis]} and {self.after[axis]} (spatial axis {axis})"
                )
            count = (ceildiv(room, stride) if ceil else room // stride) + 1
            if ceil:  # A window that starts in the padding after the input is dropped.
                count = minimum(count, ceildiv(extent + self.before[axis], stride))
            extents.append(count)
        return tuple(extents)

    def explicit(self, attrs: Attrs) -> Attrs:
        """Return the attributes of a node with the values of this window. The attribute `auto_pad`
        stays if the pads depend on sizes that are known only at run time."""
        pads = tuple(pad for pad in self.before + self.after if isinstance(pad, int))
        whole = {
            **attrs,
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
        }
        if len(pads) == 2 * self.rank:
            whole.pop("auto_pad", None)
            whole["pads"] = pads
        return whole


def window_of(attrs: Attrs, spatial: Shape, weights: Shape | None) -> Window:
    """Return the window that the attributes describe; `weights` are the extents of the weights'
    kernel, if there are any."""
    rank = len(spatial)
    kernel = None if weights is None else tuple(map(number, weights))
    declared = as_ints(attrs["kernel_shape"]) if "kernel_shape" in attrs else kernel
    if declared is None:
        raise Mismatch("it has no kernel_shape")
    if kernel is not None and declared != kernel:
        raise Mismatch(f"kernel_shape {declared} differs from the weights' {kernel}")
    strides = as_ints(attrs.get("strides") or (1,) * rank)
    dilations = as_ints(attrs.get("dilations") or (1,) * rank)
    pads = as_ints(attrs.get("pads") or (0,) * 2 * rank)
    for name, values, expected in (
        ("kernel_shape", declared, rank),
        ("strides", strides, rank),
        ("dilations", dilations, rank),
        ("pads", pads, 2 * rank),
    ):
        if len(values) != expected:
            raise Mismatch(f"{name} {values} for {rank} spatial axes")
    if min(declared + strides + dilations, default=1) < 1 or min(pads, default=0) < 0:
        raise Mismatch(
            f"kernel {declared}, strides {strides}, dilations {dilations} must be positive and "
            f"pads {pads} not negative"
        )
    before: Shape = pads[:rank]
    after: Shape = pads[rank:]
    mode = str(attrs.get("auto_pad") or "NOTSET")
    if mode == "VALID":
        before = after = (0,) * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        before, after = _same(mode, spatial, declared, strides, dilations)
    elif mode != "NOTSET":
        raise Mismatch(f"auto_pad {mode!r} is none of NOTSET, SAME_UPPER, SAME_LOWER, VALID")
    return Window(declared, strides, dilations, before, after, mode.startswith("SAME"))


def window_by_attributes(node: Node) -> Window:
    """Return the window of a node without weights, such as a pool, from its attributes."""
    x = node.inputs[0]
    assert x is not None
    return window_of(dict(node.attrs), x.type.shape[2:], None)


def _same(
    mode: str,
    spatial: Shape,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[Shape, Shape]:
    """Return the padding before and after each axis for auto_pad's SAME modes, in which output
    extents are ceil(input / stride)."""
    before: list[Extent] = []
    after: list[Extent] = []
    for extent, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        total = maximum((ceildiv(extent, s) - 1) * s + (k - 1) * d + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return tuple(before), tuple(after)


def tap_names(rank: int, prefix: str) -> tuple[str, ...]:
    """Return names for the kernel axes: `prefix` + x, y, z, for the last `rank` spatial axes."""
    if rank > 3:
        return tuple(f"{prefix}{axis}" for axis in range(rank))
    suffixes = {"o": ("z", "y", "x"), "k": ("d", "h", "w")}[prefix]
    return tuple(prefix + suffix for suffix in suffixes[3 - rank :])


def read(
    x: Operand,
    window: Window,
    lead: tuple[int | Expr, ...],
    at: tuple[Expr, ...],
    taps: tuple[Expr, ...],
    extents: Shape,
    fill: float | int,
) -> Scalar:
    """Return the input element that tap `taps` of the window at output `at` reads; padding reads
    `fill`.

    `extents` are the output's. A check that can never fail, or that the input's zero halo makes
    unnecessary, is left out.
    """
    position = positions(window, at, taps)
    halos = [x.halo(len(lead) + axis) if fill == 0 else (0, 0) for axis in range(window.rank)]
    checks = bounds_checks(window, position, x.shape[len(lead) :], extents, halos)
    indices = (*lead, *position)
    element = x(*indices)
    if not checks:
        return element
    return where(scalar(all_of(checks)), element, fill)


def positions(window: Window, at: tuple[Expr, ...], taps: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the input positions that tap `taps` of the window at output `at` reads, padding
    included."""
    lines = zip(at, taps, window.strides, window.dilations, window.before, strict=True)
    return tuple(e.sub(e.add(e.mul(o, s), e.mul(k, d)), before) for o, k, s, d, before in lines)


def bounds_checks(
    window: Window,
    position: tuple[Expr, ...],
    spatial: Shape,
    extents: Shape,
    halos: Sequence[tuple[Extent, Extent]],
) -> list[Expr]:
    """Return the conditions under which input positions lie within an input. Zeros of a halo count
    as part of the input. Conditions that can never fail are left out."""
    checks: list[Expr] = []
    for axis, (at, extent, halo) in enumerate(zip(position, spatial, halos, strict=True)):
        last = (extents[axis] - 1) * window.strides[axis] + window.reach(axis) - 1
        if not is_less(window.before[axis], halo[0] + 1):
            checks.append(e.Binary(e.BinaryOp.LE, e.index(0), at))
        if not is_less(last - window.before[axis], extent + halo[1]):
            checks.append(e.less(at, extent))
    return checks


def valid_taps(window: Window, axis: int, at: Expr, low: Extent, high: Extent) -> Expr:
    """Return the number of taps of the window at output `at` that read a position in [low,
    high)."""
    stride, dilation = window.strides[axis], window.dilations[axis]
    start = e.sub(e.mul(at, stride), window.before[axis])
    first = e.floordiv(e.add(e.sub(low, start), dilation - 1), dilation)
    last = e.floordiv(e.sub(e.add(high, dilation - 1), start), dilation)
    return e.sub(
        e.Binary(e.BinaryOp.MIN, last, e.index(window.kernel[axis])),
        e.Binary(e.BinaryOp.MAX, first, e.index(0)),
    )


def all_of(checks: list[Expr]) -> Expr:
    """Return the conjunction of one or more conditions."""
    result = checks[0]
    for check in checks[1:]:
        result = e.both(result, check)
    return result


def padded(x: Array, window: Window, extents: tuple[int, ...], fill: float | int) -> Array:
    """Return a copy of the array `x` with padding around it, of value `fill`. It is large enough
    for every tap of every output of extents `extents`."""
    lead = x.ndim - window.rank
    widths = [(0, 0)] * lead
    for axis in range(window.rank):
        needed = (extents[axis] - 1) * window.strides[axis] + window.reach(axis)
        before = number(window.before[axis])
        widths.append((before, max(needed - x.shape[lead + axis] - before, 0)))
    return np.pad(x, widths, constant_values=fill) if any(map(any, widths)) else x


def tap_views(
    x: Array, window: Window, extents: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield, for each position in the convolution kernel, that position and a view of the padded
    input: the elements that the position reads for all outputs."""
    for taps in itertools.product(*(range(k) for k in window.kernel)):
        slices = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(taps, window.dilations, window.strides, extents, strict=True)
        )
        yield taps, x[(slice(None),) * (x.ndim - window.rank) + slices]


def patches(x: Array, window: Window, extents: tuple[int, ...]) -> Array:
    """Return a view of a padded input that shows the window of each output element. Its shape is
    [lead..., kernel..., output...]."""
    lead = x.ndim - window.rank
    steps = x.strides[lead:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:lead], *window.kernel, *extents),
        (
            *x.strides[:lead],
            *(step * d for step, d in zip(steps, window.dilations, strict=True)),
            *(step * s for step, s in zip(steps, window.strides, strict=True)),
        ),
        writeable=False,
    )
