"""Pad: add elements around a tensor, or, with negative pads, remove them."""

from __future__ import annotations

import numpy as np

from farrier.ir import dim
from farrier.ir import expr as e
from farrier.ir.dim import Extent, is_less, maximum
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import Shape, TensorType
from farrier.ops import layout, positions
from farrier.ops.builder import Builder
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Data,
    Kind,
    Mismatch,
    Operator,
    Types,
    normal_axis,
    optional,
    present,
    required,
    static_extents,
    static_ints,
    to_extents,
)
from farrier.ops.scalar import Scalar, both, number, scalar, where
from farrier.ops.slicing import to_ints
from farrier.ops.traits import Trait


def _pads(
    rank: int, listed: Shape | None, axes: tuple[int, ...] | None
) -> tuple[tuple[Extent, Extent], ...]:
    """Return the elements to add (negative: to cut) before and after each axis."""
    listed = listed or ()
    chosen = tuple(range(rank)) if axes is None else tuple(normal_axis(a, rank) for a in axes)
    if len(listed) != 2 * len(chosen):
        raise Mismatch(f"pads {listed} for axes {chosen}")
    result: list[tuple[Extent, Extent]] = [(0, 0)] * rank
    for position, axis in enumerate(chosen):
        result[axis] = (listed[position], listed[position + len(chosen)])
    return tuple(result)


_PAD_MODES = ("constant", "edge", "reflect", "wrap")


def _pad_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    required(types, 1)
    mode = attrs.get("mode", "constant")
    if mode not in _PAD_MODES:
        raise Mismatch(f"mode {mode!r} is none of {', '.join(_PAD_MODES)}")
    listed = static_extents(types, constants, 1, "pads")
    pads = _pads(x.rank, listed, static_ints(types, constants, 3, "axes"))
    shape = x.shape
    for extent, (before, after) in zip(shape, pads, strict=True):
        if mode == "reflect" and any(p != 0 and p >= maximum(extent, 1) for p in (before, after)):
            raise Mismatch(f"reflecting {before} and {after} elements of an axis of {extent}")
        if extent + before + after < 0:
            raise Mismatch(f"pads {before} and {after} cut more than an axis of {extent}")
    return (TensorType(x.dtype, tuple(n + b + a for n, (b, a) in zip(shape, pads, strict=True))),)


def _pad_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, fill = present(arrays, 0), optional(arrays, 2)
    pads = _pads(x.ndim, to_extents(present(arrays, 1)), to_ints(optional(arrays, 3)))
    cuts = [(max(dim.number(-b), 0), max(dim.number(-a), 0)) for b, a in pads]
    grown = [(max(dim.number(b), 0), max(dim.number(a), 0)) for b, a in pads]
    mode = str(attrs.get("mode", "constant"))
    if mode == "constant":
        value = 0 if fill is None else fill.reshape(-1)[0]
        x = np.pad(x, grown, constant_values=value)
    else:
        x = np.pad(x, grown, mode=mode)  # type: ignore[call-overload]
    window = tuple(
        slice(before, n - after) for n, (before, after) in zip(x.shape, cuts, strict=True)
    )
    return (x[window],)


def _pad_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, fill = builder.operand(node, inputs, 0), builder.optional(node, inputs, 2)
    pads = _pads(x.rank, builder.extents(node, 1), builder.static(node, 3))
    mode = str(node.attr("mode", "constant"))

    def body(*at: Expr) -> Scalar:
        source = [e.sub(i, before) for i, (before, _) in zip(at, pads, strict=True)]
        if mode != "constant":
            return x(
                *(_folded(i, *p, n, mode) for i, p, n in zip(source, pads, x.shape, strict=True))
            )
        checks = _inside(source, pads, x.shape)
        value = x(*source)
        empty = number(0, x.dtype) if fill is None else fill(*(0,) * fill.rank)
        return value if checks is None else where(checks, value, empty)

    return (builder.output(node, body),)


def _inside(
    source: list[Expr], pads: tuple[tuple[Extent, Extent], ...], shape: Shape
) -> Scalar | None:
    """Return the condition under which the position `source` of a padded tensor lies in the tensor
    itself, not in the padding; None if it always does."""
    guard: Scalar | None = None
    for i, (before, after), extent in zip(source, pads, shape, strict=True):
        checks = []
        if not is_less(before, 1):
            checks.append(scalar(e.Binary(e.BinaryOp.LE, e.index(0), i)))
        if not is_less(after, 1):
            checks.append(scalar(e.less(i, extent)))
        for check in checks:
            guard = check if guard is None else both(guard, check)
    return guard


def _folded(i: Expr, before: Extent, after: Extent, extent: Extent, mode: str) -> Expr:
    """Return the input position that padding in `mode` reads for position `i`, which is up to
    `before` below the first and up to `after` above the last of `extent` positions."""
    if is_less(before, 1) and is_less(after, 1):
        return i
    last = e.index(extent - 1)
    match mode:
        case "wrap":
            return e.mod(i, extent)
        case "edge":
            return e.Binary(e.BinaryOp.MIN, e.Binary(e.BinaryOp.MAX, i, e.index(0)), last)
        case _:  # The mode "reflect" does not repeat the edge.
            up = e.Binary(e.BinaryOp.MAX, i, e.sub(0, i))
            return e.Binary(e.BinaryOp.MIN, up, e.sub(2 * (extent - 1), up))


def _copies(node: Node, data: Data) -> bool:
    widths = data(node.inputs[1])
    return widths is not None and bool(widths.size) and bool((widths == 0).all())


def _keeps_channels(node: Node, images: layout.Images) -> bool:
    widths, x = images.extents(node.inputs[1]), node.inputs[0]
    assert x is not None
    has_axes = len(node.inputs) > 3 and node.inputs[3] is not None
    return not has_axes and widths is not None and widths[1] == widths[x.type.rank + 1] == 0


PAD = Operator(
    "Pad",
    Kind.INJECTIVE,
    _pad_infer,
    _pad_reference,
    _pad_compute,
    frozenset({1, 3}),
    traits=Trait.READS_ONCE,
    copies=_copies,
    positions=positions.changed_axes,
    layout=layout.blocks_moved(_keeps_channels),
)


def adds_border(node: Node) -> bool:
    """Check whether a node pads a tensor with a constant value."""
    return PAD.matches(node) and node.attr("mode", "constant") == "constant"


OPERATORS: tuple[Operator, ...] = (PAD,)
