"""Rewrite Resize with antialiasing or cropping to matrix products.

Every such filter is linear and separable: each axis is resized by a product with a constant matrix
[outputs, inputs].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.known import check_made, constant
from farrier.ir.dim import number
from farrier.ir.types import DType
from farrier.ops import NotStatic, NotSupported
from farrier.ops.operator import Mismatch, normal_axis

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

Array = npt.NDArray[np.float64]


def is_filter(node: RawNode) -> bool:
    """Check whether a Resize node uses antialiasing or cropping, which the operator's kernel does
    not support."""
    crops = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    blends = node.attrs.get("mode", "nearest") != "nearest"
    return crops or (blends and bool(node.attrs.get("antialias", 0)))


def as_products(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Resize to a product with a matrix along each axis that changes. Elements outside of
    a crop get the extrapolation value."""
    x = node.inputs[0]
    shape, dtype = builder.shape(x), builder.dtype(x)
    axes = _axes(node, len(shape))
    roi = constant(builder, node.inputs[1], "roi").reshape(2, -1) if node.input(1) else None
    by_size = bool(node.input(3))
    factors = (
        builder.data(node.inputs[3]) if by_size else constant(builder, node.inputs[2], "scales")
    )
    if factors is None:
        raise NotStatic("its sizes depend on data known only at run time", (node.inputs[3],))
    if len(factors) != len(axes) or (roi is not None and roi.shape[1] != len(axes)):
        raise Mismatch(f"{factors} for the axes {axes}")
    by_scale = constant(builder, node.inputs[2], "scales") if node.input(2) else None
    x = x if dtype.is_float else builder.add("Cast", x, to="f64")
    weights_of = _weights if dtype.is_float else _whole_weights
    is_rounded = bool(node.attrs.get("antialias", 0))
    outside: npt.NDArray[np.bool_] = np.zeros((1,) * len(shape), np.bool_)
    order = list(enumerate(axes))
    for position, axis in order if dtype.is_float else reversed(order):
        crop = None if roi is None else (float(roi[0, position]), float(roi[1, position]))
        wanted = factors[position]
        if wanted == (shape[axis] if by_size else 1) and crop in (None, (0, 1)):
            continue
        extent = number(shape[axis])
        outputs = number(wanted) if by_size else math.floor(extent * float(wanted))
        check_made(outputs, extent)
        scale = outputs / extent if by_scale is None else float(by_scale[position])
        weights, beyond = weights_of(node.attrs, extent, outputs, scale, crop)
        outside = outside | beyond.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        if not np.array_equal(weights, np.eye(outputs, extent)):
            kind = dtype.numpy if dtype.is_float else np.dtype(np.float64)
            x = _along(x, axis, weights.astype(kind), builder)
            x = x if dtype.is_float or not is_rounded else _to_whole(x, dtype, builder)
    if not dtype.is_float:
        x = _bounded(x, dtype, builder)
        x = builder.add("Cast", x, to=str(dtype))
    value = node.attrs.get("extrapolation_value", 0.0)
    if not outside.any() or not value:
        return RawNode("Identity", [x], node.outputs, {}, node.origin)
    around = builder.constant(np.where(outside, value, 0.0).astype(dtype.numpy))
    return RawNode("Add", [x, around], node.outputs, {}, node.origin)


def _to_whole(x: str, dtype: DType, builder: Builder) -> str:
    """Round values to the nearest integers of a dtype, halves up, as ONNX Runtime's filters do
    after each axis."""
    half = builder.constant(np.array(0.5))
    return _bounded(builder.add("Floor", builder.add("Add", x, half)), dtype, builder)


def _bounded(x: str, dtype: DType, builder: Builder) -> str:
    """Clamp f64 values to the limits of an integer dtype, which cubic filters can exceed."""
    return builder.add("Clip", x, *(builder.constant(np.array(float(n))) for n in dtype.limits))


def _whole_weights(
    attrs: dict[str, Any],
    extent: int,
    outputs: int,
    scale: float,
    crop: tuple[float, float] | None,
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the weights for an axis of an image of integers, and the mask of `_weights`. As in
    ONNX Runtime's antialiasing filters, the weights are fixed-point numbers with 22 fraction bits.
    """
    weights, outside = _weights(attrs, extent, outputs, scale, crop)
    if attrs.get("antialias", 0):
        scaled = weights * 2.0**22
        weights = np.trunc(scaled + np.copysign(0.5, scaled)) / 2.0**22
    return weights, outside


def _axes(node: RawNode, rank: int) -> list[int]:
    return [normal_axis(axis, rank) for axis in node.attrs.get("axes") or range(rank)]


def _along(x: str, axis: int, weights: npt.NDArray[Any], builder: Builder) -> str:
    """Return `x` with one axis multiplied by weights [outputs, inputs]."""
    rank = len(builder.shape(x))
    if axis == rank - 1:
        return builder.add("MatMul", x, builder.constant(np.ascontiguousarray(weights.T)))
    if axis == rank - 2:
        return builder.add("MatMul", builder.constant(weights), x)
    order = [a for a in range(rank) if a != axis]
    last = builder.add("Transpose", x, perm=(*order, axis))
    product = builder.add("MatMul", last, builder.constant(np.ascontiguousarray(weights.T)))
    back = tuple(int(a) for a in np.argsort([*order, axis]))
    return builder.add("Transpose", product, perm=back)


def _weights(
    attrs: dict[str, Any],
    extent: int,
    outputs: int,
    scale: float,
    crop: tuple[float, float] | None,
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the weights [outputs, inputs] of an axis, and a mask of the outputs whose coordinates
    are outside of the axis."""
    at = _coordinates(attrs, extent, outputs, scale, crop)
    outside = (at < 0) | (at > extent - 1) if crop is not None else np.zeros(outputs, np.bool_)
    mode = attrs.get("mode", "nearest")
    if mode == "nearest":
        taps = _nearest(at, str(attrs.get("nearest_mode", "round_prefer_floor")))[:, None]
        strength = np.ones((outputs, 1))
    else:
        taps, strength = _filter(attrs, mode, at, scale)
    inside = (taps >= 0) & (taps < extent)
    if attrs.get("exclude_outside", 0):
        strength = np.where(inside, strength, 0.0)
        strength = strength / strength.sum(axis=1, keepdims=True)
    weights = np.zeros((outputs, extent))
    rows = np.broadcast_to(np.arange(outputs)[:, None], taps.shape)
    np.add.at(weights, (rows, np.clip(taps, 0, extent - 1)), strength)
    weights[outside] = 0.0
    return weights, outside


def _coordinates(
    attrs: dict[str, Any],
    extent: int,
    outputs: int,
    scale: float,
    crop: tuple[float, float] | None,
) -> Array:
    """Return the input coordinate of each output along an axis, in elements."""
    o, length = np.arange(outputs, dtype=np.float64), scale * extent
    match attrs.get("coordinate_transformation_mode", "half_pixel"):
        case "half_pixel":
            return (o + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (o + 0.5) / scale - 0.5 if length > 1 else np.full(outputs, -0.5)
        case "half_pixel_symmetric":
            return extent / 2 * (1 - outputs / length) + (o + 0.5) / scale - 0.5
        case "tf_half_pixel_for_nn":
            return (o + 0.5) / scale
        case "asymmetric":
            return o / scale
        case "align_corners":
            # The last output lies on the last input, as the text of the specification, PyTorch and
            # ONNX Runtime have it; the suite's reference divides by a fractional length.
            return o * (extent - 1) / max(outputs - 1, 1)
        case "tf_crop_and_resize" if crop is not None:
            start, end = crop
            if length > 1:
                return start * (extent - 1) + o * (end - start) * (extent - 1) / (length - 1)
            return np.full(outputs, (start + end) * (extent - 1) / 2)
        case mode:
            raise NotSupported(f"coordinate_transformation_mode {mode!r}")


def _nearest(at: Array, rounding: str) -> npt.NDArray[np.int64]:
    match rounding:
        case "round_prefer_floor":
            rounded = np.ceil(at - 0.5)
        case "round_prefer_ceil":
            rounded = np.floor(at + 0.5)
        case "floor":
            rounded = np.floor(at)
        case "ceil":
            rounded = np.ceil(at)
        case _:
            raise NotSupported(f"nearest_mode {rounding!r}")
    return rounded.astype(np.int64)


def _filter(
    attrs: dict[str, Any], mode: str, at: Array, scale: float
) -> tuple[npt.NDArray[np.int64], Array]:
    """Return the input positions [outputs, taps] that each output reads, and their weights.

    An antialiasing filter that shrinks the image is widened by the inverse of the scale, so that
    every input contributes.
    """
    squeeze = min(scale, 1.0) if attrs.get("antialias", 0) else 1.0
    radius = 2 if mode == "cubic" else 1
    reach = math.ceil(radius / squeeze)
    taps = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(taps - at[:, None]) * squeeze
    if mode == "cubic":
        strength = _cubic(distance, float(attrs.get("cubic_coeff_a", -0.75)))
    else:
        strength = np.maximum(1 - distance, 0.0)
    if squeeze < 1:
        strength = strength / strength.sum(axis=1, keepdims=True)
    return taps, strength


def _cubic(distance: Array, a: float) -> Array:
    """Evaluate the kernel of Keys' cubic convolution (IEEE ASSP 29, 1981) with parameter `a`."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
