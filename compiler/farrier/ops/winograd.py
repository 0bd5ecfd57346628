"""Convolution with 3x3 windows by Winograd's minimal filtering, which trades products for sums.

A tile of `tile` x `tile` outputs takes `points`^2 products per pair of input and output channel,
where the direct sum takes 9 tile^2: Y = A^T [(G w G^T) * (B^T d B)] A. `Filtering` has the
matrices.

The transforms are computed in the dtype of the sums; their results are stored and multiplied in the
dtype of the transformed weights. In bf16 the direct sum has an error of 2.2e-3 (root mean square,
relative to that of the result), tiles of 2 have 3.7e-3, and tiles of 4 have 9.5e-3. Tiles larger
than 2 therefore keep f32 weights for an image in bf16; then only the image is rounded, and the
error is 1.6e-3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.ir import expr as e
from farrier.ir.blocks import block_of
from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, Layout, Shape, TensorType
from farrier.ops import conv, layout
from farrier.ops.builder import Builder, Operand, attributes_of, total, without_halo
from farrier.ops.filtering import FILTERINGS, TAPS, Filtering
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
    as_ints,
    int_attr,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, cast, scalar, where
from farrier.ops.traits import Product, Trait
from farrier.ops.window import Window, padded, read, window_by_attributes, window_of


def filtering_of(attrs: Attrs) -> Filtering:
    """Return the filtering with tiles of `tile` outputs and windows `strides` apart. Raises
    Mismatch for a combination that does not exist."""
    strides, tile = as_ints(attrs.get("strides") or (1, 1)), int_attr(attrs, "tile")
    for filtering in FILTERINGS:
        if (filtering.stride,) * 2 == strides and filtering.tile == tile:
            return filtering
    raise Mismatch(f"tile {tile} with strides {strides} is none of {FILTERINGS}")


def source_bytes(weights: TensorType) -> int:
    """Return the size in bytes of the 3x3 windows from which weights [p, p, outputs, inputs] are
    computed."""
    _, _, outputs, inputs = weights.static_shape
    return TAPS**2 * outputs * inputs * weights.dtype.nbytes


def _choose(at: Expr, options: Sequence[Scalar]) -> Scalar:
    """Return `options[at]` as nested selects, which simplify to one option once `at` is a
    constant."""
    chosen = options[-1]
    for position, option in reversed(list(enumerate(options[:-1]))):
        is_here = scalar(Binary(BinaryOp.EQ, at, e.index(position)))
        chosen = where(is_here, option, chosen)
    return chosen


# WinogradWeights --------------------------------------------------------------------------------


# The windows that are transformed at once; the f64 sums of all of them would exceed the caches.
_WINDOWS = 4096


def transformed(w: Array, filtering: Filtering) -> Array:
    """Compute G w G^T of each window: [oc, ic, 3, 3] to [points, points, oc, ic], summed in f64."""
    outputs, inputs, *_ = w.shape
    matrix, points = filtering.weight_matrix(), filtering.points
    both = np.kron(matrix, matrix)  # [(i, j), (row, column)]
    windows = w.reshape(outputs, inputs, TAPS * TAPS)
    u = np.empty((points**2, outputs, inputs), w.dtype)
    channels = max(1, _WINDOWS // inputs)
    for start in range(0, outputs, channels):
        some = slice(start, start + channels)
        # A product for each channel: BLAS splits larger ones over its own threads, which wait for
        # one another if other weights are computed on all cores.
        u[:, some] = (both @ windows[some].swapaxes(1, 2).astype(np.float64)).swapaxes(0, 1)
    return u.reshape(points, points, outputs, inputs)


def _infer_weights(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    w, points = required(types, 0), filtering_of(attrs).points
    if w.rank != 4 or w.static_shape[2:] != (TAPS, TAPS):
        raise Mismatch(f"weights of shape {w.shape} are not [oc, ic, {TAPS}, {TAPS}]")
    return (TensorType(w.dtype, (points, points, *w.static_shape[:2])),)


def _reference_weights(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (transformed(present(arrays, 0), filtering_of(attrs)),)


# WinogradConv -----------------------------------------------------------------------------------


def _window(attrs: Attrs, spatial: Shape) -> Window:
    window = window_of(attrs, spatial, (TAPS, TAPS))
    if window.dilations != (1, 1):
        raise Mismatch(f"dilations {window.dilations} must be 1")
    return window


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, u, points = required(types, 0), required(types, 1), filtering_of(attrs).points
    if x.rank != 4 or u.rank != 4 or u.shape[:2] != (points, points) or u.shape[3] != x.shape[1]:
        raise Mismatch(f"input {x.shape} and transformed weights {u.shape} do not fit together")
    outputs = u.shape[2]
    conv.check_bias(types, outputs)
    extents = _window(attrs, x.shape[2:]).outputs(x.shape[2:])
    return (TensorType(accumulator(x.dtype, u.dtype, attrs), (x.shape[0], outputs, *extents)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    """Compute the convolution in numpy through the same transforms, in f64, with the factors
    rounded to bf16 if the weights are bf16."""
    x, u, bias = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    filtering, window = filtering_of(attrs), _window(attrs, x.shape[2:])
    tile, extents = filtering.tile, window.outputs(x.shape[2:])
    counts = [-(-extent // tile) for extent in extents]
    d = _tiles(padded(x, window, tuple(count * tile for count in counts), 0), filtering, counts)
    for axis in (0, 1):
        d = np.stack(filtering.input_sums(list(np.moveaxis(d, axis, 0))), axis)
    if u.dtype == DType.BF16.numpy:
        d = d.astype(u.dtype).astype(np.float64)
    y = np.einsum("ijoc,ijncyx->ijnoyx", u.astype(np.float64), d, optimize=True)
    for axis in (0, 1):
        y = np.stack(filtering.output_sums(list(np.moveaxis(y, axis, 0))), axis)
    whole = y.transpose(2, 3, 4, 0, 5, 1).reshape(len(x), u.shape[2], *(c * tile for c in counts))
    y = whole[:, :, : extents[0], : extents[1]]
    total = DType(str(attrs["accumulator"])).numpy if "accumulator" in attrs else x.dtype
    return ((y if bias is None else y + bias.reshape(-1, 1, 1)).astype(total),)


def _tiles(x: Array, filtering: Filtering, counts: Sequence[int]) -> Array:
    """Return the overlapping tiles of a padded image in f64, [ty, tx, n, ic, i, j] for tile (i,
    j)."""
    points, (*_, down, right) = filtering.points, x.strides
    step = filtering.tile * filtering.stride
    shape = (points, points, *x.shape[:2], *counts)
    strides = (down, right, *x.strides[:2], step * down, step * right)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False).astype(np.float64)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Declare five stages, each a sum along one axis: the rows of the input tiles, their columns,
    the products, the rows of the outputs, their columns. The tiles of an image are one axis."""
    x, u = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    bias = builder.optional(node, inputs, 2)
    attrs, out = attributes_of(node), node.outputs[0].type
    filtering, window = filtering_of(attrs), _window(attrs, x.shape[2:])
    tile, points = filtering.tile, filtering.points
    batch, channels = out.shape[:2]
    counts = [ceildiv(extent, tile) for extent in out.shape[2:]]
    tiles = product(counts)
    factors = _input_stages(builder, x, window, filtering, counts, out.dtype, u.dtype)

    def at_point(n: Expr, oc: Expr, t: Expr, i: Expr, j: Expr) -> Reduce:
        def term(ic: Expr) -> Scalar:
            return cast(factors(n, ic, t, i, j), out.dtype) * cast(u(i, j, oc, ic), out.dtype)

        return total({"ic": x.shape[1]}, term)

    products = builder.local(
        "winograd_product",
        (batch, channels, tiles, points, points),
        out.dtype,
        at_point,
        axes=("n", "oc", "t", "i", "j"),
        layout=_tiled(out.layout),
    )

    def half(n: Expr, oc: Expr, t: Expr, r: Expr, j: Expr) -> Scalar:
        column = [products(n, oc, t, i, j) for i in range(points)]
        return _choose(r, filtering.output_sums(column))

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
        value = _choose(e.mod(ox, tile), filtering.output_sums(row))
        return value if bias is None else value + bias(oc)

    return (builder.output(node, result, hint="winograd", axes=("n", "oc", "oy", "ox")),)


def _input_stages(
    builder: Builder,
    x: Operand,
    window: Window,
    filtering: Filtering,
    counts: Sequence[Extent],
    sums: DType,
    factors: DType,
) -> Operand:
    """Declare the stages that transform every tile of the input, B^T d B; return the result, [n,
    ic, t, i, j]. The transform is computed in the dtype `sums`, and the result is stored in the
    dtype `factors`. Tiles that extend past the image read zeros there."""
    tile, points = filtering.tile, filtering.points
    covered = tuple(count * tile for count in counts)
    layout = _tiled(x.buffer.layout if x.buffer is not None else None)
    shape = (*x.shape[:2], product(counts), points, points)

    def rows(n: Expr, ic: Expr, t: Expr, i: Expr, column: Expr) -> Scalar:
        at = (e.mul(e.floordiv(t, counts[1]), tile), e.mul(e.mod(t, counts[1]), tile))
        taps = [(e.index(row), column) for row in range(points)]
        d = [cast(read(x, window, (n, ic), at, tap, covered, 0), sums) for tap in taps]
        return _choose(i, filtering.input_sums(d))

    axes = ("n", "ic", "t", "i", "c")
    lines = builder.local("winograd_rows", shape, sums, rows, axes=axes, layout=layout)

    def columns(n: Expr, ic: Expr, t: Expr, i: Expr, j: Expr) -> Scalar:
        d = [lines(n, ic, t, i, column) for column in range(points)]
        return cast(_choose(j, filtering.input_sums(d)), factors)

    axes = ("n", "ic", "t", "i", "j")
    return builder.local("winograd_input", shape, factors, columns, axes=axes, layout=layout)


def _tiled(layout: Layout | None) -> Layout | None:
    """Return the layout of tiles [n, c, t, i, j] of an image, with its blocks of channels."""
    block = block_of(without_halo(layout), 1)
    return Layout.blocked(5, 1, block) if block > 1 else None


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "WinogradWeights",
        Kind.OPAQUE,
        _infer_weights,
        _reference_weights,
        None,
        traits=Trait.PACKED,
    ),
    Operator(
        "WinogradConv",
        Kind.CONTRACTION,
        _infer,
        _reference,
        _compute,
        traits=Trait.ZERO_PADDED,
        product=Product.FILTERING,
        window=window_by_attributes,
        layout=layout.ungrouped_convolution,
    ),
)
