"""Canonical form of tensor programs: the axes of images with channels last in the order of memory.

before:  y[n, c, h, w] = max(x[n, c, h, w], 0)     x and y @ layout(0, 2, 3, 1)
after:   y[n, h, w, c] = max(x[n, h, w, c], 0)

Rules for devices with many threads take the last axis of a result for the one along which memory
is contiguous. A reduction takes the axes of what it reads in the order of memory as well.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.expr import Axis, Buffer, Expr, Load, MemoryScope, Reduce
from farrier.ir.substitute import Indices, Substitution, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout
from farrier.ir.walk import walk


def in_memory_order(program: TensorProgram) -> TensorProgram:
    """Return the program with row-major buffers instead of buffers in the layout with channels
    last; their axes are permuted. Constants keep their layouts, since these determine how they are
    packed."""
    buffers = (*program.inputs, *(stage.buffer for stage in program.stages))
    orders = {buffer.name: _order(buffer) for buffer in buffers if _is_changed(buffer)}
    if not orders:
        return program

    def own(buffer: Buffer) -> Buffer:
        if buffer.name not in orders:
            return buffer
        shape = tuple(buffer.shape[axis] for axis in orders[buffer.name])
        return dataclasses.replace(buffer, shape=shape, layout=None)

    def access(buffer: Buffer, indices: Indices) -> Indices:
        return tuple(indices[axis] for axis in orders.get(buffer.name, range(len(indices))))

    changed = {buffer.name: own(buffer) for buffer in buffers}
    change = Substitution(buffers=changed, access=access)
    stages = []
    for stage in program.stages:
        order = orders.get(stage.buffer.name, range(len(stage.axes)))
        axes = tuple(stage.axes[axis] for axis in order)
        body = _with_ordered_sums(change.expr(stage.body), set(orders))
        stages.append(Stage(own(stage.buffer), axes, body))
    return dataclasses.replace(
        program,
        inputs=tuple(map(own, program.inputs)),
        stages=tuple(stages),
        outputs=tuple(map(own, program.outputs)),
    )


def _is_changed(buffer: Buffer) -> bool:
    is_packed = buffer.scope is MemoryScope.CONSTANT
    return not is_packed and buffer.layout == Layout.channels_last(len(buffer.shape))


def _order(buffer: Buffer) -> tuple[int, ...]:
    return tuple(dim.axis for dim in buffer.element_layout.dims)


def _with_ordered_sums(body: Expr, changed: set[str]) -> Expr:
    """Return the body of a stage with the axes of its reduction reordered: they come in the order
    in which the indices of a buffer in `changed` use them."""
    if not isinstance(body, Reduce):
        return body
    reads = [part for part in walk(body) if isinstance(part, Load) and part.buffer.name in changed]
    if not reads:
        return body
    named = [variables(index) for index in reads[0].indices]

    def place(axis: Axis) -> int:
        return next((at for at, names in enumerate(named) if axis.name in names), -1)

    return Reduce(body.op, tuple(sorted(body.axes, key=place)), body.body)
