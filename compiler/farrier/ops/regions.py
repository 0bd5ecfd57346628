"""Pooling of regions of images: RoiAlign, MaxRoiPool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops import positions
from farrier.ops.builder import attributes_of
from farrier.ops.indexing import checked_indices, position
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
    as_ints,
    clash,
    fail_to_agree,
    float_attr,
    int_attr,
    present,
    required,
)
from farrier.ops.scalar import (
    Scalar,
    both,
    cast,
    ceil,
    floor,
    maximum,
    minimum,
    number,
    scalar,
    where,
)

_MOST_SAMPLES = 1 << 12  # An upper limit on the samples of a bin along an axis, whatever the box.


def _boxes(types: Types, columns: int) -> TensorType:
    boxes = required(types, 1)
    if boxes.rank != 2 or fail_to_agree(boxes.shape[1], columns):
        raise Mismatch(f"boxes {boxes.shape}, and not [boxes, {columns}]")
    return boxes


def _image(types: Types) -> TensorType:
    x = required(types, 0)
    if x.rank != 4:
        raise Mismatch(f"an input {x.shape}, and not [n, channels, height, width]")
    return x


def _length(extent: Extent, dtype: DType) -> Scalar:
    return cast(scalar(e.index(extent)), dtype)


# RoiAlign -----------------------------------------------------------------------------------------


def _align_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, boxes, images = _image(types), _boxes(types, 4), checked_indices(types, 2)
    if str(attrs.get("mode", "avg")) not in ("avg", "max"):
        raise NotSupported(f"mode {attrs['mode']!r}")
    if clash(images.shape, boxes.shape[:1]):
        raise Mismatch(f"{images.shape} images for boxes {boxes.shape}")
    size = (int_attr(attrs, "output_height", 1), int_attr(attrs, "output_width", 1))
    return (TensorType(x.dtype, (boxes.shape[0], x.shape[1], *size)),)


def _align_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of RoiAlign: a bin is the mean or the maximum of bilinear samples. As in
    ONNX, the maximum is over the weighted values of the four neighbours of each sample, not over
    samples."""
    attrs = attributes_of(node)
    x, boxes, images, y = nest.input(0), nest.input(1), nest.input(2), nest.output()
    kind = x.dtype if x.dtype is DType.F64 else DType.F32
    count, channels, height, width = y.shape
    is_half = str(attrs.get("coordinate_transformation_mode", "half_pixel")) == "half_pixel"
    largest, ratio = str(attrs.get("mode", "avg")) == "max", int_attr(attrs, "sampling_ratio", 0)
    scale, offset = float_attr(attrs, "spatial_scale", 1.0), 0.5 if is_half else 0.0
    with nest.points((count, channels)) as (box, channel):
        image = nest.let(position(images[box], x.shape[0]), "image")
        starts, bins, samples = [], [], []
        for axis, bins_of in ((1, height), (0, width)):
            low, high = (cast(boxes[box, axis + i], kind) * scale - offset for i in (0, 2))
            extent = high - low if is_half else maximum(high - low, 1)
            starts.append(nest.let(low, "start"))
            bins.append(nest.let(extent / bins_of, "bin"))
            adaptive = cast(minimum(ceil(bins[-1]), _MOST_SAMPLES), DType.I64)
            samples.append(number(ratio, DType.I64) if ratio > 0 else nest.let(adaptive, "samples"))
        taken = nest.let(maximum(samples[0] * samples[1], 1), "taken")
        with nest.points((height, width)) as at:
            total = nest.variable(number(-math.inf if largest else 0, kind), "total")
            step = [nest.variable(number(0, DType.I64), "step") for _ in range(2)]
            with nest.while_(step[0].value < samples[0]):
                step[1].value = 0
                with nest.while_(step[1].value < samples[1]):
                    places = [
                        nest.let(
                            starts[i]
                            + cast(at[i], kind) * bins[i]
                            + (cast(step[i].value, kind) + 0.5) * bins[i] / cast(samples[i], kind),
                            "place",
                        )
                        for i in range(2)
                    ]
                    inside, axes = None, []
                    for place, size in zip(places, x.shape[2:], strict=True):
                        length = _length(size, kind)
                        fits = both(place >= -1, place <= length)
                        inside = fits if inside is None else both(inside, fits)
                        clamped = nest.let(minimum(maximum(place, 0), length - 1), "clamped")
                        low = minimum(maximum(cast(clamped, DType.I64), 0), size - 1)
                        low = nest.let(low, "low")
                        part = nest.let(clamped - cast(low, kind), "part")
                        axes.append(((low, 1 - part), (minimum(low + 1, size - 1), part)))
                    weighted = [
                        wy * wx * cast(x[image, channel, iy, ix], kind)
                        for iy, wy in axes[0]
                        for ix, wx in axes[1]
                    ]
                    assert inside is not None
                    if largest:
                        best = weighted[0]
                        for value in weighted[1:]:
                            best = maximum(best, value)
                        total.value = maximum(total.value, where(inside, best, 0))
                    else:
                        value = weighted[0] + weighted[1] + weighted[2] + weighted[3]
                        total.value = total.value + where(inside, value, 0)
                    step[1].value = step[1].value + 1
                step[0].value = step[0].value + 1
            result = total.value if largest else total.value / cast(taken, kind)
            if largest:
                result = where(samples[0] * samples[1] > 0, result, 0)
            y[(box, channel, *at)] = cast(result, y.dtype)


def _align_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, boxes, images = (present(arrays, i) for i in range(3))
    kind: Any = np.float64 if x.dtype == np.float64 else np.float32
    is_half = str(attrs.get("coordinate_transformation_mode", "half_pixel")) == "half_pixel"
    largest, ratio = str(attrs.get("mode", "avg")) == "max", int_attr(attrs, "sampling_ratio", 0)
    scale, offset = float_attr(attrs, "spatial_scale", 1.0), 0.5 if is_half else 0.0
    size = (int_attr(attrs, "output_height", 1), int_attr(attrs, "output_width", 1))
    y = np.zeros((len(boxes), x.shape[1], *size), x.dtype)
    for box, corners in enumerate(boxes.astype(kind)):
        image = x[np.clip(images[box], -len(x), len(x) - 1)].astype(kind)
        axes = []
        for axis, count, extent in ((1, size[0], x.shape[2]), (0, size[1], x.shape[3])):
            low, high = (corners[axis + i] * kind(scale) - kind(offset) for i in (0, 2))
            length = high - low if is_half else max(high - low, kind(1))
            step = kind(length) / kind(count)
            samples = ratio if ratio > 0 else int(min(math.ceil(step), _MOST_SAMPLES))
            inner = (np.arange(samples, dtype=kind) + kind(0.5)) * step / kind(max(samples, 1))
            place = low + np.arange(count, dtype=kind)[:, None] * step + inner
            inside = (place >= -1) & (place <= extent)
            clamped = np.clip(place, 0, extent - 1)
            at = clamped.astype(np.int64)
            part = np.where(inside, clamped - at, 0)
            axes.append((at, np.minimum(at + 1, extent - 1), inside * (1 - part), part))
        (y0, y1, a0, a1), (x0, x1, b0, b1) = axes
        if not y0.size or not x0.size:
            continue
        corners_of = [
            a[:, :, None, None] * b * image[:, i[:, :, None, None], j]
            for i, a in ((y0, a0), (y1, a1))
            for j, b in ((x0, b0), (x1, b1))
        ]  # [channels, bins, samples, bins, samples]
        pooled = np.max(corners_of, axis=0).max((2, 4)) if largest else sum(corners_of).mean((2, 4))
        y[box] = pooled
    return (y,)


# MaxRoiPool ---------------------------------------------------------------------------------------


def _pool_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, boxes = _image(types), _boxes(types, 5)
    size = as_ints(attrs["pooled_shape"])
    if len(size) != 2:
        raise Mismatch(f"pooled_shape {size}, and not [height, width]")
    return (TensorType(x.dtype, (boxes.shape[0], x.shape[1], *size)),)


def _pool_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of MaxRoiPool: the maximum of each bin of a box whose corners are rounded to
    elements; 0 for an empty bin."""
    attrs = attributes_of(node)
    x, boxes, y = nest.input(0), nest.input(1), nest.output()
    count, channels, *size = y.shape
    scale = float_attr(attrs, "spatial_scale", 1.0)
    kind = boxes.dtype if boxes.dtype is DType.F64 else DType.F32
    with nest.points((count, channels)) as (box, channel):
        image = nest.let(position(cast(boxes[box, 0], DType.I64), x.shape[0]), "image")
        starts, bins = [], []
        for axis, bins_of in ((2, size[0]), (1, size[1])):
            low, high = (_rounded(cast(boxes[box, axis + i], kind) * scale) for i in (0, 2))
            starts.append(nest.let(low, "start"))
            bins.append(nest.let(maximum(high - low + 1, 1) / bins_of, "bin"))
        with nest.points(size) as at:
            ends = []
            for i in range(2):
                extent = x.shape[2 + i]
                first = floor(cast(at[i], kind) * bins[i]) + starts[i]
                last = ceil(cast(at[i] + 1, kind) * bins[i]) + starts[i]
                length = _length(extent, kind)
                ends.append(
                    [
                        nest.let(cast(minimum(maximum(v, 0), length), DType.I64), "end")
                        for v in (first, last)
                    ]
                )
            (top, bottom), (left, right) = ends
            best = nest.variable(number(-math.inf, x.dtype), "best")
            row, column = (nest.variable(number(0, DType.I64), "at") for _ in range(2))
            row.value = top
            with nest.while_(row.value < bottom):
                column.value = left
                with nest.while_(column.value < right):
                    best.value = maximum(best.value, x[image, channel, row.value, column.value])
                    column.value = column.value + 1
                row.value = row.value + 1
            y[(box, channel, *at)] = where(both(top < bottom, left < right), best.value, 0)


def _rounded(value: Scalar) -> Scalar:
    """Round half away from zero, as C's round does."""
    return where(value < 0, ceil(value - 0.5), floor(value + 0.5))


def _pool_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, boxes = present(arrays, 0), present(arrays, 1)
    size, scale = as_ints(attrs["pooled_shape"]), float_attr(attrs, "spatial_scale", 1.0)
    kind: Any = np.float64 if boxes.dtype == np.float64 else np.float32
    y = np.zeros((len(boxes), x.shape[1], *size), x.dtype)
    for box, (image, *corners) in enumerate(boxes.astype(kind)):
        scaled = np.array(corners, kind) * kind(scale)
        whole = np.where(scaled < 0, np.ceil(scaled - kind(0.5)), np.floor(scaled + kind(0.5)))
        ends = []
        for axis, count, extent in ((1, size[0], x.shape[2]), (0, size[1], x.shape[3])):
            low, high = whole[axis], whole[axis + 2]
            step = kind(max(high - low + 1, 1)) / kind(count)
            first = np.floor(np.arange(count, dtype=kind) * step) + low
            last = np.ceil(np.arange(1, count + 1, dtype=kind) * step) + low
            ends.append([np.clip(v, 0, extent).astype(np.int64) for v in (first, last)])
        for i in range(size[0]):
            for j in range(size[1]):
                part = x[
                    int(image), :, ends[0][0][i] : ends[0][1][i], ends[1][0][j] : ends[1][1][j]
                ]
                if part.size:
                    y[box, :, i, j] = part.max((1, 2))
    return (y,)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "RoiAlign",
        Kind.NEST,
        _align_infer,
        _align_reference,
        None,
        nest=_align_nest,
        positions=positions.sampled_points,
    ),
    Operator("MaxRoiPool", Kind.NEST, _pool_infer, _pool_reference, None, nest=_pool_nest),
)
