"""The declaration of a tensor intrinsic: its meaning, and the code that performs it.

The meaning is a loop function over tiles, output first. `tensorize` matches a loop nest against it
and puts a call in its place; `expand` puts the loops back, so that a call can be run and checked
anywhere. A new accelerator declares its instructions in a file of its own.

A tile is a scalar; a vector of elements that are neighbours in memory, along the innermost
dimension of its buffer's layout; or rows: a tile of two axes, each row a run of neighbours, at
equal distances. The layout of a declared tile defines the contents of a row.
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
    """The interface that an emitter writes to: the function under construction in code
    generation."""

    def call(self, name: str, result: Type | str, *arguments: Argument, flags: str = "") -> Operand:
        """Call the LLVM intrinsic `name` and return its result."""
        ...

    def effect(self, name: str, result: Type | str, *arguments: Argument) -> Operand:
        """As `call`, for a function with effects, whose calls may not be merged or moved."""
        ...

    def assembly(self, text: str, constraints: str, result: Type) -> Operand:
        """Write a line of assembly without operands; LLVM only knows its constraints."""
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
    """Registers that hold tiles of rows. `load` and `store` take the number of rows, the bytes of
    one, the address of the first and the bytes from each to the next."""

    type: Type
    load: Callable[[Writer, int, int, Operand, Operand], Operand]
    store: Callable[[Writer, int, int, Operand, Operand, Operand], None]  # The value is last.


@dataclasses.dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """An instruction on tiles. `semantics.params` are the operand tiles: the output, which may also
    be read, and the inputs. If one tile has rows, all tiles have two axes."""

    name: str
    semantics: Function
    # Required of the target, as in `Target.features`, or its level's name.
    features: frozenset[str]
    emit: Emit
    rows: RowRegisters | None = None  # The registers that hold tiles of rows; None: there are none.

    @property
    def reads_output(self) -> bool:
        output = self.semantics.params[0].name
        nodes = walk(self.semantics.body)
        return any(isinstance(node, Load) and node.buffer.name == output for node in nodes)

    @property
    def lanes(self) -> int:
        """The elements of the widest tile."""
        return max(
            (number(tile.shape[0]) for tile in self.semantics.params if tile.shape), default=1
        )


def vector_axis(buffer: Buffer) -> int:
    """Return the logical axis along which neighbours in memory lie."""
    return buffer.layout.dims[-1].axis if buffer.layout is not None else len(buffer.shape) - 1


def expand(call: Intrinsic, intrinsic: TensorIntrinsic, prefix: str) -> Stmt:
    """Return the loops that a call stands for; their names begin with `prefix`."""
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
    """Return the extents of a declared tile in the order of memory."""
    layout = declared.layout or Layout.plain(len(declared.shape))
    return tuple(map(number, layout.physical_shape(declared.shape)))


def place(tile: Tile, declared: Buffer, simplifier: Simplifier) -> tuple[Linear, Extent] | None:
    """Return the offset of a tile of rows in its buffer, and the distance of its rows, in bytes;
    None if its rows are not runs of neighbours as declared, or have uneven distances."""
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
    for between, extent in zip(reversed(steps[1:]), reversed(extents[1:]), strict=True):
        if between != step:
            return None
        step *= extent
    own = {Var(name) for name in names}
    rest = {atom: factor for atom, factor in form.terms.items() if atom not in own}
    if any(variables(atom) & set(names) for atom in rest):
        return None
    return Linear(rest, form.const), steps[0]


def _beyond(tile: Tile, indices: Indices) -> Indices:
    """Return the indices in its buffer of an element of a tile."""
    at = list(tile.origin)
    steps = tile.steps or (1,) * len(tile.axes)
    for axis, index, step in zip(tile.axes, indices, steps, strict=True):
        at[axis] = e.add(at[axis], e.mul(index, step))
    return tuple(at)


def _loops(stmt: Stmt) -> list[For]:
    loops = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return loops
