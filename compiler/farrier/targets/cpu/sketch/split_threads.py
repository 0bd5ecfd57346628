"""Rewrite: split a long reduction into parts that different threads compute, for nests with too few
points.

before:  y[i] = sum(x[i, k] for k in axes(1000))
after:   part[c, i] = sum(x[i, 125 * c + k] for k in axes(125))
         y[i] = sum(part[c, i] for c in axes(8))

The part number becomes an additional axis of points, which derivations tile and vectorize and
threads divide like any other. If the number of parts does not divide the reduction, the last part
is shorter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier.ir import expr as e
from farrier.ir.dim import ceildiv, product, typical
from farrier.ir.expr import Axis, Buffer, Load, MemoryScope, Reduce, Select, Var
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Stage, TensorProgram
from farrier.space.machine import Machine
from farrier.space.operations import operations
from farrier.targets.cpu.sketch.nest import Nest

_FEW = 4  # With fewer tiles per thread, threads wait for the slowest.
_WORTH_SHARING = 1 << 16  # The operations of a sum for which starting a second thread pays off.
_PARTS = 4  # Parts per thread, so that a late thread delays the result by a quarter of its share.


def split_threads(
    program: TensorProgram, nests: Sequence[Nest], machine: Machine
) -> TensorProgram | None:
    """Return the program with the long reductions of its nests split into parts; None if the points
    suffice for all threads, or the extents are open (dynamic)."""
    if machine.threads < 2:
        return None
    wanted = _PARTS * machine.threads
    changed = program
    for total in (total for nest in nests for total in nest.sums):
        axis = _axis(total.reduced_axes, wanted)
        if isinstance(axis.extent, int) and _is_worth_it(total, machine):
            changed = _in_parts(changed, total, axis, _parts(axis.extent, wanted))
    return None if changed is program else changed


def _is_worth_it(total: Stage, machine: Machine) -> bool:
    points = typical(total.buffer.type.size)
    summands = typical(product(axis.extent for axis in total.reduced_axes))
    work = points * summands * (operations([total]) + 1)
    return points / machine.lanes < _FEW * machine.threads and work >= _WORTH_SHARING


def _axis(reduced: tuple[Axis, ...], wanted: int) -> Axis:
    """Return the reduced axis to split: the outermost with at least `wanted` iterations, so that
    the data of a part is contiguous, or else the longest."""
    longest = max(reduced, key=lambda axis: typical(axis.extent))
    return next((axis for axis in reduced if typical(axis.extent) >= wanted), longest)


def _parts(extent: int, wanted: int) -> int:
    """Return the number of parts into which to split `extent`: a number close to `wanted` that
    divides the extent, or `wanted` itself if there is none."""
    near = (n for n in range(wanted, 2 * wanted) if extent % n == 0)
    return min(next(near, wanted), extent)


def _in_parts(program: TensorProgram, total: Stage, axis: Axis, parts: int) -> TensorProgram:
    body = total.body
    assert isinstance(body, Reduce)
    length = ceildiv(axis.extent, parts)
    part = Axis(f"{axis.name}_part", parts)
    position = e.add(e.mul(Var(part.name), length), Var(axis.name))
    summand = Substitution({axis.name: position}).expr(body.body)
    if typical(axis.extent) % parts:
        identity = body.op.identity(e.dtype_of(body.body))
        summand = Select(e.less(position, axis.extent), summand, identity)
    reduced = tuple(
        dataclasses.replace(each, extent=length) if each is axis else each for each in body.axes
    )
    shape = (parts, *(each.extent for each in total.axes))
    name = f"{total.buffer.name}_parts"
    buffer = Buffer(name, total.buffer.dtype, shape, None, MemoryScope.WORKSPACE)
    inner = Stage(buffer, (part, *total.axes), Reduce(body.op, reduced, summand))
    point = tuple(Var(each.name) for each in inner.axes)
    outer = dataclasses.replace(total, body=Reduce(body.op, (part,), Load(buffer, point)))
    at = program.stages.index(total)
    stages = (*program.stages[:at], inner, outer, *program.stages[at + 1 :])
    return dataclasses.replace(program, stages=stages)
