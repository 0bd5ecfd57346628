"""Program rewrites that make the operands of a contraction suitable for the innermost loop.

Work that the innermost loop would repeat for every multiply-add, such as the bounds checks of
padding or strided loads of a transposed operand, is moved to a separate stage. That stage is
computed at the loop whose iterations use its result.
"""

from __future__ import annotations

import dataclasses

from farrier.intrinsics import vector_axis
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, is_less
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    Select,
    Var,
)
from farrier.ir.substitute import Substitution, loads, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout, PhysicalDim, Shape
from farrier.schedule import Schedule
from farrier.space.operations import reads_of
from farrier.space.rewrites import replaced, sum_buffer
from farrier.targets.cpu.units.contraction import Contraction
from farrier.targets.cpu.units.dot_products import Neighbours
from farrier.targets.cpu.units.nests import loop_extents
from farrier.targets.cpu.units.squares import SMALLEST, turn_squares

PADDED = "padded"
PACKED = "packed"


def hoist_padding(
    program: TensorProgram, contraction: Contraction, name: str = PADDED
) -> TensorProgram:
    """Return the program with an additional stage that contains the broadcast operand with its
    padding. Tiles read the result of that stage without bounds checks.

    before:  conv[n, oc, o] = sum((x[n, ic, o + k - 1] if 0 <= o + k - 1 < 8 else 0) * w[oc, ic, k])
    after:   padded[n, ic, p] = x[n, ic, p - 1] if 0 <= p - 1 < 8 else 0
             conv[n, oc, o] = sum(padded[n, ic, o + k] * w[oc, ic, k])
    """
    load = contraction.broadcast_load
    simplifier = Simplifier(_ranges(contraction.stage))
    shape: list[Extent] = []
    indices: list[Expr] = []
    source: list[Expr] = []
    checks: list[Expr] = []
    for position, index in enumerate(load.indices):
        low, high = simplifier.bounds(index)
        at = e.add(Var(f"p{position}"), low)
        if not is_less(-1, low):
            checks.append(Binary(BinaryOp.LE, e.index(0), at))
        if not is_less(high, load.buffer.shape[position]):
            checks.append(e.less(at, load.buffer.shape[position]))
        shape.append(high - low + 1)
        indices.append(simplifier.simplify(e.sub(index, low)))
        source.append(at)
    value: Expr = Load(load.buffer, tuple(source))
    if checks:
        condition = checks[0]
        for check in checks[1:]:
            condition = e.both(condition, check)
        dtype = load.buffer.dtype
        value = Select(condition, value, Const(0.0 if dtype.is_float else 0, dtype))
    stage = _stage(name, tuple(shape), value, [f"p{p}" for p in range(len(shape))])
    return _with_operand(program, contraction, stage, load, tuple(indices))


def window_copy(program: TensorProgram) -> str:
    """Return the name of a program's first stage if it copies the broadcast operand of a
    contraction with padding around it, else ""."""
    first, *rest = program.stages
    is_copy = isinstance(first.body, Select) and isinstance(first.body.then, Load)
    is_read = rest and isinstance(rest[0].body, Reduce) and reads_of(first.buffer.name, [rest[0]])
    is_local = first.buffer.scope is MemoryScope.WORKSPACE
    return first.buffer.name if is_copy and is_read and is_local else ""


def lay_out_copy(schedule: Schedule, stage: Stage, layout: Layout | None, width: int) -> str:
    """Give the copy of a window that `stage` makes a layout, plain if it is None. Return the loop
    over `width` adjacent elements, which becomes the innermost."""
    name = stage.buffer.name
    loops = [f"{name}_{axis.name}" for axis in stage.axes]
    if layout is None:
        return schedule.split(loops[-1], width)[1]
    schedule.transform_layout(name, layout)
    axis = layout.dims[-1].axis
    loops[axis], adjacent = schedule.split(loops[axis], width)
    schedule.reorder(*loops, adjacent)
    return adjacent


def by_first_use(program: TensorProgram) -> TensorProgram:
    """Return the program with its elementwise stages moved as late as possible: directly before
    their first reader. The operands of an epilogue then come after the contraction.

    before:  wide[m, n] = cast(f32, r[m, n])
             matmul[m, n] = sum(a[m, k] * b[k, n])
             y[m, n] = wide[m, n] + matmul[m, n]
    after:   matmul[m, n] = sum(a[m, k] * b[k, n])
             wide[m, n] = cast(f32, r[m, n])
             y[m, n] = wide[m, n] + matmul[m, n]
    """
    reduced = {buffer.name for buffer in program.outputs}
    for stage in program.stages:
        if isinstance(stage.body, Reduce) or reduced & {x.buffer.name for x in loads(stage.body)}:
            reduced.add(stage.buffer.name)
    stages: list[Stage] = []
    for stage in reversed(program.stages):
        at = 0
        if stage.buffer.name not in reduced:
            at = next((n for n, s in enumerate(stages) if reads_of(stage.buffer.name, [s])), 0)
        stages.insert(at, stage)
    return dataclasses.replace(program, stages=tuple(stages))


def pack_lane_operand(
    program: TensorProgram, contraction: Contraction, name: str = PACKED
) -> TensorProgram:
    """Return the program with an additional stage that copies the vector operand. The last axis of
    the copy is the lane axis, so that a vector is a single load.

    before:  matmul[b, m, n] = sum(a[b, m, k] * t[b, n, k])
    after:   packed[b, k, n] = t[b, n, k]
             matmul[b, m, n] = sum(a[b, m, k] * packed[b, k, n])
    """
    load = contraction.vector_load
    axes = [axis for axis in (*contraction.batch, *contraction.reduction) if _reads(load, axis)]
    axes.append(contraction.lane)
    ranges = _ranges(contraction.stage)
    stage = _stage(name, tuple(ranges[axis] for axis in axes), load, axes)
    return _with_operand(program, contraction, stage, load, tuple(Var(axis) for axis in axes))


def pack(schedule: Schedule, stage: Stage, width: int) -> None:
    """Vectorize the loop nest that packs an operand. If the source is contiguous along another axis
    than the packed operand, the nest transposes squares of `width` × `width` elements. Otherwise it
    copies one vector at a time, in an order that reuses cache lines of the source."""
    assert isinstance(stage.body, Load)
    source, lane = stage.body, stage.axes[-1].name
    extents = loop_extents(schedule.function)
    across = source.indices[vector_axis(source.buffer)]
    if isinstance(across, Var) and across != Var(lane):
        loops = (f"{stage.buffer.name}_{axis}" for axis in (across.name, lane))
        if min(extents[loop] for loop in loops) >= SMALLEST:
            turn_squares(schedule, stage, across.name, lane, [source.buffer], width)
            return
    *others, along = (f"{stage.buffer.name}_{axis.name}" for axis in stage.axes)
    chunk, lanes = schedule.split(along, width)
    schedule.reorder(chunk, *others, lanes)
    schedule.unroll(lanes)


def pack_groups(schedule: Schedule, stage: Stage, width: int, grouping: Neighbours) -> None:
    """Vectorize the nest of an operand that is packed in groups for dot products, by vectors of
    `width` groups."""
    *others, along = (f"{stage.buffer.name}_{axis.name}" for axis in stage.axes)
    at = group_axis(stage, grouping)
    chunk, lanes = schedule.split(along, width)
    others[at], group = schedule.split(others[at], grouping.group)
    schedule.reorder(chunk, *others, lanes, group)
    schedule.group(group)
    schedule.vectorize(lanes)


def group_axis(stage: Stage, grouping: Neighbours) -> int:
    """Return the axis of a packed operand along which the elements of a group are contiguous. A
    group has the elements that a dot product sums in a lane."""
    return [axis.name for axis in stage.axes].index(grouping.axis)


def lay_out_packed(
    schedule: Schedule, stage: Stage, panel: int, grouping: Neighbours | None
) -> None:
    """Change the layout of a packed operand to panels of `panel` lanes (0: a single panel). Within
    a panel, elements are in the order in which the sums read them; if `grouping` is set, the
    elements of a dot product's group are contiguous."""
    *others, lane = range(len(stage.axes))
    dims = [PhysicalDim(axis) for axis in others]
    inner = [PhysicalDim(lane, 1, panel)]
    if grouping is not None:
        at, group = group_axis(stage, grouping), grouping.group
        dims[at] = PhysicalDim(at, group)
        inner.append(PhysicalDim(at, 1, group))
    if panel:
        dims.insert(others[-1], PhysicalDim(lane, panel))
    schedule.transform_layout(stage.buffer.name, Layout((*dims, *inner)))


def _ranges(stage: Stage) -> dict[str, Extent]:
    assert isinstance(stage.body, Reduce)
    return {axis.name: axis.extent for axis in (*stage.axes, *stage.body.axes)}


def _reads(load: Load, axis: str) -> bool:
    return any(index == Var(axis) for index in load.indices)


def _stage(name: str, shape: Shape, value: Expr, axes: list[str]) -> Stage:
    buffer = Buffer(name, e.dtype_of(value), shape, None, MemoryScope.WORKSPACE)
    named = tuple(Axis(axis, extent) for axis, extent in zip(axes, shape, strict=True))
    return Stage(buffer, named, value)


def _with_operand(
    program: TensorProgram,
    contraction: Contraction,
    stage: Stage,
    old: Load,
    indices: tuple[Expr, ...],
) -> TensorProgram:
    """Return `program` with `stage` inserted before the contraction, which reads the stage's result
    instead of the operand `old`."""
    body = contraction.stage.body
    assert isinstance(body, Reduce)
    assert isinstance(body.body, Binary)
    new = Load(stage.buffer, indices)

    def side(expr: Expr) -> Expr:
        if isinstance(expr, Cast):
            return Cast(expr.dtype, side(expr.operand))
        inner = expr.then if isinstance(expr, Select) else expr
        return new if inner == old else expr

    product = Binary(BinaryOp.MUL, side(body.body.left), side(body.body.right))
    reduced = dataclasses.replace(contraction.stage, body=Reduce(body.op, body.axes, product))
    stages = [reduced if s is contraction.stage else s for s in program.stages]
    stages.insert(stages.index(reduced), stage)
    return dataclasses.replace(program, stages=tuple(stages))


def factor_out(program: TensorProgram, contraction: Contraction) -> TensorProgram:
    """Return the program with a factor of the broadcast operand moved out of the reduction. The
    factor must not vary along the reduced axes; it is applied to the sum instead. Without such a
    factor, return the program unchanged.

    before:  share[m, k] = weight[m, k] * scale[m]
             context[m, n] = sum(share[m, k] * v[k, n])
    after:   context_sum[m, n] = sum(weight[m, k] * v[k, n])
             context[m, n] = context_sum[m, n] * scale[m]
    """
    stage, point = contraction.stage, contraction.broadcast_load
    source = next((s for s in program.stages if s.buffer.name == point.buffer.name), None)
    if source is None or not isinstance(source.body, Binary) or source.body.op is not BinaryOp.MUL:
        return program
    assert isinstance(stage.body, Reduce)
    assert isinstance(stage.body.body, Binary)
    there = Substitution(
        {axis.name: index for axis, index in zip(source.axes, point.indices, strict=True)}
    )
    left, right = there.expr(source.body.left), there.expr(source.body.right)
    reduced = set(contraction.reduction)
    constant = [side for side in (left, right) if not variables(side) & reduced]
    if len(constant) != 1:
        return program
    rest = left if constant[0] is right else right
    product = stage.body.body
    sides = (rest if side == point else side for side in (product.left, product.right))
    total = Reduce(stage.body.op, stage.body.axes, Binary(BinaryOp.MUL, *sides))
    unscaled = Stage(sum_buffer(stage), stage.axes, total)
    at = tuple(Var(axis.name) for axis in stage.axes)
    scaled = Binary(BinaryOp.MUL, Load(unscaled.buffer, at), constant[0])
    program = replaced(program, stage, unscaled, Stage(stage.buffer, stage.axes, scaled))
    kept = tuple(s for s in program.stages if s is not source)
    read = any(load.buffer.name == source.buffer.name for s in kept for load in loads(s.body))
    return program if read else dataclasses.replace(program, stages=kept)
