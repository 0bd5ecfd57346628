"""Translate a tensor program to naive loop nests, one for each stage, in order.

before:  @program matmul[m, n] = sum(x[m, k] * w[k, n] for k in axes(3))
after:   for matmul_init_m, matmul_init_n: matmul[…] = 0.0
         for matmul_m, matmul_n, matmul_k: matmul[…] = matmul[…] + x[…] * w[…]

Loops are named `<stage>_<axis>`, those of the nest that initializes a reduction
`<stage>_init_<axis>`. Schedules refer to these names, so they depend on the program alone. The
buffers of stages that are not outputs are allocated in the workspace, around all nests.
"""

from __future__ import annotations

import dataclasses

from farrier.ir import expr as e
from farrier.ir.dim import Extent
from farrier.ir.expr import Binary, Buffer, Expr, Load, Reduce, Var
from farrier.ir.loop import Alloc, Block, For, Function, LoopKind, Stmt, Store
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Stage, TensorProgram
from farrier.lower.halos import zeros_around
from farrier.lower.padding import Padding, plan_padding


def to_loops(program: TensorProgram) -> Function:
    """Return the program as loop nests.

    A loop over the blocked axis of an output runs to the end of the last block if everything that
    its body reads there has memory. An output with a halo gets a nest that writes the zeros of the
    halo.
    """
    padding = plan_padding(program)
    buffers = _buffers(program, padding)
    statements: list[Stmt] = []
    for stage in program.stages:
        statements += _nests(stage, padding, buffers)
        if stage.buffer.layout is not None and any(map(any, stage.buffer.layout.halo)):
            statements.append(zeros_around(stage, buffers[stage.buffer.name], padding))
    body: Stmt = Block(tuple(statements))
    outputs = {buffer.name for buffer in program.outputs}
    for stage in reversed(program.stages):
        if stage.buffer.name not in outputs:
            body = Alloc(buffers[stage.buffer.name], body)
    params = (*program.inputs, *program.outputs)
    return Function(program.name, tuple(buffers[b.name] for b in params), body, program.dims)


def _buffers(program: TensorProgram, padding: Padding) -> dict[str, Buffer]:
    """Return every buffer by name, with the shape and layout that the padding requires."""
    buffers = {buffer.name: buffer for buffer in program.inputs}
    outputs = {buffer.name for buffer in program.outputs}
    for name, layout in padding.layouts.items():
        buffers[name] = dataclasses.replace(buffers[name], layout=layout)
    for stage in program.stages:
        buffer = stage.buffer
        if buffer.name not in outputs and buffer.layout is None and buffer.name in padding.shapes:
            buffer = dataclasses.replace(buffer, shape=padding.shapes[buffer.name])
        buffers[buffer.name] = buffer
    return buffers


def _nests(stage: Stage, padding: Padding, buffers: dict[str, Buffer]) -> list[Stmt]:
    """Return the loop nests that compute a stage: one nest or, for a reduction, a nest that
    initializes the result and a nest that updates it."""
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
