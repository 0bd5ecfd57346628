"""Rewrite: compute a sum within the tile of the only stage that reads it.

before:  for i, j:  sum[i, j] = 0;  for k: sum[i, j] += a[i, k] * b[k, j]
         for i, j:  y[i, j] = max(sum[i, j] + r[i, j], 0)
after:   for tile of y:
             sum[tile] = 0;  for k: sum[tile] += …
             for point of the tile:  y[point] = max(sum[point] + r[point], 0)

If a sum is an output, or is read by several stages or at other points, a copy is added as its
reader. Sums that read one another at their own points may share a tile, so that a row too long for
any cache is read only once; for example, the maximum of a row and its position.

before:  for i, k:  best[i] = max(best[i], x[i, k])
         for i, k:  at[i] = min(at[i], k if x[i, k] == best[i] else 100)
after:   for tile of at:
             best[tile] = -inf;  for k: best[tile] = max(best[tile], …)
             at[tile] = 100;  for k: at[tile] = min(at[tile], …)

A reduction that carries an index therefore needs no special form. The extreme and the position are
two reductions, and min and max may be evaluated in any order: the position is the smallest (or
largest) index of all ties, and NaN is handled by the summands. Lanes and threads divide both
reductions as they divide a sum, and the tile reads its row the second time from the nearest cache.
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
    """Return the program rewritten such that each sum is read by a single stage without a
    reduction, and the nests of these stages. With `chains`, a sum that another sum reads at equal
    indices joins the nest of that other sum."""
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
    return _before_consumers(program, nests), nests


def _before_consumers(program: TensorProgram, nests: tuple[Nest, ...]) -> TensorProgram:
    """Return the program with the stages reordered: each sum directly before the stage that reads
    it."""
    stages = tuple(stage for nest in nests for stage in (*nest.sums, nest.stage))
    return dataclasses.replace(program, stages=stages)


def _consumer(total: Stage, program: TensorProgram, chains: bool) -> Stage | None:
    """Return the stage that reads the sum `total`, if it is the only one and each of its elements
    reads the element of the sum with the same indices; else None. If `chains` is false, a stage
    that is itself a reduction is not accepted."""
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
