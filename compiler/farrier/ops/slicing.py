"""Operators that split and join tensors: Concat, Split, Slice, Trilu."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv, maximum, minimum, number
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, Operand, attributes_of
from farrier.ops.derivative import Adjoint
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
    axis_attr,
    differ,
    fail_to_agree,
    int_attr,
    normal_axis,
    optional,
    present,
    required,
    static_extents,
    static_ints,
    to_extents,
)
from farrier.ops.pointwise import first_dtype
from farrier.ops.scalar import Scalar, scalar, where
from farrier.ops.traits import Moves, Trait


def _concat_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    first, dtype = required(types, 0), first_dtype(types, attrs)
    axis = axis_attr(attrs, first.rank)
    whole: Extent = 0
    for position in range(len(types)):
        part = required(types, position)
        if part.rank != first.rank or any(
            fail_to_agree(a, b)
            for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=False))
            if i != axis
        ):
            raise Mismatch(
                f"inputs 0 and {position} of shapes {first.shape} and {part.shape} differ beside "
                f"axis {axis}"
            )
        whole = whole + part.shape[axis]
    shape = (*first.shape[:axis], whole, *first.shape[axis + 1 :])
    return (TensorType(dtype, shape),)


def _concat_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    parts = [present(arrays, i) for i in range(len(arrays))]
    return (np.concatenate(parts, axis=axis_attr(attrs, parts[0].ndim)),)


def _concat_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    parts = [builder.operand(node, inputs, i) for i in range(len(node.inputs))]
    axis = axis_attr(attributes_of(node), parts[0].rank)

    def body(*at: Expr) -> Scalar:
        starts: list[Extent] = [0]
        for part in parts:
            starts.append(starts[-1] + part.shape[axis])

        def shifted(position: int) -> Scalar:
            here = e.sub(at[axis], starts[position])
            return parts[position](*at[:axis], here, *at[axis + 1 :])

        value = shifted(len(parts) - 1)
        for position in reversed(range(len(parts) - 1)):
            value = where(scalar(e.less(at[axis], starts[position + 1])), shifted(position), value)
        return value

    return (builder.output(node, body),)


def _concat_derivative(s: Adjoint) -> Sequence[str]:
    axis = axis_attr(attributes_of(s.node), len(s.shapes[0]))
    shares: list[str] = []
    start: Extent = 0
    for shape in s.shapes:
        end = start + shape[axis]
        shares.append(s("Slice", s.by, s.ints([start]), s.ints([end]), s.ints([axis])))
        start = end
    return shares


def _split_sizes(extent: Extent, listed: Shape | None, attrs: Attrs) -> Shape:
    """Return the extents of Split's outputs: `listed`, or `num_outputs` equal extents, the last of
    which may be smaller."""
    if listed is None:
        count = int_attr(attrs, "num_outputs")
        each = ceildiv(extent, count)
        listed = (*(each,) * (count - 1), extent - each * (count - 1))
    if differ(sum(listed, start=0), extent) or any(size < 0 for size in listed):
        raise Mismatch(f"parts of {listed} do not fill an axis of {extent}")
    return listed


def _split_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    axis, shape = axis_attr(attrs, x.rank), x.shape
    sizes = _split_sizes(shape[axis], static_extents(types, constants, 1, "split"), attrs)
    return tuple(TensorType(x.dtype, (*shape[:axis], n, *shape[axis + 1 :])) for n in sizes)


def _split_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, listed = present(arrays, 0), optional(arrays, 1)
    axis = axis_attr(attrs, x.ndim)
    chosen = None if listed is None else tuple(int(n) for n in listed)
    sizes = tuple(map(number, _split_sizes(x.shape[axis], chosen, attrs)))
    return tuple(np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis))


def _split_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    axis = axis_attr(attributes_of(node), x.rank)
    outputs: list[Buffer] = []
    start: Extent = 0

    def part(first: Extent) -> Buffer:
        def body(*at: Expr) -> Scalar:
            return x(*at[:axis], e.add(at[axis], first), *at[axis + 1 :])

        return builder.output(node, body, index=len(outputs))

    for value in node.outputs:
        outputs.append(part(start))
        start = start + value.type.shape[axis]
    return tuple(outputs)


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """The positions that Slice reads along one axis: `start`, `start + step`, …, `count` of
    them."""

    start: Extent
    step: int
    count: Extent


def slices(
    shape: Shape,
    starts: Shape,
    ends: Shape,
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> list[Taken]:
    """Return the positions that Slice reads along each axis. Raises Undecided for a symbolic start
    or end whose sign is unknown."""
    axes = axes if axes is not None else tuple(range(len(starts)))
    steps = steps if steps is not None else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Mismatch(f"starts {starts}, ends {ends}, axes {axes}, steps {steps} differ in length")
    taken = [Taken(0, 1, extent) for extent in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise Mismatch(f"step 0 along axis {axis}")
        at = normal_axis(axis, len(shape))
        taken[at] = _taken(shape[at], start, end, step)
    return taken


def _taken(extent: Extent, start: Extent, end: Extent, step: int) -> Taken:
    """Return the positions of a slice, clamped to the axis.

    A negative start or end counts from the end of the axis. As in ONNX, a start before the axis is
    clamped to the first element, whereas a Python slice with a negative step would be empty.
    """
    low = 0 if step > 0 else -1  # An end of -1 means "through the first element".
    high = extent + low
    first, last = (
        minimum(maximum(bound + extent if bound < 0 else bound, least), high)
        for bound, least in ((start, 0), (end, low))
    )
    span = last - first if step > 0 else first - last
    return Taken(first, step, ceildiv(maximum(span, 0), abs(step)))


def _slice_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    required(types, 1), required(types, 2)
    starts = static_extents(types, constants, 1, "starts") or ()
    ends = static_extents(types, constants, 2, "ends") or ()
    axes = static_ints(types, constants, 3, "axes")
    steps = static_ints(types, constants, 4, "steps")
    taken = slices(x.shape, starts, ends, axes, steps)
    return (TensorType(x.dtype, tuple(positions.count for positions in taken)),)


def to_ints(array: Array | None) -> tuple[int, ...] | None:
    return None if array is None else tuple(int(v) for v in array)


def _slice_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    starts, ends = to_extents(present(arrays, 1)), to_extents(present(arrays, 2))
    taken = slices(
        x.shape, starts, ends, to_ints(optional(arrays, 3)), to_ints(optional(arrays, 4))
    )
    window = []
    for positions in taken:
        start, count = number(positions.start), number(positions.count)
        stop = start + positions.step * count
        whole = slice(start, stop if stop >= 0 else None, positions.step)
        window.append(whole if count else slice(0, 0))
    return (x[tuple(window)],)


def _slice_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    starts, ends = builder.extents(node, 1) or (), builder.extents(node, 2) or ()
    taken = slices(x.shape, starts, ends, builder.static(node, 3), builder.static(node, 4))

    def body(*at: Expr) -> Scalar:
        return x(*(e.add(e.mul(i, t.step), t.start) for i, t in zip(at, taken, strict=True)))

    return (builder.output(node, body),)


def _part_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, index = required(types, 0), int_attr(attrs, "index")
    if not x.rank or (isinstance(x.shape[0], int) and not 0 <= index < x.shape[0]):
        raise Mismatch(f"input {x.shape} has no part {index}")
    return (TensorType(x.dtype, x.shape[1:]),)


def _part_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (present(arrays, 0)[int_attr(attrs, "index")],)


def _part_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, index = builder.operand(node, inputs, 0), node.attr("index")
    return (builder.output(node, lambda *at: x(e.index(index), *at)),)


def _trilu_offset(arrays: Arrays) -> int:
    k = optional(arrays, 1)
    return 0 if k is None else int(k.reshape(-1)[0])


def _trilu_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    if x.rank < 2:
        raise Mismatch(f"input {x.shape} is no matrix")
    static_ints(types, constants, 1, "diagonal")
    return (TensorType(x.dtype, x.shape),)


def _trilu_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    keep = np.triu if attrs.get("upper", 1) else np.tril
    return (keep(x, _trilu_offset(arrays)),)


def _trilu_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x: Operand = builder.operand(node, inputs, 0)
    offset = (builder.static(node, 1) or (0,))[0]

    def body(*at: Expr) -> Scalar:
        diagonal = e.add(at[-2], offset)
        low, high = (diagonal, at[-1]) if node.attr("upper", 1) else (at[-1], diagonal)
        return where(scalar(e.Binary(e.BinaryOp.LE, low, high)), x(*at), 0)

    return (builder.output(node, body),)


def _splits_whole_blocks(node: Node, images: layout.Images) -> bool:
    axis = node.attr("axis", 0) % node.outputs[0].type.rank
    return axis != 1 or all(y.type.shape[1] % images.lanes == 0 for y in node.outputs[:-1])


def _slices_whole_blocks(node: Node, images: layout.Images) -> bool:
    inputs = (*node.inputs, None, None)[:5]
    starts, axes, steps = map(images.extents, (inputs[1], inputs[3], inputs[4]))
    if starts is None:
        return False
    axes = tuple(range(len(starts))) if inputs[3] is None else axes
    steps = (1,) * len(starts) if inputs[4] is None else steps
    if axes is None or steps is None:
        return False
    for start, axis, step in zip(starts, axes, steps, strict=True):
        whole = isinstance(start, int) and start >= 0 and start % images.lanes == 0 and step == 1
        if axis % node.outputs[0].type.rank == 1 and not whole:
            return False
    return True


def _slice_copies(node: Node, data: Data) -> bool:
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return True
    steps = data(node.inputs[4])
    return steps is not None and bool(steps.size) and bool((steps == 1).all())


# Internal operator: a Concat whose parts are computed in their place of the result.
ADJOIN = Operator("Adjoin", Kind.VIEW, _concat_infer, _concat_reference, _concat_compute)
# Internal operator: the elements at one index of the first axis, without a copy.
PART = Operator("Part", Kind.INJECTIVE, _part_infer, _part_reference, _part_compute)
SLICE = Operator(
    "Slice",
    Kind.INJECTIVE,
    _slice_infer,
    _slice_reference,
    _slice_compute,
    frozenset({1, 2, 3, 4}),
    traits=Trait.READS_ONCE,
    moves=Moves.ONCE,
    copies=_slice_copies,
    layout=layout.blocks_moved(_slices_whole_blocks),
)
OPERATORS: tuple[Operator, ...] = (
    Operator(
        "Concat",
        Kind.INJECTIVE,
        _concat_infer,
        _concat_reference,
        _concat_compute,
        traits=Trait.JOINS | Trait.READS_ONCE | Trait.TOTAL,
        moves=Moves.ONCE,
        copies=lambda node, data: len(node.inputs) == 1,
        derivative=_concat_derivative,
        layout=layout.concatenation,
    ),
    ADJOIN,
    PART,
    Operator(
        "Split",
        Kind.INJECTIVE,
        _split_infer,
        _split_reference,
        _split_compute,
        frozenset({1}),
        traits=Trait.PARTS | Trait.READS_ONCE,
        moves=Moves.ONCE,
        layout=layout.blocks_moved(_splits_whole_blocks),
    ),
    SLICE,
    Operator(
        "Trilu", Kind.INJECTIVE, _trilu_infer, _trilu_reference, _trilu_compute, frozenset({1})
    ),
)


def offset_of(view: Node) -> Extent:
    """Return the offset in bytes of a view's first element from the first element of its input."""
    return view.attr("index") * view.outputs[0].type.nbytes if PART.matches(view) else 0
