"""The tensor grammar: what a kernel computes, without any order of execution.

    program = TensorProgram(name, [buffer] inputs, [stage], [buffer] outputs, [symbol] dims)
    stage   = Stage(buffer, [axis], expr)        for every point of axes: buffer[axes] = expr

A stage's axes are its buffer's logical axes, in order. Its expression reads inputs and earlier
stages at any index; `Reduce` stands only at the root. Every buffer is written by one stage, each
point once. An operator that is not such an expression (a sort, a scatter) is a loop function from
the start (`farrier.ops.nest`).
"""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import Symbol
from farrier.ir.expr import Axis, Buffer, Expr, Reduce


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    buffer: Buffer
    axes: tuple[Axis, ...]
    body: Expr

    @property
    def reduced_axes(self) -> tuple[Axis, ...]:
        """The axes of the reduction; () for a stage that does not reduce."""
        return self.body.axes if isinstance(self.body, Reduce) else ()

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        """The axes of the result, followed by those of the reduction."""
        return (*self.axes, *self.reduced_axes)


@dataclasses.dataclass(frozen=True, slots=True)
class TensorProgram:
    """One kernel, whose arguments are the inputs in order, then the outputs. `dims` are the symbols
    that occur in its shapes and indices."""

    name: str
    inputs: tuple[Buffer, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[Buffer, ...]
    dims: tuple[Symbol, ...] = ()

    def stage(self, name: str) -> Stage:
        """Return the stage that writes the buffer `name`; raises KeyError."""
        for stage in self.stages:
            if stage.buffer.name == name:
                return stage
        raise KeyError(name)
