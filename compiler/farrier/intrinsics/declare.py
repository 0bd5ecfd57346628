"""How a tensor intrinsic is declared: what it means, and the code that does it.

The meaning is a loop function over tiles, output first. `tensorize` matches a loop nest against it
and puts a call in its place; `expand` puts the loops back, so that a call can be run and checked
anywhere. An accelerator is added by declaring what it can do, in a file of its own.

A tile is a scalar; a vector of elements that lie next to each other in memory, along the innermost
dimension of its buffer's layout; or rows: a tile of two axes, each row a run of neighbours, all
one distance apart. The layout of a declared tile says what a row holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from farrier.ir import expr as e
from farrier.ir.addresses import flatten
from farrier.ir.affine import Linear, Simplifier
from farrier.ir.dim import Extent, number
from farrier.ir.expr import Buffer, Expr, Load, Var
from farrier.ir.instr import Operand, Operation, Type
from farrier.ir.loop import For, Function, Intrinsic, Stmt, Tile
from farrier.ir.substitute import Indices, Substitution, variables
from farrier.ir.types import Layout
from farrier.ir.walk import walk

# An operand, or (type, value) as LLVM writes the type; the value may then be an integer as text, or
# "zeroinitializer".
Argument: TypeAlias = Operand | tuple[str, Operand | str]


class Writer(Protocol):
    """What an emitter writes to: the function that code generation is making."""

    def call(self, name: str, result: Type | str, *arguments: Argument, flags: str = "") -> Operand:
        """Call the LLVM intrinsic `name` and return its result."""
        ...

    def effect(self, name: str, result: Type | str, *arguments: Argument) -> Operand:
        """As `call`, for one that is not the same wherever it stands."""
        ...

    def assembly(self, text: str, constraints: str, result: Type) -> Operand:
        """Write a line of assembly without operands, of which LLVM knows the constraints alone."""
        ...

    def op(self, operation: Operation, left: Operand, right: Operand) -> Operand:
        """Return the arithmetic of two operands of one type."""
        ...

    def icmp(self, order: str, left: Operand, right: Operand) -> Operand:
        """Return the comparison of integers in an order such as "slt"."""
        ...

    def choose(self, condition: Operand, then: Operand, otherwise: Operand) -> Operand:
        """Return `then` where the condition holds, lane by lane."""
        ...

    def convert(self, operation: Operation, x: Operand, to: Type) -> Operand:
        """Return `x` as another type."""
        ...

    def bitcast(self, x: Operand, to: Type) -> Operand:
        """Return the bits of `x` as another type."""
        ...

    def extract(self, x: Operand, lane: int) -> Operand:
        """Return one lane."""
        ...

    def insert(self, x: Operand, element: Operand, lane: int) -> Operand:
        """Return a vector with another lane."""
        ...

    def shuffle(self, x: Operand, other: Operand | None, order: Sequence[int]) -> Operand:
        """Return lanes of two vectors, or of one, in an order."""
        ...

    def part(self, x: Operand, number: int) -> Operand:
        """Return a part of an array."""
        ...

    def with_part(self, x: Operand, part: Operand, number: int) -> Operand:
        """Return an array with another part."""
        ...

    def offset(self, pointer: Operand, nbytes: Operand | int) -> Operand:
        """Return the address some bytes behind a pointer."""
        ...

    def load(
        self, type_: Type, pointer: Operand, alignment: int, *, is_constant: bool = False
    ) -> Operand:
        """Return what lies at an address now, or always if it is a constant of the module."""
        ...

    def store(self, value: Operand, pointer: Operand, alignment: int | None) -> None:
        """Write a value to memory."""
        ...


# (writer, operand values) -> the output's new value. Operands stand in the order of the parameters,
# as operands; a scalar tile comes with its value in every lane of the widest vector.
Emit: TypeAlias = Callable[[Writer, Sequence[Operand]], Operand]


@dataclasses.dataclass(frozen=True, slots=True)
class RowRegisters:
    """Registers that hold a tile of rows each. `load` and `store` take its count of rows, the bytes
    of one, the address of the first and the bytes from each to the next."""

    type: Type
    load: Callable[[Writer, int, int, Operand, Operand], Operand]
    store: Callable[[Writer, int, int, Operand, Operand, Operand], None]  # the value last


@dataclasses.dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """`semantics.params` are the operand tiles: the output, which may also be read, and the inputs.
    Those of an intrinsic on tiles of rows are all of two axes."""

    name: str
    semantics: Function
    features: frozenset[str]  # what the target must have, as `Target.features` or its level's name
    emit: Emit
    rows: RowRegisters | None = None  # where tiles of rows are held; None: there are none

    @property
    def reads_output(self) -> bool:
        output = self.semantics.params[0].name
        nodes = walk(self.semantics.body)
        return any(isinstance(node, Load) and node.buffer.name == output for node in nodes)

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
        return _beyond(operands[tile.name], indices)

    names = [stmt.var for stmt in _loops(semantics.body)]
    return Substitution(
        {name: Var(prefix + name) for name in names},
        {name: operand.buffer for name, operand in operands.items()},
        {name: prefix + name for name in names},
        place,
    ).stmt(semantics.body)


def physical_shape(declared: Buffer) -> tuple[int, ...]:
    """The extents of a declared tile as it lies in memory."""
    layout = declared.layout or Layout.plain(len(declared.shape))
    return tuple(map(number, layout.physical_shape(declared.shape)))


def place(tile: Tile, declared: Buffer, simplifier: Simplifier) -> tuple[Linear, Extent] | None:
    """Where a tile of rows begins in its buffer, and how far its rows lie apart, in bytes; None
    where its rows are no runs of neighbours as declared, or lie at uneven distances."""
    layout = declared.layout or Layout.plain(len(declared.shape))
    extents = physical_shape(declared)
    # No loop can have these names.
    names = [f"row!{at}!{extent}" for at, extent in enumerate(extents)]
    indices: list[Expr] = [e.index(0)] * len(declared.shape)
    for name, dim in zip(names, layout.dims, strict=True):
        indices[dim.axis] = e.add(indices[dim.axis], e.mul(Var(name), dim.div))
    ranges = {**simplifier.ranges, **dict(zip(names, extents, strict=True))}
    within = Simplifier(ranges, simplifier.facts, simplifier.sums)
    size = tile.buffer.dtype.nbytes
    form = flatten(tile.buffer, _beyond(tile, tuple(indices)), within, size)
    steps = [form.terms.get(Var(name), 0) for name in names]
    step = size
    for found, extent in zip(reversed(steps[1:]), reversed(extents[1:]), strict=True):
        if found != step:
            return None
        step *= extent
    own = {Var(name) for name in names}
    rest = {atom: factor for atom, factor in form.terms.items() if atom not in own}
    if any(variables(atom) & set(names) for atom in rest):
        return None
    return Linear(rest, form.const), steps[0]


def _beyond(tile: Tile, indices: Indices) -> Indices:
    """The indices in its buffer of an element of a tile."""
    at = list(tile.origin)
    steps = tile.steps or (1,) * len(tile.axes)
    for axis, index, step in zip(tile.axes, indices, steps, strict=True):
        at[axis] = e.add(at[axis], e.mul(index, step))
    return tuple(at)


def _loops(stmt: Stmt) -> list[For]:
    found = []
    while isinstance(stmt, For):
        found.append(stmt)
        stmt = stmt.body
    return found
