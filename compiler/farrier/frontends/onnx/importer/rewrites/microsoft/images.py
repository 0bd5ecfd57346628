"""Rewrite operators on images of com.microsoft to ONNX's operators."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import Extent
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import to_extents

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # The values are ONNX's names since opset 20.


def grid_sample(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite GridSample, whose modes have older names, to ONNX's GridSample."""
    mode = str(node.attrs.get("mode", "bilinear"))
    node.attrs["mode"] = _MODES.get(mode, mode)
    return [RawNode("GridSample", node.inputs, node.outputs, node.attrs, node.origin)]


def crop_and_resize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite CropAndResize: crop boxes [[y₁, x₁, y₂, x₂], …] from images, and resize each to the
    same size.

    Coordinates are fractions of the distance between an image's first and last pixel. Positions
    outside of the image read `extrapolation_value`.
    """
    p = Parts(node, scope)
    x, boxes = p.input(0), p.input(1)
    mode = str(node.attrs.get("mode", "bilinear"))
    if mode not in ("bilinear", "nearest"):
        raise NotSupported(f"mode {mode!r}")
    wanted = to_extents(scope.sizes(p.input(3)))
    if len(wanted) != 2:
        raise Mismatch(f"{len(wanted)} sizes of a crop")
    ys, xs = (
        _positions(p, boxes, axis, size, p.shape(x)[2 + axis]) for axis, size in enumerate(wanted)
    )
    ys, xs = p.unsqueeze(ys, 2), p.unsqueeze(xs, 1)  # Shapes broadcast to boxes, height, width.
    image = _Image(p, x)
    inside = p("And", _is_within(p, ys, p.shape(x)[2]), _is_within(p, xs, p.shape(x)[3]))
    if mode == "nearest":
        half = p.number(0.5)
        y = image.at(*(p("Floor", p("Add", at, half)) for at in (ys, xs)))
    else:
        y = _interpolated(p, image, ys, xs)
    outside = p.number(float(node.attrs.get("extrapolation_value", 0.0)))
    y = p("Where", p.unsqueeze(inside, 3), y, outside)
    return p.results(p.transpose(y, 0, 3, 1, 2))


def _positions(p: Parts, boxes: str, axis: int, size: Extent, extent: Extent) -> str:
    """Return the positions of each box's output pixels along an axis, [boxes, size]: evenly spaced
    from start to end of the box, or for a single pixel its middle."""
    low, high = (p.cut(boxes, at, at + 1, 1) for at in (axis, axis + 2))
    last = p("Cast", p.whole(extent - 1), to=str(p.dtype))
    if size == 1:
        return p("Mul", p("Mul", p("Add", low, high), p.number(0.5)), last)
    steps = p("Cast", p.whole(size - 1), to=str(p.dtype))
    step = p("Div", p("Mul", p("Sub", high, low), last), steps)
    at = p("Cast", places(size, p.scope), to=str(p.dtype))
    return p("Add", p("Mul", low, last), p("Mul", at, step))


def _is_within(p: Parts, at: str, extent: Extent) -> str:
    last = p("Cast", p.whole(extent - 1), to=str(p.dtype))
    return p("And", p("GreaterOrEqual", at, p.number(0)), p("LessOrEqual", at, last))


class _Image:
    """The images, indexed by box."""

    def __init__(self, p: Parts, x: str) -> None:
        self._p, self._pixels = p, p.transpose(x, 0, 2, 3, 1)
        self._which = p.unsqueeze(p("Cast", p.input(2), to="i64"), 1, 2)

    def at(self, ys: str, xs: str) -> str:
        """Return the pixels at positions, [boxes, height, width, channels]. Positions outside of an
        image are clamped to it."""
        p = self._p
        _, height, width, _ = p.shape(self._pixels)
        rows, columns = (
            p("Min", p("Max", p("Cast", at, to="i64"), p.whole(0)), p.whole(extent - 1))
            for at, extent in ((ys, height), (xs, width))
        )
        # Adding zeros of the common shape broadcasts all three indices, so that they concatenate.
        none = p("Mul", p("Add", p("Add", self._which, rows), columns), p.whole(0))
        parts = (p("Add", part, none) for part in (self._which, rows, columns))
        index = p("Concat", *(p.unsqueeze(part, 3) for part in parts), axis=3)
        return p("GatherND", self._pixels, index)


def _interpolated(p: Parts, image: _Image, ys: str, xs: str) -> str:
    """Interpolate bilinearly between the four pixels around each position."""
    (top, bottom), (left, right) = ((p("Floor", at), p("Ceil", at)) for at in (ys, xs))
    down, along = (p.unsqueeze(p("Sub", at, low), 3) for at, low in ((ys, top), (xs, left)))
    rows = []
    for row in (top, bottom):
        first, second = image.at(row, left), image.at(row, right)
        rows.append(p("Add", first, p("Mul", p("Sub", second, first), along)))
    return p("Add", rows[0], p("Mul", p("Sub", rows[1], rows[0]), down))


def max_pool_with_mask(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MaxpoolWithMask: MaxPool of the pixels whose mask is not 0."""
    p = Parts(node, scope)
    is_kept = p("Cast", p.input(1), to="bool")
    x = p("Where", is_kept, p.input(0), p.number(float(np.finfo(p.dtype.numpy).min)))
    return [RawNode("MaxPool", [x], node.outputs, node.attrs, node.origin)]


RULES: dict[str, Upgrade] = {
    "GridSample": grid_sample,
    "CropAndResize": crop_and_resize,
    "MaxpoolWithMask": max_pool_with_mask,
}
