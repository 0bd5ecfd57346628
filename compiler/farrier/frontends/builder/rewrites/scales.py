"""Rewrite Resize with data-dependent sizes, or with scales that are not constants.

A scale that is a quotient of sizes is replaced by the output's size. A data-dependent scale is
applied axis by axis: the input coordinates of the outputs are computed as floats, by ONNX Runtime's
formulas, and the elements at them are gathered.

    scales = 12 / h of an axis of h         ->  sizes = 12
    scales = target / h, target a value     ->  x[floor(o / scale)] for o in 0..floor(h * scale)
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.filters import as_products, is_filter
from farrier.frontends.builder.rewrites.numbers import Numbers
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.builder.rewrites.sizes import sized
from farrier.ir.dim import Dim, Extent, typical
from farrier.ops import NotSupported
from farrier.ops.operator import Mismatch, normal_axis
from farrier.ops.symbolic import Share

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

_WHERE = ("coordinate_transformation_mode", "half_pixel")
_KEPT = ("mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", _WHERE[0])


def resize(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Resize: sizes become extents, and scales that are not constants are applied axis by
    axis."""
    if is_filter(node):
        return as_products(node, builder)
    x, scales = node.inputs[0], builder.scalars(node.inputs[2]) if node.input(2) else []
    if not any(isinstance(scale, str | Dim | Share) for scale in scales):
        return sized(node, builder, 3)
    shape = builder.shape(x)
    axes = [normal_axis(a, len(shape)) for a in node.attrs.get("axes") or range(len(shape))]
    if len(scales) != len(axes):
        raise Mismatch(f"{len(scales)} scales for {len(axes)} axes")
    kept = {name: node.attrs[name] for name in _KEPT if name in node.attrs}
    by_axis = dict(zip(axes, scales, strict=True))
    numbers = {a: s for a, s in by_axis.items() if not isinstance(s, str | Dim | Share) and s != 1}
    sizes = {a: _outputs(shape[a], s) for a, s in by_axis.items() if isinstance(s, Dim | Share)}
    if numbers:
        factors = builder.constant(np.array(list(numbers.values()), np.float32))
        x = builder.add("Resize", x, "", factors, axes=tuple(numbers), **kept)
    if sizes:
        x = builder.add("Resize", x, "", "", list(sizes.values()), axes=tuple(sizes), **kept)
    for axis, scale in by_axis.items():
        if isinstance(scale, str):
            x = _Axis(x, axis, scale, node.attrs, builder).resized()
    return RawNode("Identity", [x], node.outputs, {}, node.origin)


def _outputs(extent: Extent, scale: Dim | Share) -> Extent:
    """Return the output extent `extent · scale` of an axis, where `scale` is a dim or a quotient of
    dims. Raises NotSupported if the product is not an integer for all sizes, because the
    coordinates would then differ from those computed from the output's size."""
    share = scale if isinstance(scale, Share) else Share(scale, 1)
    product = extent * share.extent
    if product % share.denominator != 0:
        raise NotSupported(f"a scale that makes ({product})/({share.denominator}) of {extent}")
    return product // share.denominator


_CUBIC = (-1, 0, 1, 2)  # The neighbors of a place, from the element at or before it.


@dataclasses.dataclass(frozen=True, slots=True)
class _Axis:
    """The resizing of axis `axis` of `x` by `scale`, an f32 scalar that is computed at run time."""

    x: str
    axis: int
    scale: str
    attrs: dict[str, Any]
    builder: Builder

    def resized(self) -> str:
        if not self.builder.dtype(self.x).is_float and self._mode() != "nearest":
            raise NotSupported(f"{self._mode()} interpolation of integers by scales of values")
        at = self._coordinates()
        match self._mode():
            case "nearest":
                return self._elements(self._rounded(at))
            case "linear":
                inside = self._within(at)
                low = self._op("Floor", inside)
                part = self._op("Sub", inside, low)
                weights = [self._op("Sub", self._number(1), part), part]
                return self._blend(low, (0, 1), weights)
            case "cubic":
                low = self._op("Floor", at)
                weights = self._cubic(self._op("Sub", at, low))
                if self.attrs.get("exclude_outside", 0):
                    weights = self._inside(low, weights)
                return self._blend(low, _CUBIC, weights)
            case mode:
                raise NotSupported(f"mode {mode!r}")

    def _mode(self) -> str:
        return str(self.attrs.get("mode", "nearest"))

    def _op(self, op: str, *operands: str) -> str:
        return self.builder.add(op, *operands)

    def _number(self, value: float) -> str:
        return self.builder.constant(np.full((), value, np.float32))

    def _extent(self) -> str:
        """Return the name of the axis's length in f32."""
        return self.builder.add("Cast", self.builder.shape(self.x)[self.axis], to="f32")

    def _coordinates(self) -> str:
        """Return the name of the input coordinates of all outputs, in f32."""
        builder, extent = self.builder, self._extent()
        count = builder.add(
            "Cast", self._op("Floor", self._op("Mul", extent, self.scale)), to="i64"
        )
        usual = max(typical(builder.shape(self.x)[self.axis]), 1)
        outputs = Numbers(builder).size(count, usual=usual)
        o = builder.add("Cast", places(outputs, builder), to="f32")
        half, unit = self._number(0.5), self._number(1)
        centred = self._op("Sub", self._op("Div", self._op("Add", o, half), self.scale), half)
        length = builder.add("Cast", outputs, to="f32")
        match str(self.attrs.get(*_WHERE)):
            case "half_pixel":
                return centred
            case "pytorch_half_pixel":
                # A single output is the first element.
                several = self._op("Min", self._op("Sub", length, unit), unit)
                return self._op("Mul", centred, several)
            case "half_pixel_symmetric":
                # The center of the axis stays where it is when a fractional length is rounded.
                share = self._op("Div", length, self._op("Mul", extent, self.scale))
                center = self._op("Mul", extent, half)
                offset = self._op("Mul", center, self._op("Sub", unit, share))
                return self._op("Add", offset, centred)
            case "asymmetric":
                return self._op("Div", o, self.scale)
            case "align_corners":
                last = self._op("Max", self._op("Sub", length, unit), unit)
                return self._op("Div", self._op("Mul", o, self._op("Sub", extent, unit)), last)
            case mode:
                raise NotSupported(f"coordinate_transformation_mode {mode!r} by scales of values")

    def _rounded(self, at: str) -> str:
        half = self._number(0.5)
        match str(self.attrs.get("nearest_mode", "round_prefer_floor")):
            case "round_prefer_floor":
                return self._op("Ceil", self._op("Sub", at, half))
            case "round_prefer_ceil":
                return self._op("Floor", self._op("Add", at, half))
            case "floor":
                return self._op("Floor", at)
            case "ceil":
                return self._op("Ceil", at)
            case mode:
                raise NotSupported(f"nearest_mode {mode!r}")

    def _within(self, at: str) -> str:
        last = self._op("Sub", self._extent(), self._number(1))
        return self._op("Min", self._op("Max", at, self._number(0)), last)

    def _elements(self, at: str) -> str:
        """Return the elements of the input at positions along the axis; positions are clamped to
        the axis."""
        positions = self.builder.add("Cast", self._within(at), to="i64")
        return self.builder.add("Gather", self.x, positions, axis=self.axis)

    def _blend(self, low: str, offsets: tuple[int, ...], weights: list[str]) -> str:
        """Return the weighted sum of the elements at positions `low` plus each offset."""
        builder, behind = self.builder, len(self.builder.shape(self.x)) - self.axis - 1
        total = ""
        for offset, weight in zip(offsets, weights, strict=True):
            if behind:
                weight = builder.add("Unsqueeze", weight, range(1, 1 + behind))
            weight = builder.add("Cast", weight, to=str(builder.dtype(self.x)))
            elements = self._elements(self._op("Add", low, self._number(offset)))
            part = self._op("Mul", elements, weight)
            total = self._op("Add", total, part) if total else part
        return total

    def _cubic(self, part: str) -> list[str]:
        """Return the cubic weights (R. Keys, 1981) of the four neighbours of a coordinate that lies
        `part` after the second neighbour."""
        a = float(self.attrs.get("cubic_coeff_a", -0.75))  # The default of ONNX's schema.
        unit = self._number(1)
        rest = self._op("Sub", unit, part)
        far = [a, -5 * a, 8 * a, -4 * a]
        near = [a + 2, -(a + 3), 0.0, 1.0]
        return [
            self._polynomial(self._op("Add", part, unit), far),
            self._polynomial(part, near),
            self._polynomial(rest, near),
            self._polynomial(self._op("Add", rest, unit), far),
        ]

    def _inside(self, low: str, weights: list[str]) -> list[str]:
        """Return the weights with those of neighbours outside of the axis set to 0, normalized to a
        sum of 1."""
        zero, own = self._number(0), []
        for offset, weight in zip(_CUBIC, weights, strict=True):
            place = self._op("Add", low, self._number(offset))
            is_element = self._op("Equal", place, self._within(place))
            own.append(self._op("Where", is_element, weight, zero))
        total = functools.reduce(lambda left, right: self._op("Add", left, right), own)
        return [self._op("Div", weight, total) for weight in own]

    def _polynomial(self, at: str, coefficients: list[float]) -> str:
        result = self._number(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self._op("Add", self._op("Mul", result, at), self._number(coefficient))
        return result
