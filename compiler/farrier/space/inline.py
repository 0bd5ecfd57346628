"""Inline stages: compute a stage where its result is read.

before:  t[i, j] = x[i, j] * s[j]
         y[i] = sum(t[i, k] for k in axes(64))
after:   y[i] = sum(x[i, k] * s[k] for k in axes(64))

The stage is computed as often as its result is read, so an expensive stage is inlined only if the
number of reads does not exceed the number of its elements.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import typical
from farrier.ir.expr import Reduce
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.walk import walk
from farrier.space.operations import count_points, operations, reads_of
from farrier.space.rewrites import written_out

_CHEAP = 4  # Operations that take about as long as to store their result and to load it again.
_AGAIN = 4  # The most times that cheap operations are repeated to save a store.
_LARGEST = 128  # Nodes of an expression: a chain that is read twice each doubles at every stage.


def inline(program: TensorProgram) -> TensorProgram:
    """Return the program with each stage inlined that is cheaper to compute where it is read."""
    outputs = {buffer.name for buffer in program.outputs}
    stages = list(program.stages)
    for at in range(len(stages) - 1, -1, -1):
        stage, readers = stages[at], stages[at + 1 :]
        if stage.buffer.name in outputs or not _is_worth_it(stage, readers):
            continue
        stages[at:] = [written_out(stage, reader) for reader in readers]
    return dataclasses.replace(program, stages=tuple(stages))


def _is_worth_it(stage: Stage, readers: list[Stage]) -> bool:
    if isinstance(stage.body, Reduce):
        return False
    reads = {s.buffer.name: reads_of(stage.buffer.name, [s]) for s in readers}
    size = sum(1 for _ in walk(stage.body))
    largest = max(
        (sum(1 for _ in walk(s.body)) + reads[s.buffer.name] * size for s in readers), default=0
    )
    if largest > _LARGEST and size > 1:
        return False
    own = operations([stage])
    if own <= 1:  # The stage only moves elements.
        return True
    evaluations = sum(
        reads[s.buffer.name] * count_points(s.all_axes) for s in readers if reads[s.buffer.name]
    )
    elements = max(typical(stage.buffer.type.size), 1)
    return evaluations <= elements * (_AGAIN if own <= _CHEAP else 1)
