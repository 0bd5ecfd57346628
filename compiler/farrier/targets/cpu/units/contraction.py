"""What a program contracts: which operand runs along the lanes, which is broadcast, over what.

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
    """A sum of products, and the elementwise stages that follow it; axes by their names."""

    stage: Stage
    vector_load: Load  # varies along the lanes
    broadcast_load: Load  # is broadcast to them; in a depthwise product it varies along them too
    lane: str
    points: tuple[str, ...]
    batch: tuple[str, ...]
    reduction: tuple[str, ...]
    padded: bool  # the point operand stands under a Select that makes its padding
    epilogue: tuple[Stage, ...]  # from the stage after the contraction to the output

    @property
    def depthwise(self) -> bool:
        """Whether both operands vary along the lanes, element by element."""
        return any(index == Var(self.lane) for index in self.broadcast_load.indices)

    @property
    def output(self) -> Stage:
        """The stage that writes the kernel's result."""
        return self.epilogue[-1] if self.epilogue else self.stage


def find_contraction(program: TensorProgram, leading: tuple[str, ...] = ()) -> Contraction | None:
    """Return the contraction that `program` consists of, or None if it is not one: a sum of
    products in `SUMS`, then elementwise stages. Stages that write the buffers `leading` are
    ignored."""
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
    """The contraction that a stage computes, or None where it is no sum of products."""
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
    """The axis along which the stage's result is contiguous in memory."""
    layout = stage.buffer.layout
    return layout.dims[-1].axis if layout is not None else len(stage.axes) - 1


def axis_extent(stage: Stage, name: str) -> Extent:
    """The logical extent of a stage's axis, spatial or reduced."""
    for axis in stage.all_axes:
        if axis.name == name:
            return axis.extent
    raise KeyError(name)


def extent_of(stage: Stage, name: str) -> int:
    """The logical extent of a stage's axis, spatial or reduced, where it is typical; 1 of one that
    typically is empty."""
    return max(typical(axis_extent(stage, name)), 1)


def factor_of(stage: Stage, name: str) -> int:
    """What the logical extent of a stage's axis is known to be a multiple of, at all sizes: the
    extent itself, where that is a number."""
    return common_factor([axis_extent(stage, name)])


def whole_panels(extent: Extent, lanes: int, vectors: Iterable[int]) -> tuple[int, ...]:
    """Those of `vectors`, of so many lanes each, that a panel may have of a loop over `extent`
    lanes: no more than there are. Where the extent is open, but whole vectors at all sizes, those
    by which it is whole panels."""
    blocks, factor = -(-max(typical(extent), 1) // lanes), common_factor((extent,))
    found = tuple(count for count in vectors if count <= blocks)
    if isinstance(extent, int) or factor % lanes:
        return found
    return tuple(count for count in found if factor % (count * lanes) == 0)


def volume(stage: Stage, names: tuple[str, ...]) -> int:
    """The product of the axes' typical extents."""
    return math.prod(extent_of(stage, name) for name in names)


def window_along(found: Contraction, axis: str) -> tuple[int, int] | None:
    """(reach of the taps, stride) of the point operand along an axis of points; None where no index
    of it moves with that axis in steps."""
    body = found.stage.body
    assert isinstance(body, Reduce)
    ranges = {a.name: a.extent for a in (*found.stage.axes, *body.axes)}
    simplifier = Simplifier(ranges)
    for index in found.broadcast_load.indices:
        terms = simplifier.linear(index).terms
        if Var(axis) in terms:
            low, high = simplifier.bounds(e.sub(index, e.mul(Var(axis), terms[Var(axis)])))
            return typical(high - low + 1), typical(terms[Var(axis)])
    return None


def factors_of(expr: Expr) -> tuple[tuple[Load, Load], bool] | None:
    """The two loads of a product, be they converted to the dtype of the sum; one may stand under a
    Select whose other branch is padding."""
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
    """Whether a Select is a load, or 0 where an index of it is out of bounds, and nothing more: the
    guard of a strided transposed convolution also asks for a multiple of the stride."""
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
    """(points, batch) with `lanes` as the operand along the lanes, or None where it cannot be."""
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
    """Whether the lane axis enters only as `lane // size`: one index for all lanes of a group."""

    def whole(expr: Expr) -> bool:
        if isinstance(expr, Binary):
            if expr.op is BinaryOp.DIV and expr.left == Var(lane):
                return True
            return whole(expr.left) and whole(expr.right)
        return expr != Var(lane)

    return all(whole(index) for index in load.indices)


def group_size(load: Load, lane: str) -> int:
    """Lanes that share one group of the point operand; 0 where it has no groups."""
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
    """Whether the schedule may choose the layout of what is loaded."""
    return load.buffer.scope is MemoryScope.CONSTANT and is_permuted(load)


def is_permuted(load: Load) -> bool:
    """Whether each index is a constant or an axis of its own."""
    axes = [index.name for index in load.indices if isinstance(index, Var)]
    constants = sum(isinstance(index, Const) for index in load.indices)
    return len(axes) == len(set(axes)) and len(axes) + constants == len(load.indices)


def is_direct(found: Contraction) -> bool:
    """Whether a vector of the lane operand is, or can be made, one contiguous load."""
    load = found.vector_load
    layout = load.buffer.layout or Layout.plain(len(load.indices))
    whole = not any(dim.mod for dim in layout.dims)  # no blocks, which a vector might straddle
    contiguous = load.indices[layout.dims[-1].axis] == Var(found.lane)
    return is_constant(load) or (whole and contiguous)


def is_elementwise(stage: Stage, program: TensorProgram) -> bool:
    """Whether a stage reads each earlier stage at its own point only; a point of several turns is
    one that was taken apart."""
    if isinstance(stage.body, Reduce):
        return False
    if stage.buffer.name == INTERLEAVED:
        return True
    made = {s.buffer.name for s in program.stages}
    shape = tuple(axis.extent for axis in stage.axes)
    return all(
        load.buffer.shape == shape and all(map(_is_at, load.indices, stage.axes))
        for load in loads(stage.body)
        if load.buffer.name in made
    )


def _is_at(index: Expr, axis: Axis) -> bool:
    """Whether an index is the point of an axis; the only point of an axis may be written as 0."""
    return index == Var(axis.name) or (axis.extent == 1 and index == e.index(0))
