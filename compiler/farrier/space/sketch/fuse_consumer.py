"""Derivation: compute a sum where its only reader needs it.

before:  for i, j:  sum[i, j] = 0;  for k: sum[i, j] += a[i, k] * b[k, j]
         for i, j:  y[i, j] = max(sum[i, j] + r[i, j], 0)
after:   for tile of y:
             sum[tile] = 0;  for k: sum[tile] += …
             for point of the tile:  y[point] = max(sum[point] + r[point], 0)

A sum that is an output, or is read otherwise, is copied by a reader made for it.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.expr import Reduce, Var
from farrier.ir.substitute import loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.space.rewrites import accumulate
from farrier.space.sketch.nest import Nest


def fuse_consumers(program: TensorProgram) -> tuple[TensorProgram, tuple[Nest, ...]]:
    """Return the program in which one stage without reduction reads each sum, and its nests."""
    for stage in program.stages:
        if isinstance(stage.body, Reduce) and _consumer(stage, program) is None:
            program = accumulate(program, program.stages.index(stage))
    sums: dict[str, list[Stage]] = {}
    for stage in program.stages:
        if isinstance(stage.body, Reduce):
            consumer = _consumer(stage, program)
            assert consumer is not None  # A copy reads each sum that has no other consumer.
            sums.setdefault(consumer.buffer.name, []).append(stage)
    nests = tuple(
        Nest(stage, tuple(sums.get(stage.buffer.name, ())))
        for stage in program.stages
        if not isinstance(stage.body, Reduce)
    )
    return _beside_consumers(program, nests), nests


def _beside_consumers(program: TensorProgram, nests: tuple[Nest, ...]) -> TensorProgram:
    """Return the program with each sum right before the stage that reads it."""
    stages = tuple(stage for nest in nests for stage in (*nest.sums, nest.stage))
    return dataclasses.replace(program, stages=stages)


def _consumer(total: Stage, program: TensorProgram) -> Stage | None:
    """Return the only stage that reads a sum, if it does so at its own point alone."""
    name = total.buffer.name
    readers = [s for s in program.stages if any(r.buffer.name == name for r in loads(s.body))]
    if any(buffer.name == name for buffer in program.outputs) or len(readers) != 1:
        return None
    (reader,) = readers
    point = tuple(Var(axis.name) for axis in reader.axes)
    is_own = all(r.indices == point for r in loads(reader.body) if r.buffer.name == name)
    if isinstance(reader.body, Reduce) or not is_own or reader.buffer.shape != total.buffer.shape:
        return None
    return reader
