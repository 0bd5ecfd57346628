"""Rewrites with which any space may prepare a program: separate sums from their readers, and remove
halos within a kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from farrier.ir.affine import Simplifier
from farrier.ir.dim import is_less, maximum
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, MemoryScope, Reduce, Select, Var
from farrier.ir.linear import Linear
from farrier.ir.operands import operands
from farrier.ir.substitute import Indices, Substitution
from farrier.ir.tensor import Stage, TensorProgram


def accumulate(program: TensorProgram, at: int = -1) -> TensorProgram:
    """Return the program with a separate buffer for the reduction of stage `at`, which then copies
    the result; the same program if that stage is not a reduction.

    before:  conv[n, oc] = sum(...)
    after:   conv_sum[n, oc] = sum(...)
             conv[n, oc] = conv_sum[n, oc]
    """
    stage = program.stages[at]
    if not isinstance(stage.body, Reduce):
        return program
    total = dataclasses.replace(stage, buffer=sum_buffer(stage))
    point = tuple(Var(axis.name) for axis in stage.axes)
    copy = Stage(stage.buffer, stage.axes, Load(total.buffer, point))
    return replaced(program, stage, total, copy)


def written_out(stage: Stage, reader: Stage) -> Stage:
    """Return the stage `reader` with the expression of `stage` substituted for each read of its
    buffer.

    before:  t[i] = x[i] * 2        y[j] = t[j + 1]
    after:   y[j] = x[j + 1] * 2
    """

    def value(indices: Indices) -> Expr:
        point = {axis.name: index for axis, index in zip(stage.axes, indices, strict=True)}
        return Substitution(point).expr(stage.body)

    change = Substitution(reads={stage.buffer.name: value})
    return dataclasses.replace(reader, body=change.expr(reader.body))


def without_halos(program: TensorProgram) -> TensorProgram:
    """Return the program with the halos removed from those buffers that only its own stages
    read."""
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


def sum_buffer(stage: Stage) -> Buffer:
    """Return a buffer for the sums of a reduction, separate from the stage's own buffer."""
    layout = stage.buffer.layout
    bare = None if layout is None else dataclasses.replace(layout, halo=())
    name = f"{stage.buffer.name}_sum"
    return dataclasses.replace(stage.buffer, name=name, layout=bare, scope=MemoryScope.WORKSPACE)


def replaced(program: TensorProgram, old: Stage, *new: Stage) -> TensorProgram:
    """Return the program with the stage `old` replaced by the stages `new`."""
    at = program.stages.index(old)
    return dataclasses.replace(
        program, stages=(*program.stages[:at], *new, *program.stages[at + 1 :])
    )


def conjuncts(condition: Expr) -> Iterator[Expr]:
    """Yield the conditions of which `condition` is the conjunction."""
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND:
        yield from conjuncts(condition.left)
        yield from conjuncts(condition.right)
    else:
        yield condition


def stays_within(expr: Expr, simplifier: Simplifier) -> bool:
    """Check whether all loads of an expression are within their buffers, for variables in the
    ranges of `simplifier` and under the conditions of its Selects."""
    if isinstance(expr, Select):
        if not stays_within(expr.condition, simplifier):
            return False
        inside = simplifier
        for condition in conjuncts(expr.condition):
            slack = inside.slack(condition)
            if slack is not None:
                low, high = inside.bounds_of(Linear(slack.terms, 0))
                inside = inside.knowing(slack.terms, maximum(low, -slack.const), high)
        return stays_within(expr.then, inside) and stays_within(expr.otherwise, simplifier)
    if isinstance(expr, Load):
        bounds = (simplifier.bounds(index) for index in expr.indices)
        return all(
            is_less(-1, low) and is_less(high, extent)
            for (low, high), extent in zip(bounds, expr.buffer.shape, strict=True)
        )
    return all(stays_within(operand, simplifier) for operand in operands(expr))
