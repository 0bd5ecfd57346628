"""The declaration of tensor intrinsics: the semantics of an instruction on tiles, and the emitter
of its code.

The semantics are a loop function over tiles, whose first parameter is the output. `tensorize`
matches a loop nest against the function and replaces the nest by an intrinsic call; `expand`
replaces the call by the loops, so that it can be run and checked on any machine. A new accelerator
declares its instructions in a file of its own.

A tile is a scalar; a vector of elements adjacent in memory, along the innermost dimension of its
buffer's layout; or a tile of rows, with two axes: each row is a run of adjacent elements, and rows
are evenly spaced. The layout of the declared tile defines the order of the elements in a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, number
from farrier.ir.expr import Buffer, Expr, Load, Var
from farrier.ir.instr import Operand, Operation, Type
from farrier.ir.linear import Linear
from farrier.ir.loop import For, Function, Intrinsic, LoopKind, Stmt, Tile
from farrier.ir.substitute import Indices, Substitution, variables
from farrier.ir.types import Layout
from farrier.ir.walk import walk

# An operand, or a pair of type and value in LLVM's spelling; the value is then an integer as text,
# or "zeroinitializer".
Argument: TypeAlias = Operand | tuple[str, Operand | str]


class Writer(Protocol):
    """The interface of the instruction builder that emitters of intrinsics call, with the function
    under construction as its state."""

    def call(self, name: str, result: Type | str, *arguments: Argument, flags: str = "") -> Operand:
        """Emit a call of the LLVM intrinsic `name`, and return its result."""
        ...

    def effect(self, name: str, result: Type | str, *arguments: Argument) -> Operand:
        """Emit a call of a function with side effects, and return its result. The call must not be
        merged with other calls or moved."""
        ...

    def assembly(self, text: str, constraints: str, result: Type) -> Operand:
        """Emit a line of inline assembly without operands. LLVM does not interpret it; only its
        constraints are known to LLVM."""
        ...

    def op(self, operation: Operation, left: Operand, right: Operand) -> Operand:
        """Emit an arithmetic operation on two operands of the same type, and return its result."""
        ...

    def icmp(self, order: str, left: Operand, right: Operand) -> Operand:
        """Emit an integer comparison by an LLVM predicate such as "slt", and return its result."""
        ...

    def choose(self, condition: Operand, then: Operand, otherwise: Operand) -> Operand:
        """Emit a select: `then` in lanes where the condition holds, `otherwise` in the other
        lanes."""
        ...

    def convert(self, operation: Operation, x: Operand, to: Type) -> Operand:
        """Emit a conversion of `x` to another type by an LLVM conversion operation, and return its
        result."""
        ...

    def bitcast(self, x: Operand, to: Type) -> Operand:
        """Return the bits of `x` reinterpreted as another type."""
        ...

    def extract(self, x: Operand, lane: int) -> Operand:
        """Return the element in one lane of a vector."""
        ...

    def insert(self, x: Operand, element: Operand, lane: int) -> Operand:
        """Return a copy of a vector with the element in one lane replaced."""
        ...

    def shuffle(self, x: Operand, other: Operand | None, order: Sequence[int]) -> Operand:
        """Return a vector with lanes of `x` and `other` (or of `x` alone), selected by the lane
        numbers in `order`."""
        ...

    def part(self, x: Operand, number: int) -> Operand:
        """Return the member with this number of an array value."""
        ...

    def with_part(self, x: Operand, part: Operand, number: int) -> Operand:
        """Return a copy of an array value with the member `number` replaced by `part`."""
        ...

    def offset(self, pointer: Operand, nbytes: Operand | int) -> Operand:
        """Return the address `nbytes` bytes after a pointer."""
        ...

    def load(
        self, type_: Type, pointer: Operand, alignment: int, *, is_constant: bool = False
    ) -> Operand:
        """Return the value in memory at an address. `is_constant` is true for a constant of the
        module, which no store changes."""
        ...

    def store(self, value: Operand, pointer: Operand, alignment: int | None) -> None:
        """Emit a store of a value to memory."""
        ...


# (writer, operand values) -> the new value of the output tile. The operand values are in the order
# of the parameters; the value of a scalar tile is repeated in every lane of the widest vector.
Emit: TypeAlias = Callable[[Writer, Sequence[Operand]], Operand]


@dataclasses.dataclass(frozen=True, slots=True)
class RowRegisters:
    """The registers that hold a tile of rows. The functions `load` and `store` move a tile between
    memory and registers. Their parameters are the number of rows, the length of a row in bytes, the
    address of the first row, and the distance from one row to the next in bytes."""

    type: Type
    load: Callable[[Writer, int, int, Operand, Operand], Operand]
    store: Callable[[Writer, int, int, Operand, Operand, Operand], None]  # The value is last.


@dataclasses.dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """An instruction on tiles. The parameters of `semantics` are its operand tiles: the output,
    which the instruction may also read, and the inputs. Either all tiles have two axes and are
    tiles of rows, or none is."""

    name: str
    semantics: Function
    # The features that the target must have, as in `Target.features`, or the name of its level.
    features: frozenset[str]
    emit: Emit
    rows: RowRegisters | None = None  # The registers for tiles of rows; None if no tile has rows.

    @property
    def reads_output(self) -> bool:
        output = self.semantics.params[0].name
        nodes = walk(self.semantics.body)
        return any(isinstance(node, Load) and node.buffer.name == output for node in nodes)

    @property
    def lanes(self) -> int:
        """The number of elements of the widest tile."""
        return max(
            (number(tile.shape[0]) for tile in self.semantics.params if tile.shape), default=1
        )


@dataclasses.dataclass(frozen=True, slots=True)
class NoEmitter:
    """The emitter of an intrinsic that a target renders as a whole, because several threads compute
    it or the device does by itself. It raises CompilerError with the reason `why`."""

    why: str

    def __call__(self, writer: Writer, operands: Sequence[Operand]) -> Operand:
        raise CompilerError(self.why)


def rendered(
    name: str,
    operands: Sequence[Buffer],
    loops: Sequence[tuple[str, int]],
    body: Stmt,
    feature: str,
    why: str,
) -> TensorIntrinsic:
    """Return an intrinsic without an emitter, for the reason `why`. Its semantics are `loops`, the
    outermost first, around `body`, and the target must have `feature`."""
    for variable, extent in reversed(loops):
        body = For(variable, extent, LoopKind.SERIAL, body)
    semantics = Function(name, tuple(operands), body)
    return TensorIntrinsic(name, semantics, frozenset({feature}), NoEmitter(why))


def vector_axis(buffer: Buffer) -> int:
    """Return the logical axis of a buffer along which adjacent elements lie in memory."""
    return buffer.layout.dims[-1].axis if buffer.layout is not None else len(buffer.shape) - 1


def expand(call: Intrinsic, intrinsic: TensorIntrinsic, prefix: str) -> Stmt:
    """Return the loops that are equivalent to an intrinsic call. The names of their variables begin
    with `prefix`."""
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
    """Return the extents of a declared tile, in the order in which its layout stores the
    dimensions."""
    layout = declared.layout or Layout.plain(len(declared.shape))
    return tuple(map(number, layout.physical_shape(declared.shape)))


def place(tile: Tile, declared: Buffer, simplifier: Simplifier) -> tuple[Linear, Extent] | None:
    """Return the offset of a tile of rows from the start of its buffer, and the distance between
    its rows, both in bytes. Return None if its rows are not contiguous in the declared order, or
    are unevenly spaced."""
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
    """Return the indices, in the underlying buffer, of the element of a tile at `indices`."""
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
