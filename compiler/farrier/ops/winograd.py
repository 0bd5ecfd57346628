"""Convolution with 3x3 windows by Winograd's minimal filtering: fewer products, more sums.

A tile of `tile` x `tile` outputs takes (tile + 2)^2 products a pair of channels where the direct
sum takes 9 tile^2: Y = A^T [(G w G^T) * (B^T d B)] A (Lavin and Gray, "Fast algorithms for
convolutional neural networks", 2015). The matrices interpolate polynomials at the points 0, ±p for
the p of `_SQUARES`, and infinity (Toom and Cook). Sums around a pair of points share their even
and odd halves; the formulas below are written so that equal parts are equal expressions.

Errors, as max |error| over max |result|, of one layer of 64 to 256 channels in f32: the direct sum
0.5e-6 to 1.8e-6; tile 2 0.3e-6 to 0.7e-6; tile 4 1.1e-6 to 2.4e-6 (4e-6 to 9e-6 with the points 0,
±1, ±2); tile 6 7e-6 to 1e-5.

The transforms are in the dtype of the sum; their results are stored, and multiplied, in that of the
transformed weights. In bf16 the direct sum is off by 2.2e-3 (root mean square, of that of the
result), tile 2 by 3.7e-3, tile 4 by 9.5e-3: tiles of 4 and 6 keep f32 weights for an image in bf16,
which then is all that is rounded, and are off by 1.6e-3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from farrier.ir import expr as e
from farrier.ir.blocks import block_of
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, Layout, TensorType
from farrier.ops import conv
from farrier.ops.builder import Builder, Operand, attributes_of, total, without_halo
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    accumulator,
    int_attr,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, cast, scalar, where
from farrier.ops.window import Window, padded, read, window_of

Term = TypeVar("Term", Scalar, Array)  # the transforms are of values or of expressions

TAPS = 3
# The squares of the points by the tile. These, and not integers, keep tiles as exact as above.
_SQUARES = {2: (1.0,), 4: (0.5, 2.0), 6: (1 / 3, 1.0, 2.5)}
# By the tile, what the error of one layer in f32 stays below, as max |error| over max |result|.
ERRORS = {2: 1e-6, 4: 3e-6, 6: 1.5e-5}


def tile_of(attrs: Attrs) -> int:
    """Outputs of a tile along one axis."""
    tile = int_attr(attrs, "tile")
    if tile not in _SQUARES:
        raise Mismatch(f"tile is {tile}, and must be one of {sorted(_SQUARES)}")
    return tile


def source_bytes(weights: TensorType) -> int:
    """The bytes of the windows that weights [p, p, outputs, inputs] are transformed from."""
    _, _, outputs, inputs = weights.static_shape
    return TAPS**2 * outputs * inputs * weights.dtype.nbytes


# The three transforms along one axis ------------------------------------------------------------


def input_sums(tile: int, d: Sequence[Term]) -> list[Term]:
    """B^T d: tile + 2 inputs to the factors at the points 0, p, -p, …, infinity."""
    squares = _SQUARES[tile]
    whole = _polynomial(squares)
    sums: list[Term] = [_combine(whole, d[0::2])]
    for square in squares:
        rest = _polynomial([other for other in squares if other != square])
        even, odd = _combine(rest, d[2::2]), _combine(rest, d[1::2])
        sums += _pair(even, odd, math.sqrt(square))
    sums.append(_combine(whole, d[1::2]))
    return sums


def output_sums(tile: int, m: Sequence[Term]) -> list[Term]:
    """A^T m: products at the points to `tile` outputs."""
    pairs = list(zip(m[1:-1:2], m[2:-1:2], strict=True))
    even, odd = [a + b for a, b in pairs], [a - b for a, b in pairs]
    sums: list[Term] = []
    for power in range(tile):
        parts = odd if power % 2 else even
        coefficients = [math.pow(square, power / 2) for square in _SQUARES[tile]]
        total = _combine(coefficients, parts)
        if power == 0:
            total = m[0] + total
        sums.append(total + m[-1] if power == tile - 1 else total)
    return sums


@functools.cache
def weight_matrix(tile: int) -> Array:
    """G, [tile + 2, 3] in f64: the values of a window's polynomial at the points, each over the
    product of its point's distances from the others."""
    points = [0.0]
    for square in _SQUARES[tile]:
        points += [math.sqrt(square), -math.sqrt(square)]
    rows = []
    for point in points:
        scale = math.prod(point - other for other in points if other != point)
        rows.append([math.pow(point, power) / scale for power in range(TAPS)])
    return np.array([*rows, [0.0, 0.0, 1.0]])


def _polynomial(roots: Sequence[float]) -> list[float]:
    """The coefficients, lowest power first, of the product of all x - root."""
    return [float(c) for c in np.polynomial.polynomial.polyfromroots(roots)] if roots else [1.0]


def _combine(coefficients: Sequence[float], values: Sequence[Term]) -> Term:
    """The sum of coefficient times value over as many values as there are coefficients, highest
    first: without a multiplication where the coefficient is 1 or -1."""
    pairs = list(zip(coefficients, values, strict=False))
    result: Term | None = None
    for coefficient, value in sorted(pairs, key=lambda pair: pair[0] != 1.0):
        if result is None:
            result = value if coefficient == 1.0 else value * coefficient
        elif abs(coefficient) == 1.0:
            result = result + value if coefficient > 0 else result - value
        else:
            result = result + value * coefficient
    assert result is not None
    return result


def _pair(even: Term, odd: Term, point: float) -> list[Term]:
    """The polynomial of these halves at a point and at its negative."""
    if point == 1.0:
        return [even + odd, even - odd]
    return [even + odd * point, even + odd * -point]


def _choose(at: Expr, options: Sequence[Scalar]) -> Scalar:
    """`options[at]`: nothing but the option itself once `at` is a constant."""
    chosen = options[-1]
    for position, option in reversed(list(enumerate(options[:-1]))):
        is_here = scalar(Binary(BinaryOp.EQ, at, e.index(position)))
        chosen = where(is_here, option, chosen)
    return chosen


# WinogradWeights --------------------------------------------------------------------------------


def transformed(w: Array, tile: int) -> Array:
    """G w G^T of each window: [oc, ic, 3, 3] to [tile + 2, tile + 2, oc, ic], summed in f64."""
    outputs, inputs, *_ = w.shape
    points = tile + TAPS - 1
    both = np.kron(weight_matrix(tile), weight_matrix(tile))  # [(i, j), (row, column)]
    u = both @ w.reshape(-1, TAPS * TAPS).T.astype(np.float64)
    return u.astype(w.dtype).reshape(points, points, outputs, inputs)


def _infer_weights(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    w, points = required(types, 0), tile_of(attrs) + TAPS - 1
    if w.rank != 4 or w.static_shape[2:] != (TAPS, TAPS):
        raise Mismatch(f"weights of shape {w.shape} are not [oc, ic, {TAPS}, {TAPS}]")
    return (TensorType(w.dtype, (points, points, *w.static_shape[:2])),)


def _reference_weights(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (transformed(present(arrays, 0), tile_of(attrs)),)


# WinogradConv -----------------------------------------------------------------------------------


def _window(attrs: Attrs, spatial: tuple[int, ...]) -> Window:
    window = window_of(attrs, spatial, (TAPS, TAPS))
    if window.strides != (1, 1) or window.dilations != (1, 1):
        raise Mismatch(f"strides {window.strides} and dilations {window.dilations} must be 1")
    return window


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, u, points = required(types, 0), required(types, 1), tile_of(attrs) + TAPS - 1
    if x.rank != 4 or u.rank != 4 or u.shape[:2] != (points, points) or u.shape[3] != x.shape[1]:
        raise Mismatch(f"input {x.shape} and transformed weights {u.shape} do not fit together")
    outputs = u.static_shape[2]
    conv.check_bias(types, outputs)
    (batch, _, *spatial) = x.static_shape
    extents = _window(attrs, tuple(spatial)).outputs(tuple(spatial))
    return (TensorType(accumulator(x.dtype, u.dtype, attrs), (batch, outputs, *extents)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    """The same sums in f64, the factors in bf16 where the weights are."""
    x, u, bias = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    tile, window = tile_of(attrs), _window(attrs, x.shape[2:])
    extents = window.outputs(x.shape[2:])
    counts = [-(-extent // tile) for extent in extents]
    d = _tiles(padded(x, window, tuple(count * tile for count in counts), 0), tile, counts)
    for axis in (0, 1):
        d = np.stack(input_sums(tile, list(np.moveaxis(d, axis, 0))), axis)
    if u.dtype == DType.BF16.numpy:
        d = d.astype(u.dtype).astype(np.float64)
    y = np.einsum("ijoc,ijncyx->ijnoyx", u.astype(np.float64), d, optimize=True)
    for axis in (0, 1):
        y = np.stack(output_sums(tile, list(np.moveaxis(y, axis, 0))), axis)
    whole = y.transpose(2, 3, 4, 0, 5, 1).reshape(len(x), u.shape[2], *(c * tile for c in counts))
    y = whole[:, :, : extents[0], : extents[1]]
    total = DType(str(attrs["accumulator"])).numpy if "accumulator" in attrs else x.dtype
    return ((y if bias is None else y + bias.reshape(-1, 1, 1)).astype(total),)


def _tiles(x: Array, tile: int, counts: Sequence[int]) -> Array:
    """The overlapping tiles of a padded image, in f64: [i, j, n, ic, ty, tx]."""
    points, (*_, down, right) = tile + TAPS - 1, x.strides
    shape = (points, points, *x.shape[:2], *counts)
    strides = (down, right, *x.strides[:2], tile * down, tile * right)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False).astype(np.float64)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Five stages, each a sum along one axis: the rows of the input tiles, their columns, the
    products, the rows of the outputs, their columns. The tiles of an image are one axis."""
    x, u = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    bias = builder.optional(node, inputs, 2)
    attrs, out = attributes_of(node), node.outputs[0].type
    tile, window = tile_of(attrs), _window(attrs, x.shape[2:])
    points = tile + TAPS - 1
    batch, channels = out.static_shape[:2]
    counts = [-(-extent // tile) for extent in out.static_shape[2:]]
    tiles = math.prod(counts)
    factors = _input_stages(builder, x, window, tile, counts, out.dtype, u.dtype)

    def product(n: Expr, oc: Expr, t: Expr, i: Expr, j: Expr) -> Reduce:
        def term(ic: Expr) -> Scalar:
            return cast(factors(n, ic, t, i, j), out.dtype) * cast(u(i, j, oc, ic), out.dtype)

        return total({"ic": x.shape[1]}, term)

    products = builder.local(
        "winograd_product",
        (batch, channels, tiles, points, points),
        out.dtype,
        product,
        axes=("n", "oc", "t", "i", "j"),
        layout=_tiled(out.layout),
    )

    def half(n: Expr, oc: Expr, t: Expr, r: Expr, j: Expr) -> Scalar:
        column = [products(n, oc, t, i, j) for i in range(points)]
        return _choose(r, output_sums(tile, column))

    halves = builder.local(
        "winograd_half",
        (batch, channels, tiles, tile, points),
        out.dtype,
        half,
        axes=("n", "oc", "t", "r", "j"),
        layout=_tiled(out.layout),
    )

    def result(n: Expr, oc: Expr, oy: Expr, ox: Expr) -> Scalar:
        at = e.add(e.mul(e.floordiv(oy, tile), counts[1]), e.floordiv(ox, tile))
        row = [halves(n, oc, at, e.mod(oy, tile), j) for j in range(points)]
        value = _choose(e.mod(ox, tile), output_sums(tile, row))
        return value if bias is None else value + bias(oc)

    return (builder.output(node, result, hint="winograd", axes=("n", "oc", "oy", "ox")),)


def _input_stages(
    builder: Builder,
    x: Operand,
    window: Window,
    tile: int,
    counts: Sequence[int],
    sums: DType,
    factors: DType,
) -> Operand:
    """B^T d B of every tile: [n, ic, t, i, j], computed in `sums` and stored in `factors`; tiles
    reach past the image where it is no multiple of them, and read zeros there."""
    points = tile + TAPS - 1
    covered = tuple(count * tile for count in counts)
    layout = _tiled(x.buffer.layout if x.buffer is not None else None)
    shape = (*x.shape[:2], math.prod(counts), points, points)

    def rows(n: Expr, ic: Expr, t: Expr, i: Expr, column: Expr) -> Scalar:
        at = (e.mul(e.floordiv(t, counts[1]), tile), e.mul(e.mod(t, counts[1]), tile))
        taps = [(e.index(row), column) for row in range(points)]
        d = [cast(read(x, window, (n, ic), at, tap, covered, 0), sums) for tap in taps]
        return _choose(i, input_sums(tile, d))

    axes = ("n", "ic", "t", "i", "c")
    lines = builder.local("winograd_rows", shape, sums, rows, axes=axes, layout=layout)

    def columns(n: Expr, ic: Expr, t: Expr, i: Expr, j: Expr) -> Scalar:
        d = [lines(n, ic, t, i, column) for column in range(points)]
        return cast(_choose(j, input_sums(tile, d)), factors)

    axes = ("n", "ic", "t", "i", "j")
    return builder.local("winograd_input", shape, factors, columns, axes=axes, layout=layout)


def _tiled(layout: Layout | None) -> Layout | None:
    """The layout of tiles [n, c, t, i, j] of an image: with its blocks of channels."""
    block = block_of(without_halo(layout), 1)
    return Layout.blocked(5, 1, block) if block > 1 else None


OPERATORS: tuple[Operator, ...] = (
    Operator("WinogradWeights", Kind.OPAQUE, _infer_weights, _reference_weights, None),
    Operator("WinogradConv", Kind.CONTRACTION, _infer, _reference, _compute),
)
