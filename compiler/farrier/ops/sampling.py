"""GridSample: interpolation of images at coordinates in an input."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.expr import UnaryOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops import positions
from farrier.ops.builder import attributes_of
from farrier.ops.cubic import USUAL, cubic_weights
from farrier.ops.nest import LoopBuilder
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    NotSupported,
    Operator,
    Types,
    fail_to_agree,
    int_attr,
    present,
    required,
)
from farrier.ops.scalar import (
    Scalar,
    both,
    cast,
    either,
    equal,
    floor,
    magnitude,
    maximum,
    minimum,
    number,
    scalar,
    unary,
    where,
)

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # The names of the modes before opset 20.
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}  # The elements that each mode reads along an axis.
# The points of a line whose taps are computed at a time. The 16 taps of a cubic image take 13 bytes
# each (offset, weight, inside): 13 KiB for 64 points, which the first-level cache holds for all
# channels.
_CHUNK = 64
_PADDINGS = ("zeros", "border", "reflection")

# A place that is NaN, infinite or beyond the range of an index becomes that of the coordinate −1,
# as in ONNX Runtime, whose limit is half the range of int64 so that neighbours do not overflow.
_FARTHEST = 2.0**62


def _modes(attrs: Attrs) -> tuple[str, str, bool]:
    """Return mode, padding mode, and `align_corners`: whether coordinates −1 and 1 are the centres
    of the outermost elements rather than their outer edges."""
    mode = str(attrs.get("mode", "linear"))
    mode, padding = _MODES.get(mode, mode), str(attrs.get("padding_mode", "zeros"))
    if mode not in ("nearest", "linear", "cubic") or padding not in _PADDINGS:
        raise NotSupported(f"mode {mode!r} with padding {padding!r}")
    return mode, padding, bool(int_attr(attrs, "align_corners", 0))


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, grid = required(types, 0), required(types, 1)
    _modes(attrs)
    if grid.rank != x.rank or x.rank < 3 or grid.shape[-1] != x.rank - 2:
        raise Mismatch(f"a grid {grid.shape} for an input {x.shape}")
    if fail_to_agree(grid.shape[0], x.shape[0]):
        raise Mismatch(f"a grid of batch {grid.shape[0]} for an input {x.shape}")
    return (TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1])),)


def _reflected(place: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Return the position `place` after reflecting it at `low` and `high` as often as necessary to
    bring it between them."""
    below = place < low
    beyond = where(below, low - place, place - high)
    span = high - low
    turns = floor(beyond / span)
    rest = beyond - turns * span
    is_even = equal(turns - floor(turns * 0.5) * 2, 0)
    inside = where(equal(below, is_even), low + rest, high - rest)
    return where(either(below, place > high), inside, place)


def _nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops, row by row of the output. The positions and weights for a chunk of a row are
    the same for all channels, so they are computed once; then each channel gathers its elements."""
    mode, padding, aligned = _modes(attributes_of(node))
    batch, channels, *spatial = nest.shape(0)
    x = nest.input(0, (batch, channels, product(spatial)))
    grid, y = nest.input(1), nest.output()
    outs = y.shape[2:]
    width = min(_CHUNK, outs[-1]) if isinstance(outs[-1], int) else _CHUNK
    kind = grid.dtype if grid.dtype is DType.F64 else DType.F32
    sums = x.dtype if x.dtype is DType.F64 else DType.F32
    count = _TAPS[mode] ** len(spatial)
    with (
        nest.points((batch, product(outs[:-1]))) as (n, row),
        nest.for_(ceildiv(outs[-1], max(width, 1)), "chunk") as chunk,
    ):
        line, first = nest.unravel(row, outs[:-1]), chunk * width
        offsets = [nest.local("offset", (width,), DType.I64) for _ in range(count)]
        weights = [nest.local("weight", (width,), sums) for _ in range(count)]
        inside = [nest.local("inside", (width,), DType.BOOL) for _ in range(count)]
        with nest.for_(width) as i:
            at = minimum(first + i, outs[-1] - 1)  # A last, partial chunk repeats the last point.
            axes = []
            for axis, extent in enumerate(spatial):
                coordinate = cast(grid[(n, *line, at, len(spatial) - 1 - axis)], kind)
                place = nest.let(_place(coordinate, extent, mode, padding, aligned), "place")
                axes.append(_taps(nest, place, extent, mode, padding, aligned))
            for tap, taps in enumerate(itertools.product(*axes)):
                offsets[tap][i] = _offset([index for index, _, _ in taps], spatial)
                factors = [cast(weight, sums) for _, weight, _ in taps if weight is not None]
                weights[tap][i] = functools.reduce(Scalar.__mul__, factors, number(1, sums))
                masks = [mask for _, _, mask in taps if mask is not None]
                if masks:
                    inside[tap][i] = functools.reduce(both, masks)
        with (
            nest.for_(channels, "channel") as c,
            nest.for_(width) as i,
            nest.if_(first + i < outs[-1]),
        ):
            total = number(0, sums)
            for tap in range(count):
                element = nest.let(cast(x[n, c, offsets[tap][i]], sums), "element")
                part = element * weights[tap][i]
                total += where(inside[tap][i], part, 0) if padding == "zeros" else part
            y[(n, c, *line, first + i)] = cast(total, y.dtype)


def _offset(indices: Sequence[Scalar], shape: Sequence[Extent]) -> Scalar:
    """Return the offset of an element in a row-major tensor of `shape`."""
    return functools.reduce(
        lambda outer, inner: outer * inner[1] + inner[0],
        zip(indices[1:], shape[1:], strict=True),
        indices[0],
    )


def _length(extent: Extent, dtype: DType) -> Scalar:
    if isinstance(extent, int):
        return number(extent, dtype)
    return cast(scalar(e.index(extent)), dtype)


def _bounds(extent: Extent, aligned: bool, dtype: DType) -> tuple[Scalar, Scalar]:
    """Return the lowest and highest coordinate inside the image, in elements: the centres of the
    outermost elements if `aligned`, else their outer edges."""
    length = _length(extent, dtype)
    return (number(0, dtype), length - 1) if aligned else (number(-0.5, dtype), length - 0.5)


def _place(coordinate: Scalar, extent: Extent, mode: str, padding: str, aligned: bool) -> Scalar:
    """Convert a coordinate in [−1, 1] to a position in elements. With padding "border" or
    "reflection", a position outside of the image is moved inside."""
    length = _length(extent, coordinate.dtype)
    place = (coordinate + 1) / 2 * (length - 1) if aligned else ((coordinate + 1) * length - 1) / 2
    low, high = _bounds(extent, aligned, coordinate.dtype)
    place = where(magnitude(place) < _FARTHEST, place, low)
    if mode == "nearest":
        place = unary(UnaryOp.ROUND, place)
    if mode == "cubic":
        return place  # The elements around it are moved inside one by one.
    if padding == "border":
        clamped = minimum(maximum(place, 0), length - 1)
        return where(either(place < low, place > high), clamped, place)
    return _reflected(place, low, high) if padding == "reflection" else place


def _taps(
    nest: LoopBuilder, place: Scalar, extent: Extent, mode: str, padding: str, aligned: bool
) -> list[tuple[Scalar, Scalar | None, Scalar | None]]:
    """Return the elements along an axis that the sample at position `place` reads. Each is a tuple
    of position, weight, and the condition under which the position is inside the image (None:
    always)."""
    first = floor(place)
    weights: Sequence[Scalar | None]
    match mode:
        case "nearest":
            offsets, weights = [0], [None]
        case "linear":
            part = nest.let(place - first, "part")
            offsets, weights = [0, 1], [1 - part, part]
        case _:
            part = nest.let(place - first, "part")
            offsets, weights = [-1, 0, 1, 2], [nest.let(w, "w") for w in cubic_weights(part, USUAL)]
    taps = []
    low, high = _bounds(extent, aligned, place.dtype)
    length = _length(extent, place.dtype)
    for offset, weight in zip(offsets, weights, strict=True):
        position, mask = first + offset, None
        if padding == "zeros":
            mask = nest.let(both(position >= 0, position <= length - 1), "inside")
        elif padding == "reflection":
            position = _reflected(position, low, high)
        index = cast(minimum(maximum(position, 0), length - 1), DType.I64)
        bounded = minimum(maximum(index, 0), extent - 1)  # A NaN may have become any index.
        taps.append((nest.let(bounded, "index"), weight, mask))
    return taps


def _np_reflected(place: Array, low: float, high: float) -> Array:
    below = place < low
    beyond = np.where(below, low - place, place - high)
    span = np.asarray(high - low, place.dtype)
    turns = np.floor(beyond / span)
    rest = beyond - turns * span
    inside = np.where(below == (turns % 2 == 0), low + rest, high - rest)
    return np.where(below | (place > high), inside, place)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, grid = present(arrays, 0), present(arrays, 1)
    mode, padding, aligned = _modes(attrs)
    kind = np.float64 if np.float64 in (x.dtype, grid.dtype) else np.float32
    spatial = x.shape[2:]
    axes = []
    for axis, extent in enumerate(spatial):
        coordinate = grid[..., len(spatial) - 1 - axis].astype(kind)
        with np.errstate(all="ignore"):
            axes.append(_np_taps(coordinate, extent, mode, padding, aligned))
    total = np.zeros((*x.shape[:2], *grid.shape[1:-1]), kind)
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * (grid.ndim - 2))
    for taps in itertools.product(*axes):
        moved = np.moveaxis(x, 1, -1)  # Channels go last, so that they are gathered together.
        element = np.moveaxis(moved[(batch, *(index for index, _ in taps))], -1, 1)
        total += element * functools.reduce(np.multiply, (w for _, w in taps))[:, None]
    return (total.astype(x.dtype),)


def _np_taps(
    coordinate: Array, extent: int, mode: str, padding: str, aligned: bool
) -> list[tuple[Array, Array]]:
    """Return the elements along an axis that samples at `coordinate` read, as arrays of positions
    and of weights. Under padding "zeros", elements outside of the image have weight 0."""
    place = (coordinate + 1) / 2 * (extent - 1) if aligned else ((coordinate + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    place = np.where(np.abs(place) < _FARTHEST, place, place.dtype.type(low))
    place = np.rint(place) if mode == "nearest" else place
    if mode == "cubic":
        pass  # The elements around it are moved inside one by one.
    elif padding == "border":
        outside = (place < low) | (place > high)
        place = np.where(outside, np.clip(place, 0, extent - 1), place)
    elif padding == "reflection":
        place = _np_reflected(place, low, high)
    first = np.floor(place)
    part = place - first
    offsets, weights = _np_weights(mode, part)
    taps = []
    for offset, weight in zip(offsets, weights, strict=True):
        position = first + offset
        if padding == "zeros":
            weight = np.where((position >= 0) & (position <= extent - 1), weight, 0)
        elif padding == "reflection":
            position = _np_reflected(position, low, high)
        bounded = np.nan_to_num(np.clip(position, 0, extent - 1)).astype(np.int64)
        taps.append((bounded, weight))
    return taps


def _np_weights(mode: str, part: Array) -> tuple[list[int], list[Array]]:
    if mode == "nearest":
        return [0], [np.ones_like(part)]
    if mode == "linear":
        return [0, 1], [1 - part, part]
    return [-1, 0, 1, 2], cubic_weights(part, USUAL)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "GridSample",
        Kind.NEST,
        _infer,
        _reference,
        None,
        nest=_nest,
        positions=positions.sampled_points,
    ),
)
