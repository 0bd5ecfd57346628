"""The rewrite of reductions with few results into parts that threads compute in parallel.

before:  total[i] = sum(x[i, k] for k in axes(1000000))
         y[i] = sqrt(total[i])
after:   total_part[p, i] = sum(x[i, 62464 * p + k] for k in axes(62464))       p in axes(16)
         total_rest[i] = sum(x[i, 999424 + k] for k in axes(576))
         total_joined[i] = sum(total_part[p, i] for p in axes(16))
         total[i] = total_joined[i] + total_rest[i]
         y[i] = sqrt(total[i])

The number of parts depends on the shape and on the number of threads for which the kernel is
compiled, but not on the assignment of parts to threads, so a sum is rounded in the same way in
every run.
"""

from __future__ import annotations

import dataclasses

from farrier.ir import expr as e
from farrier.ir.dim import Extent, typical
from farrier.ir.expr import Axis, Binary, Buffer, Expr, Load, MemoryScope, Reduce, Var
from farrier.ir.substitute import Substitution, loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.space.operations import count_points, reads_of
from farrier.space.rewrites import accumulate, written_out

# The axis that counts parts.
_PART = "part"


def split_reductions(
    program: TensorProgram, parts: int, step: int
) -> tuple[TensorProgram, ...] | None:
    """Return the sequence of programs that compute `program` with each of its reductions divided
    into `parts` parts, whose lengths are multiples of `step`. Return None if no reduction is long
    enough. Programs may read the outputs of earlier ones; the last one computes the output of the
    whole."""
    plain = _inlined(program)
    programs: list[TensorProgram] = []
    for stage in plain.stages:
        axis = _longest(stage, parts * step)
        if axis is None:
            programs.append(_program(program, (stage,)))
        else:
            programs += (_program(program, stages) for stages in _split(stage, axis, parts, step))
    return tuple(map(accumulate, programs)) if len(programs) > len(plain.stages) else None


def _inlined(program: TensorProgram) -> TensorProgram:
    """Return the program with elementwise stages inlined that are read at one place and evaluated
    there at most once for each element."""
    stages = list(program.stages)
    for stage in program.stages[:-1]:
        readers = [s for s in stages if reads_of(stage.buffer.name, [s])]
        if isinstance(stage.body, Reduce) or reads_of(stage.buffer.name, stages) != 1:
            continue
        (reader,) = readers
        if count_points(reader.all_axes) > count_points(stage.all_axes):
            continue
        stages.remove(stage)
        stages[stages.index(reader)] = written_out(stage, reader)
    return dataclasses.replace(program, stages=tuple(stages))


def _longest(stage: Stage, least: int) -> Axis | None:
    """Return the axis along which to divide a reduction: its longest axis, if that has at least
    `least` terms; else None."""
    if not isinstance(stage.body, Reduce):
        return None
    axis = max(stage.body.axes, key=lambda axis: typical(axis.extent))
    return axis if typical(axis.extent) >= least else None


def _split(stage: Stage, axis: Axis, parts: int, step: int) -> tuple[tuple[Stage, ...], ...]:
    """Return the stages that replace the reduction `stage` when its axis `axis` is divided into
    `parts` parts, in two groups. The stage of the first group computes the parts. The stages of the
    second group combine the results, and compute the terms that are left over."""
    body, name = stage.body, stage.buffer.name
    assert isinstance(body, Reduce)
    length = axis.extent // (parts * step) * step
    rest = axis.extent - parts * length
    at = tuple(Var(own.name) for own in stage.axes)

    def reduced(extent: Extent, start: Expr) -> Reduce:
        moved = Substitution({axis.name: e.add(start, Var(axis.name))})
        axes = (Axis(axis.name, extent) if own is axis else own for own in body.axes)
        return Reduce(body.op, tuple(axes), moved.expr(body.body))

    own_shape = stage.buffer.shape
    partial = _local(f"{name}_part", (parts, *own_shape), stage)
    joined = _local(f"{name}_joined", own_shape, stage)
    first = Stage(
        partial, (Axis(_PART, parts), *stage.axes), reduced(length, e.mul(Var(_PART), length))
    )
    sums = Reduce(body.op, (Axis(_PART, parts),), Load(partial, (Var(_PART), *at)))
    join = Stage(joined, stage.axes, sums)
    if rest == 0:
        return (first,), (join, Stage(stage.buffer, stage.axes, Load(joined, at)))
    left = _local(f"{name}_rest", own_shape, stage)
    remaining = Stage(left, stage.axes, reduced(rest, e.index(parts * length)))
    total = Binary(body.op.binary, Load(joined, at), Load(left, at))
    return (first,), (join, remaining, Stage(stage.buffer, stage.axes, total))


def _local(name: str, shape: tuple[Extent, ...], stage: Stage) -> Buffer:
    return Buffer(name, stage.buffer.dtype, shape, None, MemoryScope.WORKSPACE)


def _program(whole: TensorProgram, stages: tuple[Stage, ...]) -> TensorProgram:
    """Return a program with the given stages of `whole`. Its inputs are the buffers that these
    stages read but do not write."""
    inputs = {load.buffer.name: load.buffer for load in loads(stages[0].body)}
    return TensorProgram(
        whole.name, tuple(inputs.values()), stages, (stages[-1].buffer,), whole.dims
    )


def joined(whole: TensorProgram, programs: tuple[TensorProgram, ...]) -> TensorProgram:
    """Return a single program with the stages of all `programs`, in order; it computes the outputs
    of `whole`."""
    stages = tuple(stage for program in programs for stage in program.stages)
    return dataclasses.replace(whole, stages=stages)
