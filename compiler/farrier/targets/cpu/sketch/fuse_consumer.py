"""Derivation: compute a sum where its only reader needs it.

before:  for i, j:  sum[i, j] = 0;  for k: sum[i, j] += a[i, k] * b[k, j]
         for i, j:  y[i, j] = max(sum[i, j] + r[i, j], 0)
after:   for tile of y:
             sum[tile] = 0;  for k: sum[tile] += …
             for point of the tile:  y[point] = max(sum[point] + r[point], 0)

A sum that is an output, or is read otherwise, is copied by a reader made for it. Sums that read
one another at their own points may share a tile, so that a row which no cache holds is read once:
the extreme of a row and its position, say.

before:  for i, k:  best[i] = max(best[i], x[i, k])
         for i, k:  at[i] = min(at[i], k if x[i, k] == best[i] else 100)
after:   for tile of at:
             best[tile] = -inf;  for k: best[tile] = max(best[tile], …)
             at[tile] = 100;  for k: at[tile] = min(at[tile], …)

So a reduction that carries an index needs no form of its own. The extreme and the position are two
reductions, and maxima and minima may be combined in any order: the position is the least (or the
greatest) index of all that tie, and how NaN compares is part of the summands. Lanes and threads
divide both as they divide a sum, and the tile reads its row again from the nearest cache.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.expr import Reduce, Var
from farrier.ir.substitute import loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.space.rewrites import accumulate
from farrier.targets.cpu.sketch.nest import Nest


def fuse_consumers(
    program: TensorProgram, *, chains: bool = False
) -> tuple[TensorProgram, tuple[Nest, ...]]:
    """Return the program in which one stage without reduction reads each sum, and its nests; with
    `chains`, a sum that another sum reads at its own point is in the nest of that one."""
    for stage in program.stages:
        if isinstance(stage.body, Reduce) and _consumer(stage, program, chains) is None:
            program = accumulate(program, program.stages.index(stage))
    sums: dict[str, list[Stage]] = {}
    for stage in program.stages:
        if isinstance(stage.body, Reduce):
            consumer: Stage | None = stage
            while consumer is not None and isinstance(consumer.body, Reduce):
                consumer = _consumer(consumer, program, chains)
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


def _consumer(total: Stage, program: TensorProgram, chains: bool) -> Stage | None:
    """Return the only stage that reads a sum, if it does so at its own point alone."""
    name = total.buffer.name
    readers = [s for s in program.stages if any(r.buffer.name == name for r in loads(s.body))]
    if any(buffer.name == name for buffer in program.outputs) or len(readers) != 1:
        return None
    (reader,) = readers
    point = tuple(Var(axis.name) for axis in reader.axes)
    is_own = all(r.indices == point for r in loads(reader.body) if r.buffer.name == name)
    if not is_own or reader.buffer.shape != total.buffer.shape:
        return None
    if isinstance(reader.body, Reduce) and not chains:
        return None
    return reader
