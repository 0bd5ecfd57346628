"""Rewrites of a program that give a contraction operands fit for its innermost loop.

A stage of its own, computed where a tile needs it, takes the place of what would otherwise be done
at every multiply-add: the test for padding, or the walk along a transposed operand.
"""

from __future__ import annotations

import dataclasses

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Scope,
    Select,
    Var,
)
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Program, Stage
from farrier.space.contraction import Contraction

PADDED = "padded"
PACKED = "packed"


def hoist_padding(program: Program, contraction: Contraction) -> Program:
    """The program with the padded point operand as a stage, so that a tile reads it unguarded.

    before:  conv[n, oc, o] = sum((x[n, ic, o + k - 1] if 0 <= o + k - 1 < 8 else 0) * w[oc, ic, k])
    after:   padded[n, ic, p] = x[n, ic, p - 1] if 0 <= p - 1 < 8 else 0
             conv[n, oc, o] = sum(padded[n, ic, o + k] * w[oc, ic, k])
    """
    load = contraction.point_load
    simplifier = Simplifier(_ranges(contraction.stage))
    shape, indices, source = [], [], []
    checks: list[Expr] = []
    for position, index in enumerate(load.indices):
        low, high = simplifier.bounds(index)
        at = e.add(Var(f"p{position}"), low)
        if low < 0:
            checks.append(Binary(BinaryOp.LE, e.index(0), at))
        if high >= load.buffer.shape[position]:
            checks.append(e.less(at, load.buffer.shape[position]))
        shape.append(high - low + 1)
        indices.append(simplifier.simplify(e.sub(index, low)))
        source.append(at)
    value: Expr = Load(load.buffer, tuple(source))
    if checks:
        condition = checks[0]
        for check in checks[1:]:
            condition = e.both(condition, check)
        value = Select(condition, value, Const(0.0, load.buffer.dtype))
    stage = _stage(PADDED, tuple(shape), value, [f"p{p}" for p in range(len(shape))])
    return _with_operand(program, contraction, stage, load, tuple(indices))


def pack_lane_operand(program: Program, contraction: Contraction) -> Program:
    """The program with the lane operand as a stage whose last axis is the lane's, so that a vector
    of it is one load.

    before:  matmul[b, m, n] = sum(a[b, m, k] * t[b, n, k])
    after:   packed[b, k, n] = t[b, n, k]
             matmul[b, m, n] = sum(a[b, m, k] * packed[b, k, n])
    """
    load = contraction.lane_load
    names = [axis for axis in (*contraction.batch, *contraction.reduction) if _reads(load, axis)]
    names.append(contraction.lane)
    ranges = _ranges(contraction.stage)
    shape = tuple(ranges[name] for name in names)
    stage = _stage(PACKED, shape, load, names)
    return _with_operand(program, contraction, stage, load, tuple(Var(name) for name in names))


def _ranges(stage: Stage) -> dict[str, int]:
    assert isinstance(stage.body, Reduce)
    return {axis.name: axis.extent for axis in (*stage.axes, *stage.body.axes)}


def _reads(load: Load, axis: str) -> bool:
    return any(index == Var(axis) for index in load.indices)


def _stage(name: str, shape: tuple[int, ...], value: Expr, axes: list[str]) -> Stage:
    buffer = Buffer(name, e.dtype_of(value), shape, None, Scope.WORKSPACE)
    named = tuple(Axis(axis, extent) for axis, extent in zip(axes, shape, strict=True))
    return Stage(buffer, named, value)


def _with_operand(
    program: Program,
    contraction: Contraction,
    stage: Stage,
    old: Load,
    indices: tuple[Expr, ...],
) -> Program:
    """`program` with `stage` before the contraction, which reads it in the place of `old`."""
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


def accumulate(program: Program) -> Program:
    """The program with a buffer of its own for a reduction that is the output itself.

    before:  conv[n, oc] = sum(...)
    after:   conv_sum[n, oc] = sum(...)
             conv[n, oc] = conv_sum[n, oc]
    """
    stage = program.stages[-1]
    if not isinstance(stage.body, Reduce):
        return program
    layout = stage.buffer.layout
    bare = None if layout is None else dataclasses.replace(layout, halo=())
    buffer = dataclasses.replace(
        stage.buffer, name=f"{stage.buffer.name}_sum", layout=bare, scope=Scope.WORKSPACE
    )
    point = tuple(Var(axis.name) for axis in stage.axes)
    made = dataclasses.replace(stage, buffer=buffer)
    copy = Stage(stage.buffer, stage.axes, Load(buffer, point))
    return dataclasses.replace(program, stages=(*program.stages[:-1], made, copy))


def without_halos(program: Program) -> Program:
    """The program with no halo around what only its own stages read."""
    outputs = {buffer.name for buffer in program.outputs}
    bare = {
        stage.buffer.name: dataclasses.replace(
            stage.buffer, layout=dataclasses.replace(stage.buffer.layout, halo=())
        )
        for stage in program.stages
        if stage.buffer.name not in outputs
        and stage.buffer.layout is not None
        and any(map(any, stage.buffer.layout.halo))
    }
    if not bare:
        return program
    change = Substitution(buffers=bare)
    stages = tuple(
        Stage(bare.get(s.buffer.name, s.buffer), s.axes, change.expr(s.body))
        for s in program.stages
    )
    return dataclasses.replace(program, stages=stages)
