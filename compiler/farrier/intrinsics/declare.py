"""How a tensor intrinsic is declared: what it means, and the code that does it.

The meaning is a loop function over tiles, output first. `tensorize` matches a loop nest against it
and puts a call in its place; `expand` puts the loops back, so that a call can be run and checked
anywhere. An accelerator is added by declaring what it can do, in a file of its own.

A tile is a scalar, or a vector of elements that lie next to each other in memory, along the
innermost dimension of its buffer's layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from farrier.ir import expr as e
from farrier.ir.dim import number
from farrier.ir.expr import Buffer, Var
from farrier.ir.loop import For, Function, Intrinsic, Stmt, Tile
from farrier.ir.substitute import Indices, Substitution


class Writer(Protocol):
    """What an emitter writes to: the function that code generation is making."""

    def call(self, name: str, result: str, *arguments: tuple[str, str], flags: str = "") -> str:
        """Calls the LLVM intrinsic `name` on arguments (type, value); gives the result's value."""
        ...

    def pure(self, instruction: str) -> str:
        """The value of an LLVM instruction that depends on its operands alone."""
        ...


# (writer, operand values) -> the output's new value. Operands stand in the order of the parameters,
# as LLVM values; a scalar tile comes with its value in every lane of the widest vector.
Emit: TypeAlias = Callable[[Writer, Sequence[str]], str]


@dataclasses.dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """`semantics.params` are the operand tiles: the output, which is also read, then the inputs."""

    name: str
    semantics: Function
    features: frozenset[str]  # what the target must have, as `Target.features` or its level's name
    emit: Emit

    @property
    def lanes(self) -> int:
        """Elements of the widest tile."""
        return max(
            (number(tile.shape[0]) for tile in self.semantics.params if tile.shape), default=1
        )


def vector_axis(buffer: Buffer) -> int:
    """The logical axis along which neighbours in memory lie."""
    return buffer.layout.dims[-1].axis if buffer.layout is not None else len(buffer.shape) - 1


def expand(call: Intrinsic, intrinsic: TensorIntrinsic, prefix: str) -> Stmt:
    """The loops that a call stands for, their names made new with `prefix`."""
    semantics = intrinsic.semantics
    operands: Mapping[str, Tile] = {
        param.name: tile for param, tile in zip(semantics.params, call.operands, strict=True)
    }

    def place(tile: Buffer, indices: Indices) -> Indices:
        operand = operands[tile.name]
        axis = vector_axis(operand.buffer)
        at = list(operand.origin)
        if indices:
            at[axis] = e.add(at[axis], indices[0])
        return tuple(at)

    names = [stmt.var for stmt in _loops(semantics.body)]
    return Substitution(
        {name: Var(prefix + name) for name in names},
        {name: operand.buffer for name, operand in operands.items()},
        {name: prefix + name for name in names},
        place,
    ).stmt(semantics.body)


def _loops(stmt: Stmt) -> list[For]:
    found = []
    while isinstance(stmt, For):
        found.append(stmt)
        stmt = stmt.body
    return found
