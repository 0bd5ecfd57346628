"""Views: the same elements in the same row-major order, under another shape or element type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, product, reduced
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops.builder import Builder
from farrier.ops.derivative import in_shape
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Data,
    Infer,
    Kind,
    Mismatch,
    NotSupported,
    Operator,
    Types,
    always,
    differ,
    differ_as_a_rule,
    int_attr,
    normal_axis,
    present,
    required,
    static_extents,
    static_ints,
)
from farrier.ops.traits import Moves, Trait


def reshaped(shape: Shape, wanted: Shape, keep_zero: bool) -> Shape:
    """Return the output shape of a Reshape to `wanted`. An extent of 0 copies that of the input,
    unless `keep_zero`; -1 is computed from the number of elements."""
    if wanted.count(-1) > 1:
        raise Mismatch(f"the shape {wanted} leaves more than one extent open")
    filled = list(wanted)
    for axis, extent in enumerate(wanted):
        if extent == 0 and not keep_zero:
            if axis >= len(shape):
                raise Mismatch(f"the shape {wanted} copies axis {axis} of an input {shape}")
            filled[axis] = shape[axis]
    size, filled_size = product(shape), product(extent for extent in filled if extent != -1)
    if -1 in filled:
        above, below = reduced(size, filled_size)
        if below == 0 or above % below:
            raise Mismatch(f"{size} elements of {shape} do not fill the shape {wanted}")
        filled[filled.index(-1)] = above // below
    if differ(product(filled), size) or any(extent < 0 for extent in filled):
        raise Mismatch(f"{size} elements of {shape} do not fill the shape {wanted}")
    return tuple(filled)


def _reshape_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    required(types, 1)
    wanted = static_extents(types, constants, 1, "shape")
    assert wanted is not None
    shape = reshaped(x.shape, wanted, bool(attrs.get("allowzero", 0)))
    return (TensorType(x.dtype, shape),)


def _flatten_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, axis = required(types, 0), int_attr(attrs, "axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise Mismatch(f"axis {axis} of a tensor of rank {x.rank}")
    axis = axis if axis >= 0 else axis + x.rank
    shape = x.shape
    return (TensorType(x.dtype, (product(shape[:axis]), product(shape[axis:]))),)


def _is_kept(extent: Extent) -> bool:
    """Check whether a Squeeze without `axes` keeps an axis with this extent. Exporters write this
    form to drop axes that are always 1. A symbolic extent is therefore expected to differ from 1,
    even the extent of a batch, which is typically 1."""
    return differ_as_a_rule(extent, 1)


def _squeeze_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    listed = static_ints(types, constants, 1, "axes")
    shape = x.shape
    if listed is None:
        return (TensorType(x.dtype, tuple(filter(_is_kept, shape))),)
    axes = {normal_axis(axis, x.rank) for axis in listed}
    for axis in axes:
        if differ(shape[axis], 1):
            raise Mismatch(f"axis {axis} of {shape} is squeezed and is not 1 long")
    return (TensorType(x.dtype, tuple(n for a, n in enumerate(shape) if a not in axes)),)


def _unsqueeze_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    required(types, 1)
    listed = static_ints(types, constants, 1, "axes") or ()
    rank = x.rank + len(listed)
    axes = {normal_axis(axis, rank) for axis in listed}
    if len(axes) != len(listed):
        raise Mismatch(f"axes {listed} repeat one")
    extents = iter(x.shape)
    return (TensorType(x.dtype, tuple(1 if a in axes else next(extents) for a in range(rank))),)


def _same(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    return (TensorType(x.dtype, x.shape),)


def _dropout_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    if len(types) > 2 and types[2] is not None and (2 not in constants or constants[2].any()):
        raise NotSupported("training mode: only inference is compiled")
    return _same(types, constants, attrs)


def _view(
    name: str,
    infer: Infer,
    static: frozenset[int] = frozenset(),
    traits: Trait = Trait.NONE,
    copies: Callable[[Node, Data], bool] | None = None,
) -> Operator:
    """Declare an operator that changes the shape or the element type only: the elements of the
    output are those of the input in the same row-major order."""

    def refer(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        # The element type does not matter, and an array of dims has none.
        types = [None if a is None else TensorType(DType.I64, a.shape) for a in arrays]
        values = {i: a for i, a in enumerate(arrays) if i in static and a is not None}
        return (x.reshape(infer(types, values, attrs)[0].static_shape),)

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        x = builder.operand(node, inputs, 0)
        shape = node.outputs[0].type.shape
        return (builder.output(node, lambda *at: x(*view_index(at, shape, x.shape))),)

    return Operator(
        name,
        Kind.VIEW,
        infer,
        refer,
        compute,
        static,
        traits=traits,
        moves=Moves.ONCE,
        copies=copies,
        derivative=in_shape,
    )


def _bit_cast_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, dtype = required(types, 0), DType(str(attrs["to"]))
    if x.dtype.bits != dtype.bits or dtype.bits % 8:
        raise Mismatch(f"{x.dtype} and {dtype} are not of one width in whole bytes")
    return (TensorType(dtype, x.shape),)


def _bit_cast_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (np.ascontiguousarray(present(arrays, 0)).view(DType(str(attrs["to"])).numpy),)


def view_index(at: tuple[Expr, ...], shape: Shape, source: Shape) -> tuple[Expr, ...]:
    """Return the index in a row-major tensor of shape `source` of the element at index `at` of
    shape `shape`.

    Both shapes are divided into the shortest groups of axes with equal products, so that an axis
    that a reshape does not change keeps its index.
    """
    result: list[Expr] = []
    i = j = 0
    while i < len(shape) or j < len(source):
        left, right = _cut(shape[i:], source[j:])
        result.extend(_run(at[i : i + left], shape[i : i + left], source[j : j + right]))
        i, j = i + left, j + right
    return tuple(result)


def _cut(shape: Shape, source: Shape) -> tuple[int, int]:
    """Return the number of axes of the first group of each shape: the fewest with equal products,
    or all axes if there are none."""
    products = {product(source[:count]): count for count in range(len(source), 0, -1)}
    for count in range(1, len(shape) + 1):
        source_axes = products.get(product(shape[:count]))
        if source_axes is not None:
            return count, source_axes
    return len(shape), len(source)


def _run(at: tuple[Expr, ...], shape: Shape, source: Shape) -> list[Expr]:
    """Compute `view_index` for two shapes with equal products that cannot be divided into
    groups."""
    if len(shape) == len(source) == 1:
        return [at[0]]
    flat = e.index(0)
    for i, extent in zip(at, shape, strict=True):
        flat = e.add(e.mul(flat, extent), 0 if extent == 1 else i)
    indices = []
    for position, extent in enumerate(source):
        inner = product(source[position + 1 :])
        whole = e.floordiv(flat, inner)
        indices.append(whole if position == 0 else e.mod(whole, extent))
    return indices


def _sized_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    return (TensorType(x.dtype, static_extents(types, constants, 1, "shape") or ()),)


_ONE = frozenset({1})


RESHAPE = _view("Reshape", _reshape_infer, _ONE, Trait.TOTAL, always)
# Internal operator: a Reshape whose shape has the input's size only at run time, which a Require
# checks.
VIEW = _view("View", _sized_infer, _ONE, Trait.TOTAL)
OPERATORS: tuple[Operator, ...] = (
    RESHAPE,
    _view("Flatten", _flatten_infer, traits=Trait.TOTAL),
    _view("Squeeze", _squeeze_infer, _ONE, Trait.TOTAL),
    _view("Unsqueeze", _unsqueeze_infer, _ONE, Trait.TOTAL),
    _view("Identity", _same, traits=Trait.TOTAL, copies=always),
    VIEW,
    Operator("BitCast", Kind.VIEW, _bit_cast_infer, _bit_cast_reference, None),
    _view("Dropout", _dropout_infer, frozenset({1, 2}), copies=always),
)
