"""The analysis of a contraction (a sum of products): the roles of its axes, the operand that is
loaded as vectors, and the operand that is broadcast.

conv[n, oc, oy, ox] = sum(x[n, ic, oy + ky, ox + kx] * w[oc, ic, ky, kx])

lane       oc      contiguous in the output: a vector holds `lanes` of it
points     oy, ox  w does not depend on them: one load of w serves a whole tile of them
batch      n       everything else
reduction  ic, ky, kx
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, common_factor, typical
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Select,
    Var,
)
from farrier.ir.substitute import loads, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout
from farrier.targets.cpu.units.phase_axes import INTERLEAVED

# The element types of accumulators.
SUMS = (DType.F32, DType.I32, DType.F64, DType.I64, DType.U64)


@dataclasses.dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products, and the elementwise stages that follow it. Axes are given by name."""

    stage: Stage
    vector_load: Load  # The operand that varies along the lanes.
    # The operand that is broadcast to the lanes; in a depthwise product it varies along them, too.
    broadcast_load: Load
    lane: str
    points: tuple[str, ...]
    batch: tuple[str, ...]
    reduction: tuple[str, ...]
    padded: bool  # The broadcast operand is guarded by a Select that implements padding.
    epilogue: tuple[Stage, ...]  # The stages from that after the contraction to the output.

    @property
    def depthwise(self) -> bool:
        """Check whether both operands depend on the lane axis element by element, as in a depthwise
        convolution."""
        return any(index == Var(self.lane) for index in self.broadcast_load.indices)

    @property
    def output(self) -> Stage:
        """The stage that writes the result of the kernel."""
        return self.epilogue[-1] if self.epilogue else self.stage


def find_contraction(program: TensorProgram, leading: tuple[str, ...] = ()) -> Contraction | None:
    """Return the contraction that `program` consists of, or None if it is something else. A
    contraction is a sum of products with a dtype in `SUMS`, followed by elementwise stages. Stages
    that write the buffers `leading` are ignored."""
    stages = [stage for stage in program.stages if stage.buffer.name not in leading]
    if not stages:
        return None
    first, *rest = stages
    if len(program.outputs) != 1 or first.buffer.dtype not in SUMS:
        return None
    if rest and rest[-1].buffer.name != program.outputs[0].name:
        return None
    if not all(is_elementwise(stage, program) for stage in rest):
        return None
    return contraction_of(first, tuple(rest))


def contraction_of(stage: Stage, epilogue: tuple[Stage, ...] = ()) -> Contraction | None:
    """Return the contraction that a stage computes, with the given epilogue; None if the stage is
    not a sum of products."""
    body = stage.body
    if not isinstance(body, Reduce) or body.op is not ReduceOp.SUM or not stage.axes:
        return None
    factors = factors_of(body.body)
    if factors is None:
        return None
    lane = stage.axes[innermost_axis(stage)].name
    plain, padded = factors
    for lanes, other in ((plain[1], plain[0]), (plain[0], plain[1])):
        roles = _roles(stage, body, lanes, other, lane)
        if roles is not None:
            points, batch = roles
            reduction = tuple(axis.name for axis in body.axes)
            return Contraction(
                stage, lanes, other, lane, points, batch, reduction, padded, epilogue
            )
    return None


def innermost_axis(stage: Stage) -> int:
    """Return the axis along which the stage's result is contiguous in memory."""
    layout = stage.buffer.layout
    return layout.dims[-1].axis if layout is not None else len(stage.axes) - 1


def axis_extent(stage: Stage, name: str) -> Extent:
    """Return the logical extent of a stage's axis, reduced or not."""
    for axis in stage.all_axes:
        if axis.name == name:
            return axis.extent
    raise KeyError(name)


def extent_of(stage: Stage, name: str) -> int:
    """Return the typical logical extent of a stage's axis, reduced or not; 1 for an axis that is
    typically empty."""
    return max(typical(axis_extent(stage, name)), 1)


def factor_of(stage: Stage, name: str) -> int:
    """Return the largest integer that provably divides the logical extent of a stage's axis for all
    sizes. If the extent is constant, it is the extent itself."""
    return common_factor([axis_extent(stage, name)])


def whole_panels(extent: Extent, lanes: int, vectors: Iterable[int]) -> tuple[int, ...]:
    """Return the possible widths of a panel (a group of adjacent vectors of `lanes` lanes) in a
    loop over `extent` lanes, out of the numbers of vectors in `vectors`. A panel is not wider than
    the loop. For a dynamic extent that is known to be a multiple of `lanes`, the width must also be
    known to divide the extent."""
    blocks, factor = -(-max(typical(extent), 1) // lanes), common_factor((extent,))
    counts = tuple(count for count in vectors if count <= blocks)
    if isinstance(extent, int) or factor % lanes:
        return counts
    return tuple(count for count in counts if factor % (count * lanes) == 0)


def volume(stage: Stage, names: tuple[str, ...]) -> int:
    """Return the product of the typical extents of the axes `names`."""
    return math.prod(extent_of(stage, name) for name in names)


def window_along(contraction: Contraction, axis: str) -> tuple[int, int] | None:
    """Return (reach, stride) of the broadcast operand along an axis of points: the number of
    elements that one point reads, and the distance from point to point. None if no index of the
    operand is linear in the axis."""
    body = contraction.stage.body
    assert isinstance(body, Reduce)
    ranges = {a.name: a.extent for a in (*contraction.stage.axes, *body.axes)}
    simplifier = Simplifier(ranges)
    for index in contraction.broadcast_load.indices:
        terms = simplifier.linear(index).terms
        if Var(axis) in terms:
            low, high = simplifier.bounds(e.sub(index, e.mul(Var(axis), terms[Var(axis)])))
            return typical(high - low + 1), typical(terms[Var(axis)])
    return None


def factors_of(expr: Expr) -> tuple[tuple[Load, Load], bool] | None:
    """Return the two loads of a product, and True if one of them is padded. A padded load is a
    Select between the load and zero. Both may be inside a cast to the dtype of the sum. Return None
    if the expression is not such a product."""
    if not isinstance(expr, Binary) or expr.op is not BinaryOp.MUL:
        return None
    sides: list[Load] = []
    padded = False
    for side in (expr.left, expr.right):
        side = side.operand if isinstance(side, Cast) else side
        if isinstance(side, Select) and _is_padding(side):
            side, padded = side.then, True
        if not isinstance(side, Load):
            return None
        sides.append(side)
    return (sides[0], sides[1]), padded


def _is_padding(select: Select) -> bool:
    """Check whether a Select is a load if its indices are within bounds, and 0 otherwise. The
    Select of a strided transposed convolution does not qualify, as it also requires a multiple of
    the stride."""
    load, zero = select.then, select.otherwise
    if not isinstance(load, Load) or not isinstance(zero, Const) or zero.value != 0:
        return False
    bounds = [
        check
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
        for check in (Binary(BinaryOp.LE, e.index(0), index), e.less(index, extent))
    ]
    checks = [select.condition]
    while checks:
        check = checks.pop()
        if isinstance(check, Binary) and check.op is BinaryOp.AND:
            checks += [check.left, check.right]
        elif check not in bounds:
            return False
    return True


def _roles(
    stage: Stage, body: Reduce, lanes: Load, other: Load, lane: str
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the axes (points, batch) of a stage with `lanes` as the operand that is loaded as
    vectors: the points are the axes of which only the other operand depends. None if `lanes` cannot
    have this role."""
    if Var(lane) not in lanes.indices:
        return None
    by_lanes = set().union(*(variables(index) for index in lanes.indices))
    by_other = set().union(*(variables(index) for index in other.indices))
    axes = [axis.name for axis in stage.axes if axis.name != lane]
    points = tuple(axis for axis in axes if axis in by_other and axis not in by_lanes)
    batch = tuple(axis for axis in axes if axis not in points)
    if lane in by_other and Var(lane) not in other.indices and not _grouped(other, lane):
        return None
    reduced = {axis.name for axis in body.axes}
    if not reduced & by_lanes:
        return None
    return points, batch


def _grouped(load: Load, lane: str) -> bool:
    """Check whether a load depends on the lane axis only by `lane // size`, so that all lanes of a
    group read the same element."""

    def whole(expr: Expr) -> bool:
        if isinstance(expr, Binary):
            if expr.op is BinaryOp.DIV and expr.left == Var(lane):
                return True
            return whole(expr.left) and whole(expr.right)
        return expr != Var(lane)

    return all(whole(index) for index in load.indices)


def group_size(load: Load, lane: str) -> int:
    """Return the number of lanes that read the same group of channels, the `size` in an index `lane
    // size`; 0 if the load has no such index."""
    for index in load.indices:
        stack: list[Expr] = [index]
        while stack:
            expr = stack.pop()
            if isinstance(expr, Binary):
                if expr.op is BinaryOp.DIV and expr.left == Var(lane):
                    return int(expr.right.value)  # type: ignore[union-attr]
                stack += [expr.left, expr.right]
    return 0


def is_constant(load: Load) -> bool:
    """Check whether the schedule may choose the layout of the loaded buffer: the buffer is a
    constant, and each index is a constant or a different axis."""
    return load.buffer.scope is MemoryScope.CONSTANT and is_permuted(load)


def is_permuted(load: Load) -> bool:
    """Check whether each index is a constant or an axis that no other index uses."""
    axes = [index.name for index in load.indices if isinstance(index, Var)]
    constants = sum(isinstance(index, Const) for index in load.indices)
    return len(axes) == len(set(axes)) and len(axes) + constants == len(load.indices)


def is_direct(contraction: Contraction) -> bool:
    """Check whether one contiguous load reads a vector of the vector operand along the lane axis. A
    constant operand whose layout may be changed qualifies too."""
    load = contraction.vector_load
    layout = load.buffer.layout or Layout.plain(len(load.indices))
    whole = not any(dim.mod for dim in layout.dims)  # A vector might straddle blocks.
    contiguous = load.indices[layout.dims[-1].axis] == Var(contraction.lane)
    return is_constant(load) or (whole and contiguous)


def is_elementwise(stage: Stage, program: TensorProgram) -> bool:
    """Check whether each element of a stage reads only the elements with the same indices of
    earlier stages. A stage that interleaves the phases of a transposed convolution also
    qualifies."""
    if isinstance(stage.body, Reduce):
        return False
    if stage.buffer.name == INTERLEAVED:
        return True
    computed = {s.buffer.name for s in program.stages}
    shape = tuple(axis.extent for axis in stage.axes)
    return all(
        load.buffer.shape == shape and all(map(_is_at, load.indices, stage.axes))
        for load in loads(stage.body)
        if load.buffer.name in computed
    )


def _is_at(index: Expr, axis: Axis) -> bool:
    """Check whether an index is the variable of an axis. For an axis with extent 1, the constant 0
    is equivalent."""
    return index == Var(axis.name) or (axis.extent == 1 and index == e.index(0))
