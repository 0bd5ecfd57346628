"""Rules of reductions along axes, running sums, and resizing."""

from __future__ import annotations

import functools

from farrier.frontends.builder.images import ImageBuilder, first_axes
from farrier.frontends.tflite.call import Call, Rule, as_index
from farrier.ops.operator import normal_axis


def _reduce(call: Call, b: ImageBuilder, *, op: str) -> str:
    """Convert a reduction along the axes in the second operand; with an empty list, the result is
    the tensor itself."""
    keep = int(call.option("keep_dims"))
    x, axes = call.value(0), call.ints(1)
    rank = len(b.shape(x))
    along = sorted({normal_axis(axis, rank) for axis in axes})
    if not along:
        return x
    if not b.has_channels_first(x) or not (keep or along == list(range(1, rank - 1))):
        return b.add(op, x, along, keepdims=keep)
    order = first_axes(rank)
    moved = sorted(order.index(axis) for axis in along)
    result = b.add(op, b.channels_first(x), moved, keepdims=keep)
    return b.channels_last(result) if keep else result


def _any(call: Call, b: ImageBuilder, *, op: str) -> str:
    """Convert REDUCE_ANY and REDUCE_ALL to the maximum and minimum of truth values."""
    keep = int(call.option("keep_dims"))
    x = b.add("Cast", call.value(0), to="u8")
    along = sorted({normal_axis(axis, len(b.shape(x))) for axis in call.ints(1)})
    return b.add("Cast", b.add(op, x, along, keepdims=keep), to="bool")


def _cumulative(call: Call, b: ImageBuilder) -> str:
    attrs = {name: int(call.option(name)) for name in ("exclusive", "reverse")}
    axis = b.add("Reshape", as_index(b, call.value(1)), [])
    return b.add("CumSum", call.value(0), axis, **attrs)


def _resized(call: Call, b: ImageBuilder, *, mode: str) -> str:
    """Convert RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, with aligned corners, half-pixel
    centres, or neither."""
    is_aligned, is_half = call.option("align_corners"), call.option("half_pixel")
    coordinates = "align_corners" if is_aligned else "half_pixel" if is_half else "asymmetric"
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "axes": (2, 3)}
    if mode == "nearest":
        attrs["nearest_mode"] = "round_prefer_ceil" if is_aligned else "floor"
        if is_half and not is_aligned:  # TFLite adds the half after it has scaled, and rounds down.
            attrs["coordinate_transformation_mode"] = "tf_half_pixel_for_nn"
    image = b.channels_first(call.value(0))
    return b.channels_last(b.add("Resize", image, "", "", as_index(b, call.value(1)), **attrs))


RULES: dict[str, Rule] = {
    "CUMSUM": _cumulative,
    "MEAN": functools.partial(_reduce, op="ReduceMean"),
    "REDUCE_ALL": functools.partial(_any, op="ReduceMin"),
    "REDUCE_ANY": functools.partial(_any, op="ReduceMax"),
    "REDUCE_MAX": functools.partial(_reduce, op="ReduceMax"),
    "REDUCE_MIN": functools.partial(_reduce, op="ReduceMin"),
    "REDUCE_PROD": functools.partial(_reduce, op="ReduceProd"),
    "RESIZE_BILINEAR": functools.partial(_resized, mode="linear"),
    "RESIZE_NEAREST_NEIGHBOR": functools.partial(_resized, mode="nearest"),
    "SUM": functools.partial(_reduce, op="ReduceSum"),
}
