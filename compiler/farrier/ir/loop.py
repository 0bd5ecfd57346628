"""The loop grammar: how a kernel computes.

    function = Function(name, [buffer] params, stmt, [symbol] dims, [size] sizes,
                        [symbol] choices)
    size     = NamedSize(name, extent)               what a kernel computes from its dims
    stmt     = Block([stmt])
             | For(var, extent, kind, stmt)          var runs over [0, extent)
             | Alloc(buffer, stmt)                   buffer exists within stmt, undefined at first
             | Store(buffer, [expr], expr)
             | If(expr, stmt, stmt?)
             | While(expr, stmt)                     tested before each iteration
             | Prefetch(buffer, [expr], level)       a hint: the cache line at that element
             | Intrinsic(name, [operand], is_late)   a declared tensor intrinsic, on tiles
             | Barrier(scope, copies?)               the threads of a block wait for each other
    operand  = Tile(buffer, [expr] origin, [axis], [step])
    kind     = serial | independent | parallel | vectorized | unrolled | dot | group
             | block | thread | subgroup

Variables are unique within a function. The iterations of an independent loop may run in any order,
which nobody has decided yet; those of a parallel loop run in any order on any thread.
A vectorized loop is innermost, or holds only straight-line stores, and its iterations run in
lockstep; a store whose index does not depend on its variable, combined with its own old value by
add, mul, min or max, is a horizontal reduction. A dot loop is innermost, within a vectorized one,
and holds one store that adds a product to its element: the target may add up all of them at once. A
group loop is innermost, within a vectorized one, and holds one store: iterations that store
neighbours may do so at once.
A While stands in no vectorized loop.

A device whose threads come in blocks, as those of a GPU do, runs a nest of block loops as a launch:
blocks run in any order and never wait for each other. Within them stands one of two forms. In the
form of *phases* a nest of thread loops is a phase: the threads of the block share its iterations,
in any order, and all are done where it ends. A nest of subgroup loops is a phase as well, whose
iterations the subgroups of the block share: 32 threads each, which run its intrinsics together.
Schedules work on this form. The *lowered* form has one nest of thread loops, and a Barrier where a
phase may touch what an earlier one wrote.
`ir/threads.py` states the rules of both.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import ClassVar, TypeAlias

from farrier.ir.dim import Extent, Symbol, bounds, substitute, typical
from farrier.ir.expr import Buffer, Expr, MemoryScope


class LoopKind(enum.StrEnum):
    SERIAL = "serial"
    INDEPENDENT = "independent"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    DOT = "dot"
    GROUP = "group"
    BLOCK = "block"
    THREAD = "thread"
    SUBGROUP = "subgroup"


class Effect(enum.Enum):
    """The action of a statement itself, without those below it, on memory.

    NONE decides which statements below run, and how often. HINT is seen by a cache alone: it may
    move, be repeated or be left out. STORE loads what its expressions name, then writes one
    element. CALL reads and writes anywhere in its tiles. No access moves across a BARRIER.
    """

    NONE = "none"
    HINT = "hint"
    STORE = "store"
    CALL = "call"
    BARRIER = "barrier"


class Statement:
    """The base of all statements, with the declarations that each makes besides its fields.

    Code that moves, repeats or drops statements asks for these, and not for classes, so that a
    class that joins is never taken for harmless.
    """

    __slots__ = ()

    effect: ClassVar[Effect]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "effect" not in vars(cls):
            raise TypeError(f"the statement {cls.__name__} declares no effect")

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that the statement itself writes."""
        return ()

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that the statement itself reads; its expressions load others."""
        return ()

    @property
    def hints(self) -> tuple[Buffer, ...]:
        """The buffers that the statement itself names, and neither reads nor writes."""
        return ()


@dataclasses.dataclass(frozen=True, slots=True)
class Block(Statement):
    effect = Effect.NONE

    statements: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class For(Statement):
    effect = Effect.NONE

    var: str
    extent: Extent
    kind: LoopKind
    body: Stmt


@dataclasses.dataclass(frozen=True, slots=True)
class Alloc(Statement):
    effect = Effect.NONE

    buffer: Buffer
    body: Stmt


@dataclasses.dataclass(frozen=True, slots=True)
class Store(Statement):
    effect = Effect.STORE

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return (self.buffer,)


@dataclasses.dataclass(frozen=True, slots=True)
class If(Statement):
    effect = Effect.NONE

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class While(Statement):
    effect = Effect.NONE

    condition: Expr
    body: Stmt


@dataclasses.dataclass(frozen=True, slots=True)
class Prefetch(Statement):
    """Fetch the cache line of `buffer[indices]` into cache `level` (1, 2 or 3); never faults."""

    effect = Effect.HINT

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 2

    @property
    def hints(self) -> tuple[Buffer, ...]:
        return (self.buffer,)


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """The part of a buffer that an intrinsic works on: it starts at the logical index `origin` and
    runs along the logical axes `axes`, in the order of the declared tile's; along none it is one
    element. Its elements lie `steps` apart along each; () where they are neighbours along all."""

    buffer: Buffer
    origin: tuple[Expr, ...]
    axes: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Intrinsic(Statement):
    """A call of the tensor intrinsic `name` (see `farrier.intrinsics`): output tile first. The call
    only begins if it `is_late`: a barrier that waits for copies completes it."""

    effect = Effect.CALL

    name: str
    operands: tuple[Tile, ...]
    is_late: bool = False

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return (self.operands[0].buffer,)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """All tiles: the output may be read as well."""
        return tuple(tile.buffer for tile in self.operands)


@dataclasses.dataclass(frozen=True, slots=True)
class Barrier(Statement):
    """Wait until all threads of the block have come here. Each then sees what the others stored to
    workgroup buffers, and with the scope `param` to the arguments as well.

    With `copies` each thread first
    makes a group of the copies that it has begun since the last such barrier, and waits until that
    many groups are under way at most, the latest. Only such barriers stand between phases. With the
    scope `local` a thread does that for itself, and waits for no other. With the scope `subgroup`
    the threads of a subgroup wait for each other, and see no more than before."""

    effect = Effect.BARRIER

    scope: MemoryScope
    copies: int | None = None


Stmt: TypeAlias = Block | For | Alloc | Store | If | While | Prefetch | Intrinsic | Barrier


@dataclasses.dataclass(frozen=True, slots=True)
class NamedSize:
    """A size that a kernel computes where it begins. In the body it is a symbol, of which nothing
    is known but its range: arithmetic on it stays short."""

    name: str
    extent: Extent  # over the dims

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.name, *bounds(self.extent), typical(self.extent))


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """One kernel. `params` are its arguments in the order of the C ABI, outputs last; one more,
    where there are `dims`, holds the values of these as i64. `choices` are sizes that a schedule
    sets: the result is the same for all their values."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    dims: tuple[Symbol, ...] = ()
    sizes: tuple[NamedSize, ...] = ()
    choices: tuple[Symbol, ...] = ()

    def over_dims(self, extent: Extent) -> Extent:
        """An extent of the body with what named sizes stand for."""
        return substitute(extent, {size.symbol: size.extent for size in self.sizes})
