"""Resize by nearest neighbour or by linear interpolation.

Output position o reads input coordinate (p·o + q) / d along each axis, in whole numbers, so that
compiled code and reference agree exactly on which element is the nearest.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder, attributes_of
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    NotStatic,
    NotSupported,
    Operator,
    Types,
    as_ints,
    normal_axis,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, cast, scalar


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """How one axis is resized: input coordinate (p·o + q) / d of output position o."""

    extent: int
    outputs: int
    p: int
    q: int
    d: int

    @property
    def changes(self) -> bool:
        return (self.extent, self.p, self.q, self.d) != (self.outputs, 1, 0, 1)


def _lines(
    shape: tuple[int, ...],
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    attrs: Attrs,
) -> list[_Line]:
    """One line an axis; `scales` or `sizes` say how far, for the axes that `axes` names."""
    rank = len(shape)
    axes = [normal_axis(a, rank) for a in as_ints(attrs.get("axes") or range(rank))]
    given = sizes if sizes is not None else scales
    if given is None or len(given) != len(axes):
        raise Mismatch(f"scales or sizes {given} for axes {axes}")
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotSupported(f"keep_aspect_ratio_policy {attrs['keep_aspect_ratio_policy']!r}")
    mode = str(attrs.get("coordinate_transformation_mode", "half_pixel"))
    lines = [_Line(extent, extent, 1, 0, 1) for extent in shape]
    for axis, wanted in zip(axes, given, strict=True):
        extent = shape[axis]
        outputs = int(wanted) if sizes is not None else math.floor(extent * wanted)
        if outputs < 1 or wanted <= 0:
            raise Mismatch(f"axis {axis} of {extent} resized by {wanted} has no elements")
        scale = Fraction(outputs, extent)
        if sizes is None and np.float32(wanted) != np.float32(outputs / extent):
            scale = Fraction(float(wanted))
        lines[axis] = _Line(extent, outputs, *_coordinates(mode, scale, extent, outputs))
    return lines


def _coordinates(mode: str, scale: Fraction, extent: int, outputs: int) -> tuple[int, int, int]:
    """p, q and d of ONNX's coordinate transformations."""
    step = 1 / scale
    half_pixel = (step - 1) / 2  # (o + ½)·step − ½
    match mode:
        case "half_pixel":
            start = half_pixel
        case "pytorch_half_pixel":
            start = half_pixel if outputs > 1 else Fraction(0)
            step = step if outputs > 1 else Fraction(0)
        case "half_pixel_symmetric":
            # As half_pixel, and centred where outputs is not extent·scale.
            start = half_pixel + Fraction(extent, 2) * (1 - Fraction(outputs) / (scale * extent))
        case "asymmetric":
            start = Fraction(0)
        case "align_corners":
            start = Fraction(0)
            step = Fraction(extent - 1, outputs - 1) if outputs > 1 else Fraction(0)
        case _:
            raise NotSupported(f"coordinate_transformation_mode {mode!r}")
    d = math.lcm(step.denominator, start.denominator)
    return int(step * d), int(start * d), d


_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _nearest(line: _Line, rounding: str) -> tuple[int, int, int]:
    """p, q, d such that (p·o + q) // d is the nearest input position."""
    p, q, d = line.p, line.q, line.d
    match rounding:
        case "floor":
            return p, q, d
        case "ceil":
            return p, q + d - 1, d
        case "round_prefer_floor":  # ceil(x − ½)
            return 2 * p, 2 * q - d + 2 * d - 1, 2 * d
        case "round_prefer_ceil":  # floor(x + ½)
            return 2 * p, 2 * q + d, 2 * d
        case _:
            raise NotSupported(f"nearest_mode {rounding!r}")


def _modes(attrs: Attrs) -> tuple[str, str]:
    mode = str(attrs.get("mode", "nearest"))
    if mode not in ("nearest", "linear"):
        raise NotSupported(f"mode {mode!r}")
    if mode == "linear" and attrs.get("antialias", 0):
        raise NotSupported("antialias")
    rounding = str(attrs.get("nearest_mode", "round_prefer_floor"))
    if rounding not in _NEAREST:
        raise NotSupported(f"nearest_mode {rounding!r}")
    return mode, rounding


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    _modes(attrs)
    given: list[Array | None] = []
    for position, name in ((2, "scales"), (3, "sizes")):
        factor = types[position] if position < len(types) else None
        omitted = factor is None or factor.size == 0
        if not omitted and position not in constants:
            raise NotStatic(f"its {name} (input {position}) depend on data known only at run time")
        given.append(None if omitted else constants[position])
    lines = _lines(x.static_shape, *_factors(given[0], given[1]), attrs)
    return (TensorType(x.dtype, tuple(line.outputs for line in lines)),)


def _factors(
    scales: Array | None, sizes: Array | None
) -> tuple[list[float] | None, list[int] | None]:
    return (
        [float(s) for s in scales] if scales is not None and scales.size else None,
        [int(s) for s in sizes] if sizes is not None and sizes.size else None,
    )


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    mode, rounding = _modes(attrs)
    factors = _factors(optional(arrays, 2), optional(arrays, 3))
    for axis, line in enumerate(_lines(x.shape, *factors, attrs)):
        if not line.changes:
            continue
        o = np.arange(line.outputs, dtype=np.int64)
        if mode == "nearest":
            p, q, d = _nearest(line, rounding)
            x = np.take(x, np.clip((p * o + q) // d, 0, line.extent - 1), axis=axis)
            continue
        at = np.clip(line.p * o + line.q, 0, (line.extent - 1) * line.d)
        low = at // line.d
        high = np.minimum(low + 1, line.extent - 1)
        shape = [-1 if a == axis else 1 for a in range(x.ndim)]
        weight = ((at % line.d) / line.d).astype(x.dtype).reshape(shape)
        x = np.take(x, low, axis=axis) * (1 - weight) + np.take(x, high, axis=axis) * weight
    return (x,)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, attrs = builder.operand(node, inputs, 0), attributes_of(node)
    mode, rounding = _modes(attrs)
    factors = [builder.constant(node.inputs[i]) if i < len(node.inputs) else None for i in (2, 3)]
    lines = _lines(x.shape, *_factors(factors[0], factors[1]), attrs)

    def nearest(*at: Expr) -> Scalar:
        return x(
            *(
                _clamped(i, *_nearest(line, rounding), line) if line.changes else i
                for i, line in zip(at, lines, strict=True)
            )
        )

    def linear(*at: Expr) -> Scalar:
        choices: list[list[tuple[Expr, Scalar | None]]] = []
        for i, line in zip(at, lines, strict=True):
            choices.append(_neighbours(i, line, x.dtype) if line.changes else [(i, None)])
        result: Scalar | None = None
        for corner in itertools.product(*choices):
            value = x(*(position for position, _ in corner))
            for _, weight in corner:
                value = value if weight is None else value * weight
            result = value if result is None else result + value
        assert result is not None
        return result

    return (builder.output(node, nearest if mode == "nearest" else linear),)


def _clamped(o: Expr, p: int, q: int, d: int, line: _Line) -> Expr:
    """(p·o + q) // d within the axis; a bound that always holds is left out."""
    position = e.floordiv(e.add(e.mul(o, p), q), d)
    if q < 0:
        position = e.Binary(e.BinaryOp.MAX, position, e.index(0))
    if (p * (line.outputs - 1) + q) // d >= line.extent:
        position = e.Binary(e.BinaryOp.MIN, position, e.index(line.extent - 1))
    return position


def _neighbours(o: Expr, line: _Line, dtype: DType) -> list[tuple[Expr, Scalar | None]]:
    """The two positions that output `o` lies between, with their weights."""
    at = e.add(e.mul(o, line.p), line.q)
    if line.q < 0:
        at = e.Binary(e.BinaryOp.MAX, at, e.index(0))
    highest = (line.extent - 1) * line.d
    if line.p * (line.outputs - 1) + line.q > highest:
        at = e.Binary(e.BinaryOp.MIN, at, e.index(highest))
    low = e.floordiv(at, line.d)
    high = e.Binary(e.BinaryOp.MIN, e.add(low, 1), e.index(line.extent - 1))
    weight = cast(scalar(e.mod(at, line.d)), dtype) * (1 / line.d)
    return [(low, 1 - weight), (high, weight)]


OPERATORS: tuple[Operator, ...] = (
    Operator("Resize", Kind.INJECTIVE, _infer, _reference, _compute, frozenset({1, 2, 3})),
)
