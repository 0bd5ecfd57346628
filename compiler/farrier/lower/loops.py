"""Tensor program → naive loop nests, one a stage, in order.

before:  @program matmul[m, n] = sum(x[m, k] * w[k, n] for k in axes(3))
after:   for matmul_init_m, matmul_init_n: matmul[…] = 0.0
         for matmul_m, matmul_n, matmul_k: matmul[…] = matmul[…] + x[…] * w[…]

Loops are named `<stage>_<axis>`, those of a reduction's first nest `<stage>_init_<axis>`. Schedules
refer to them, so the names depend on the program alone. Stages that are not outputs live in the
workspace, allocated around everything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.ir import expr as e
from farrier.ir.blocks import block_of
from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.expr import Binary, Buffer, Const, Expr, Load, Reduce, Var
from farrier.ir.loop import Alloc, Block, For, Function, If, LoopKind, Stmt, Store
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Program, Stage
from farrier.ir.types import Shape
from farrier.lower.padding import Padding, plan_padding


def to_loops(program: Program) -> Function:
    """The program as loop nests. Loops over the blocked axis of an output run to the end of the
    last block where all that they read lies in memory; a halo gets a nest that writes its zeros."""
    padding = plan_padding(program)
    buffers = _buffers(program, padding)
    statements: list[Stmt] = []
    for stage in program.stages:
        statements += _nests(stage, padding, buffers)
        if stage.buffer.layout is not None and any(map(any, stage.buffer.layout.halo)):
            statements.append(_halo(stage, buffers[stage.buffer.name], padding))
    body: Stmt = Block(tuple(statements))
    outputs = {buffer.name for buffer in program.outputs}
    for stage in reversed(program.stages):
        if stage.buffer.name not in outputs:
            body = Alloc(buffers[stage.buffer.name], body)
    params = (*program.inputs, *program.outputs)
    return Function(program.name, tuple(buffers[b.name] for b in params), body, program.dims)


def _buffers(program: Program, padding: Padding) -> dict[str, Buffer]:
    """Every buffer by name, with the shape and layout that the padding asks for."""
    found = {buffer.name: buffer for buffer in program.inputs}
    outputs = {buffer.name for buffer in program.outputs}
    for name, layout in padding.layouts.items():
        found[name] = dataclasses.replace(found[name], layout=layout)
    for stage in program.stages:
        buffer = stage.buffer
        if buffer.name not in outputs and buffer.layout is None and buffer.name in padding.shapes:
            buffer = dataclasses.replace(buffer, shape=padding.shapes[buffer.name])
        found[buffer.name] = buffer
    return found


def _nests(stage: Stage, padding: Padding, buffers: dict[str, Buffer]) -> list[Stmt]:
    """The nest of a stage; for a reduction that of its first values, then that of its updates."""
    name = stage.buffer.name
    shape = padding.shapes.get(name, stage.buffer.shape)
    spatial = [(axis.name, extent) for axis, extent in zip(stage.axes, shape, strict=True)]
    buffer, body = buffers[name], stage.body
    if not isinstance(body, Reduce):
        return [_nest(buffer, name, spatial, [], body, buffers)]
    start = body.op.identity(e.dtype_of(body.body))
    element = Load(buffer, tuple(Var(axis.name) for axis in stage.axes))
    reduced = [(axis.name, axis.extent) for axis in body.axes]
    update = Binary(body.op.binary, element, body.body)
    return [
        _nest(buffer, f"{name}_init", spatial, [], start, buffers),
        _nest(buffer, name, spatial, reduced, update, buffers),
    ]


def _nest(
    buffer: Buffer,
    prefix: str,
    spatial: list[tuple[str, Extent]],
    reduced: list[tuple[str, Extent]],
    value: Expr,
    buffers: dict[str, Buffer],
) -> Stmt:
    renamed = {axis: Var(f"{prefix}_{axis}") for axis, _ in (*spatial, *reduced)}
    indices = tuple(renamed[axis] for axis, _ in spatial)
    stmt: Stmt = Store(buffer, indices, Substitution(renamed, buffers).expr(value))
    for axis, extent in reversed((*spatial, *reduced)):
        stmt = For(renamed[axis].name, extent, LoopKind.SERIAL, stmt)
    return stmt


def _halo(stage: Stage, buffer: Buffer, padding: Padding) -> Stmt:
    """Zeros around an output: one parallel loop over the lines of the first axis with halo, in it
    all blocks of the axes without. A thread writes zeros beside what it has computed where that was
    shared by lines, too."""
    layout = buffer.layout
    assert layout is not None
    name = f"{buffer.name}_halo"
    shape = padding.shapes.get(buffer.name, buffer.shape)
    rank = len(shape)
    first, *others = [axis for axis in range(rank) if any(layout.halo_of(axis))]
    counts, fixed, lanes = _blocks(stage, buffer, shape, f"{name}_block")
    before, after = layout.halo_of(first)
    line = Var(name)
    fixed[first] = e.sub(line, before)
    zero = Const(0.0 if buffer.dtype.is_float else 0, buffer.dtype)

    def zeros(side: str, spans: Mapping[int, tuple[Extent, Extent]]) -> Stmt:
        """Zeros at (first index, extent) of each of the other axes."""
        nest: list[tuple[str, Extent, LoopKind]] = []
        indices = dict(fixed)
        for axis, (start, length) in spans.items():
            var = f"{name}_{side}_{stage.axes[axis].name}"
            nest.append((var, length, LoopKind.SERIAL))
            indices[axis] = e.add(Var(var), start)
        for axis, (base, block) in lanes.items():
            var = f"{name}_{side}_{stage.axes[axis].name}"
            nest.append((var, block, LoopKind.VECTORIZED))
            indices[axis] = e.add(base, Var(var))
        stmt: Stmt = Store(buffer, tuple(indices[axis] for axis in range(rank)), zero)
        if side == "outside":
            stmt = If(e.less(line, before), stmt, If(e.less(before + shape[first] - 1, line), stmt))
        for var, length, kind in reversed(nest):
            stmt = For(var, length, kind, stmt)
        return stmt

    spans: dict[int, tuple[Extent, Extent]] = {axis: (0, shape[axis]) for axis in others}
    parts = [zeros("outside", spans)]
    for axis in others:  # the ends of every line; corners belong to the last of their axes
        below, above = layout.halo_of(axis)
        for side, start, extent in (("low", -below, below), ("high", shape[axis], above)):
            if extent != 0:
                end = {**spans, axis: (start, extent)}
                parts.append(zeros(f"{stage.axes[axis].name}_{side}", end))
        spans[axis] = (-below, shape[axis] + below + above)
    blocks = For(f"{name}_block", product(counts), LoopKind.SERIAL, Block(tuple(parts)))
    return For(name, before + shape[first] + after, LoopKind.PARALLEL, blocks)


def _blocks(
    stage: Stage, buffer: Buffer, shape: Shape, name: str
) -> tuple[list[Extent], dict[int, Expr], dict[int, tuple[Expr, int]]]:
    """How the axes without halo are walked by one variable: the extents of its digits, the index of
    each plain axis, and (first index, block) of each blocked one."""
    layout = buffer.layout
    assert layout is not None
    walked = [axis for axis in range(len(shape)) if not any(layout.halo_of(axis))]
    blocks = [block_of(layout, axis) for axis in walked]
    counts = [ceildiv(shape[a], b) for a, b in zip(walked, blocks, strict=True)]
    fixed: dict[int, Expr] = {}
    lanes: dict[int, tuple[Expr, int]] = {}
    for position, (axis, block) in enumerate(zip(walked, blocks, strict=True)):
        digit = e.floordiv(Var(name), product(counts[position + 1 :]))
        if position:
            digit = e.mod(digit, counts[position])
        if block > 1:
            lanes[axis] = (e.mul(digit, block), block)
        else:
            fixed[axis] = digit
    return counts, fixed, lanes
