"""Resize by nearest-neighbour, linear or cubic interpolation.

Output position o reads input coordinate (p·o + q) / d along each axis. With integers p, q and d,
the compiled code and the reference agree exactly on which element is nearest. Integers are
interpolated in float64, rounded to f32 and truncated. The truncated result can differ by 1 where
ONNX Runtime's f32 coordinate lies just below an integer. Linear interpolation of integers therefore
computes the coordinate by the same steps in f32 as ONNX Runtime.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from farrier.ir import dim
from farrier.ir import expr as e
from farrier.ir.dim import Extent, bounds, is_less, number
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.special import convert
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import layout, positions
from farrier.ops.builder import Builder, attributes_of
from farrier.ops.cubic import USUAL, cubic_weights
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
    float_attr,
    normal_axis,
    optional,
    present,
    required,
    to_extents,
)
from farrier.ops.scalar import (
    Scalar,
    both,
    cast,
    equal,
    floor,
    maximum,
    minimum,
    scalar,
    where,
)
from farrier.ops.scalar import number as number_of
from farrier.ops.traits import Moves, Trait


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """The resizing of an axis: the input coordinate of output position o is (p·o + q) / d.

    `mode` is the coordinate transformation. `factor` is the scale in the model, or None if the
    scale is `outputs / extent`.
    """

    extent: Extent
    outputs: Extent
    p: Extent
    q: Extent
    d: Extent
    mode: str = "asymmetric"
    factor: float | None = None

    @property
    def changes(self) -> bool:
        return (self.extent, self.p, self.q, self.d) != (self.outputs, 1, 0, 1)


def _lines(
    shape: Shape,
    scales: Sequence[float] | None,
    sizes: Sequence[Extent] | None,
    attrs: Attrs,
) -> list[_Line]:
    """Return a `_Line` for each axis of the tensor; axes that the attribute `axes` omits are
    unchanged.

    The extents of the output are `sizes`, or without them the products of extents and `scales`,
    rounded down. If both are present, which only the importer does, `scales` apply to the
    coordinates.
    """
    rank = len(shape)
    axes = [normal_axis(a, rank) for a in as_ints(attrs.get("axes") or range(rank))]
    listed = sizes if sizes is not None else scales
    if listed is None or any(f is not None and len(f) != len(axes) for f in (scales, sizes)):
        raise Mismatch(f"scales or sizes {listed} for axes {axes}")
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotSupported(f"keep_aspect_ratio_policy {attrs['keep_aspect_ratio_policy']!r}")
    mode = str(attrs.get("coordinate_transformation_mode", "half_pixel"))
    lines = [_Line(extent, extent, 1, 0, 1) for extent in shape]
    for position, axis in enumerate(axes):
        extent = shape[axis]
        wanted = Fraction(1) if scales is None else _ratio(scales[position])
        if sizes is not None:
            outputs = sizes[position]
        else:
            outputs = extent * wanted.numerator // wanted.denominator
        if outputs == 0:  # An output without elements reads nothing.
            lines[axis] = _Line(extent, outputs, 1, 0, 1)
            continue
        if extent == 0 or is_less(outputs, 0):
            raise Mismatch(f"axis {axis} of {extent} cannot be resized to {outputs}")
        scale = _scale(extent, outputs)
        if scales is not None and (
            scale is None or np.float32(scales[position]) != np.float32(scale)
        ):
            scale = wanted
        if scale == 1 and outputs == extent:
            continue
        line = (
            _sized(mode, extent, outputs)
            if scale is None
            else _coordinates(mode, scale, extent, outputs)
        )
        factor = None if scales is None else float(np.float32(scales[position]))
        lines[axis] = _Line(extent, outputs, *line, mode, factor)
    return lines


def _ratio(scale: float) -> Fraction:
    """Return the fraction with a small denominator that rounds to the same f32 as `scale`, or else
    the exact value of the f32."""
    simple = Fraction(scale).limit_denominator(_MAX_DENOMINATOR)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)


_MAX_DENOMINATOR = 4096


def _scale(extent: Extent, outputs: Extent) -> Fraction | None:
    """Return `outputs / extent` as a fraction; None if it depends on a symbol."""
    if isinstance(extent, int) and isinstance(outputs, int):
        return Fraction(outputs, extent)
    for scale, multiple, single in ((1, outputs, extent), (-1, extent, outputs)):
        if bounds(single)[0] < 1:
            continue
        times = multiple // single
        if isinstance(times, int) and times * single == multiple:
            return Fraction(times) ** scale
    return None


def _sized(mode: str, extent: Extent, outputs: Extent) -> tuple[Extent, Extent, Extent]:
    """Return p, q and d for a scale of `outputs / extent` that depends on a symbol."""
    match mode:
        case "half_pixel" | "half_pixel_symmetric":
            return 2 * extent, extent - outputs, 2 * outputs
        case "pytorch_half_pixel":  # A single output reads the first element.
            several = dim.minimum(outputs - 1, 1)
            return 2 * extent * several, (extent - outputs) * several, 2 * outputs
        case "tf_half_pixel_for_nn":
            return 2 * extent, extent, 2 * outputs
        case "asymmetric":
            return extent, 0, outputs
        case "align_corners":
            return extent - 1, 0, dim.maximum(outputs - 1, 1)
        case _:
            raise NotSupported(f"coordinate_transformation_mode {mode!r}")


def _coordinates(
    mode: str, scale: Fraction, extent: Extent, outputs: Extent
) -> tuple[Extent, Extent, Extent]:
    """Return (p, q, d) for a transformation of coordinates: output o reads the input at position
    (p·o + q) / d. `mode` is the name of the transformation in ONNX."""
    step = 1 / scale
    half_pixel = (step - 1) / 2  # (o + ½)·step − ½
    match mode:
        case "half_pixel":
            start = half_pixel
        case "pytorch_half_pixel":  # A single output is the first element.
            p, q, d = _coordinates("half_pixel", scale, extent, outputs)
            return p, q * dim.minimum(outputs - 1, 1), d
        case "half_pixel_symmetric":
            # Like half_pixel, but centred if outputs is not extent·scale.
            # The outputs that `scale` would produce, times its denominator.
            whole = extent * scale.numerator
            spare = whole - outputs * scale.denominator
            if spare != 0:
                above, below = scale.numerator, scale.denominator
                return 2 * below, below - above + spare, 2 * above
            start = half_pixel
        case "tf_half_pixel_for_nn":
            start = step / 2
        case "asymmetric":
            start = Fraction(0)
        case "align_corners":
            start = Fraction(0)
            if not (isinstance(extent, int) and isinstance(outputs, int)):
                return _sized(mode, extent, outputs)
            step = Fraction(extent - 1, outputs - 1) if outputs > 1 else Fraction(0)
        case _:
            raise NotSupported(f"coordinate_transformation_mode {mode!r}")
    d = math.lcm(step.denominator, start.denominator)
    return int(step * d), int(start * d), d


_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _nearest(line: _Line, rounding: str) -> tuple[Extent, Extent, Extent]:
    """Return p, q and d such that (p·o + q) // d is the nearest input position under a rounding
    mode."""
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
    if mode not in ("nearest", "linear", "cubic"):
        raise NotSupported(f"mode {mode!r}")
    if mode != "nearest" and attrs.get("antialias", 0):
        raise NotSupported("antialias")
    rounding = str(attrs.get("nearest_mode", "round_prefer_floor"))
    if rounding not in _NEAREST:
        raise NotSupported(f"nearest_mode {rounding!r}")
    return mode, rounding


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    _modes(attrs)
    factors: list[Array | None] = []
    for position, name in ((2, "scales"), (3, "sizes")):
        factor = types[position] if position < len(types) else None
        omitted = factor is None or factor.size == 0
        if not omitted and position not in constants:
            raise NotStatic(f"its {name} (input {position}) depend on data known only at run time")
        factors.append(None if omitted else constants[position])
    if factors[0] is not None and factors[0].dtype == object:
        raise NotStatic("its scales (input 2) depend on sizes known only at run time")
    lines = _lines(x.shape, *_factors(factors[0], factors[1]), attrs)
    return (TensorType(x.dtype, tuple(line.outputs for line in lines)),)


def _factors(scales: Array | None, sizes: Array | None) -> tuple[list[float] | None, Shape | None]:
    return (
        [float(s) for s in scales] if scales is not None and scales.size else None,
        to_extents(sizes) if sizes is not None and sizes.size else None,
    )


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    mode, rounding = _modes(attrs)
    factors = _factors(optional(arrays, 2), optional(arrays, 3))
    dtype = DType.from_numpy(x.dtype)
    is_whole = dtype.is_integer and mode != "nearest"
    x = x.astype(np.float64) if is_whole else x
    for axis, line in enumerate(_lines(x.shape, *factors, attrs)):
        if not line.changes:
            continue
        o, last = np.arange(number(line.outputs), dtype=np.int64), number(line.extent) - 1
        if mode == "nearest":
            p, q, d = map(number, _nearest(line, rounding))
            x = np.take(x, np.clip((p * o + q) // d, 0, last), axis=axis)
            continue
        p, q, d = number(line.p), number(line.q), number(line.d)
        at = p * o + q if mode == "cubic" else np.clip(p * o + q, 0, last * d)
        low, part = at // d, ((at % d) / d).astype(x.dtype)
        if is_whole and mode == "linear":
            place = np.clip(_np_place(o, line), 0, last).astype(np.float32)
            low = np.floor(place).astype(np.int64)
            part = place - low.astype(np.float32)  # In f32, so that 1 - part is rounded to it too.
        places = [low, low + 1]
        weights = [1 - part, part]
        if mode == "cubic":
            places = [low + offset for offset in (-1, 0, 1, 2)]
            weights = cubic_weights(part, _coefficient(attrs))
            if attrs.get("exclude_outside", 0):
                inside = [(place >= 0) & (place <= last) for place in places]
                weights = [np.where(i, w, 0) for i, w in zip(inside, weights, strict=True)]
                weights = [weight / sum(weights) for weight in weights]
        shape = [-1 if a == axis else 1 for a in range(x.ndim)]
        x = sum(
            np.take(x, np.clip(place, 0, last), axis=axis) * weight.reshape(shape)
            for place, weight in zip(places, weights, strict=True)
        )
    return (convert(convert(x, DType.F32), dtype) if is_whole else x,)


def _np_place(o: Array, line: _Line) -> Array:
    """Return the input coordinates of output positions `o` in numpy, by the same f32 steps as
    `_place`."""
    f32 = np.float32
    extent, outputs, half = f32(number(line.extent)), f32(number(line.outputs)), f32(0.5)
    at, scale = o.astype(f32), outputs / extent if line.factor is None else f32(line.factor)
    match line.mode:
        case "align_corners":
            return np.asarray(at * (extent - f32(1)) / max(outputs - f32(1), f32(1)))
        case "asymmetric":
            return np.asarray(at / scale)
        case "tf_half_pixel_for_nn":
            return np.asarray((at + half) / scale)
        case "pytorch_half_pixel" if number(line.outputs) == 1:
            return at
        case "half_pixel_symmetric":
            offset = extent / f32(2) * (f32(1) - outputs / (scale * extent))
            return np.asarray(offset + (at + half) / scale - half)
        case _:
            return np.asarray((at + half) / scale - half)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, attrs = builder.operand(node, inputs, 0), attributes_of(node)
    mode, rounding = _modes(attrs)
    factors = [builder.constant(node.inputs[i]) if i < len(node.inputs) else None for i in (2, 3)]
    lines = _lines(x.shape, *_factors(factors[0], factors[1]), attrs)
    inner = DType.F64 if x.dtype.is_integer else x.dtype

    def nearest(*at: Expr) -> Scalar:
        return x(
            *(
                _clamped(i, *_nearest(line, rounding), line) if line.changes else i
                for i, line in zip(at, lines, strict=True)
            )
        )

    def weighted(*at: Expr) -> Scalar:
        choices: list[list[tuple[Expr, Scalar | None]]] = []
        for i, line in zip(at, lines, strict=True):
            if not line.changes:
                choices.append([(i, None)])
            elif mode == "cubic":
                choices.append(_four_neighbours(i, line, inner, attrs))
            elif x.dtype.is_integer:
                choices.append(_rounded_neighbours(i, line))
            else:
                choices.append(_neighbours(i, line, inner))
        value = blend(choices, ())
        return cast(cast(value, DType.F32), x.dtype) if x.dtype.is_integer else value

    def blend(choices: list[list[tuple[Expr, Scalar | None]]], at: tuple[Expr, ...]) -> Scalar:
        """Return the weighted sum of elements: interpolate along the axes of `choices`, where `at`
        are the positions already chosen for the axes before them."""
        if not choices:
            return cast(x(*at), inner)
        result: Scalar | None = None
        for position, weight in choices[0]:
            value = blend(choices[1:], (*at, position))
            value = value if weight is None else value * weight
            result = value if result is None else result + value
        assert result is not None
        return result

    return (builder.output(node, nearest if mode == "nearest" else weighted),)


def _clamped(o: Expr, p: Extent, q: Extent, d: Extent, line: _Line) -> Expr:
    """Return the position (p·o + q) // d, clamped to the axis. Tests that never have an effect are
    omitted."""
    position = e.floordiv(e.add(e.mul(o, p), q), d)
    if not is_less(-1, q):
        position = e.Binary(e.BinaryOp.MAX, position, e.index(0))
    if not is_less((p * (line.outputs - 1) + q) // d, line.extent):
        position = e.Binary(e.BinaryOp.MIN, position, e.index(line.extent - 1))
    return position


def _neighbours(o: Expr, line: _Line, dtype: DType) -> list[tuple[Expr, Scalar | None]]:
    """Return the two input positions between which the coordinate of output position `o` lies, each
    with its weight for linear interpolation."""
    at = e.add(e.mul(o, line.p), line.q)
    if not is_less(-1, line.q):
        at = e.Binary(e.BinaryOp.MAX, at, e.index(0))
    highest = (line.extent - 1) * line.d
    if not is_less(line.p * (line.outputs - 1) + line.q, highest + 1):
        at = e.Binary(e.BinaryOp.MIN, at, e.index(highest))
    low = e.floordiv(at, line.d)
    high = e.Binary(e.BinaryOp.MIN, e.add(low, 1), e.index(line.extent - 1))
    rest = cast(scalar(e.mod(at, line.d)), dtype)
    weight = rest * (1 / line.d) if isinstance(line.d, int) else rest / line.d
    return [(low, 1 - weight), (high, weight)]


def _rounded_neighbours(o: Expr, line: _Line) -> list[tuple[Expr, Scalar | None]]:
    """Return the two neighbours of output `o` as `_neighbours` does, with float64 weights computed
    from the f32 coordinate."""
    last = line.extent - 1
    place = minimum(maximum(_place(o, line), 0), number_of(last, DType.F32))
    low = minimum(maximum(cast(floor(place), DType.I64), 0), last)
    high = minimum(low + 1, last)
    part = place - cast(low, DType.F32)  # In f32, so that 1 - part is rounded to it too.
    return [(low.expr, cast(1 - part, DType.F64)), (high.expr, cast(part, DType.F64))]


def _place(o: Expr, line: _Line) -> Scalar:
    """Compute the input coordinate of output `o` in f32, by the steps of ONNX Runtime."""
    extent, outputs = (number_of(n, DType.F32) for n in (line.extent, line.outputs))
    at = cast(scalar(o), DType.F32)
    scale = outputs / extent if line.factor is None else number_of(line.factor, DType.F32)
    match line.mode:
        case "align_corners":
            return at * (extent - 1) / maximum(outputs - 1, 1)
        case "asymmetric":
            return at / scale
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        case "pytorch_half_pixel":
            is_single = equal(outputs, 1)
            return where(is_single, at, (at + 0.5) / scale - 0.5)
        case "half_pixel_symmetric":
            offset = extent / 2 * (1 - outputs / (scale * extent))
            return offset + (at + 0.5) / scale - 0.5
        case _:
            return (at + 0.5) / scale - 0.5


def _four_neighbours(
    o: Expr, line: _Line, dtype: DType, attrs: Attrs
) -> list[tuple[Expr, Scalar | None]]:
    """Return the four input positions around the coordinate of output position `o`, each with its
    weight for cubic interpolation. A position outside of the axis is clamped to it; with the
    attribute `exclude_outside`, it has weight 0."""
    at = e.add(e.mul(o, line.p), line.q)
    low = e.floordiv(at, line.d)
    part = cast(scalar(e.mod(at, line.d)), dtype)
    part = part * (1 / line.d) if isinstance(line.d, int) else part / line.d
    places = [e.add(low, offset) for offset in (-1, 0, 1, 2)]
    weights = cubic_weights(part, _coefficient(attrs))
    if attrs.get("exclude_outside", 0):
        inside = [both(scalar(p) >= 0, scalar(p) <= line.extent - 1) for p in places]
        weights = [where(i, weight, 0) for i, weight in zip(inside, weights, strict=True)]
        whole = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [weight / whole for weight in weights]
    last = e.index(line.extent - 1)
    clamped = [
        e.Binary(e.BinaryOp.MIN, e.Binary(e.BinaryOp.MAX, place, e.index(0)), last)
        for place in places
    ]
    return list(zip(clamped, weights, strict=True))


def _coefficient(attrs: Attrs) -> float:
    """Return the parameter of Keys' cubic convolution."""
    return float_attr(attrs, "cubic_coeff_a", USUAL)


def _is_cropped(node: Node) -> bool:
    """Check whether coordinates outside of the tensor read `extrapolation_value`."""
    return bool(node.attr("coordinate_transformation_mode") == "tf_crop_and_resize")


def _moves(node: Node) -> Moves | None:
    is_nearest = node.attr("mode", "nearest") == "nearest" and not _is_cropped(node)
    return Moves.REPEATED if is_nearest else None


def _keeps_channels(node: Node, images: layout.Images) -> bool:
    x = node.inputs[0]
    return x is not None and node.outputs[0].type.shape[1] == x.type.shape[1]


RESIZE = Operator(
    "Resize",
    Kind.INJECTIVE,
    _infer,
    _reference,
    _compute,
    frozenset({1, 2, 3}),
    traits=Trait.TIES,
    moves=_moves,
    copies=lambda node, data: not _is_cropped(node),
    layout=layout.blocks_moved(_keeps_channels),
    positions=positions.changed_axes,
)
OPERATORS: tuple[Operator, ...] = (RESIZE,)
