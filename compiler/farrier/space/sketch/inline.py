"""Derivation: compute a stage where it is read.

before:  t[i, j] = x[i, j] * s[j]
         y[i] = sum(t[i, k] for k in axes(64))
after:   y[i] = sum(x[i, k] * s[k] for k in axes(64))

The stage is computed as often as it is read, so a costly one is inlined only if it is not read more
often than it has elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from farrier.ir.dim import typical
from farrier.ir.expr import Expr, Reduce
from farrier.ir.substitute import Indices, Substitution
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.walk import walk
from farrier.space.operations import operations, reads_of
from farrier.space.sketch.nest import reduced_axes

_CHEAP = 4  # Operations that take about as long as to store their result and to load it again.
_AGAIN = 4  # Times that cheap operations may be done over, in the place of one store.
_LARGEST = 128  # Nodes of an expression: a chain that is read twice each doubles at every stage.


def inline(program: TensorProgram) -> TensorProgram:
    """Return the program without the stages that are better computed where they are read."""
    outputs = {buffer.name for buffer in program.outputs}
    stages = list(program.stages)
    for at in range(len(stages) - 1, -1, -1):
        stage, readers = stages[at], stages[at + 1 :]
        if stage.buffer.name in outputs or not _is_worth_it(stage, readers):
            continue
        change = Substitution(reads={stage.buffer.name: _value(stage)})
        stages[at:] = [dataclasses.replace(s, body=change.expr(s.body)) for s in readers]
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
    if own <= 1:  # It moves an element.
        return True
    evaluations = sum(reads[s.buffer.name] * _points(s) for s in readers if reads[s.buffer.name])
    elements = max(typical(stage.buffer.type.size), 1)
    return evaluations <= elements * (_AGAIN if own <= _CHEAP else 1)


def _points(stage: Stage) -> int:
    points = 1
    for axis in (*stage.axes, *reduced_axes(stage)):
        points *= typical(axis.extent)
    return points


def _value(stage: Stage) -> Callable[[Indices], Expr]:
    def value(indices: Indices) -> Expr:
        point = {axis.name: index for axis, index in zip(stage.axes, indices, strict=True)}
        return Substitution(point).expr(stage.body)

    return value
