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
             | Barrier(scope, copies?, publishes)    the threads of a block wait for each other
    operand  = Tile(buffer, [expr] origin, [axis], [step])
    kind     = serial | independent | parallel | vectorized | unrolled | dot | group
             | block | thread | subgroup | warpgroup | pipelined

Variables are unique within a function. Loops of different kinds run as follows.

The iterations of an independent loop may run in any order, but the schedule has not chosen an order
yet; those of a parallel loop run in any order on any thread. A vectorized loop is innermost, or
contains only straight-line stores, and its iterations run in lockstep. A store in it is a
horizontal reduction if its index does not depend on the loop's variable and it combines the
element's old value with a new one by add, mul, min or max. A dot loop is innermost, within a
vectorized loop, and contains one store that adds a product to its element: the target may sum all
products at once. A group loop is innermost, within a vectorized loop, and contains one store: the
target may store neighbouring elements at once. Hardware may begin an iteration of a pipelined loop
before the previous iteration has ended, as long as the results do not change; all loops within it
are unrolled. A While is never within a vectorized loop.

On a device that runs threads in blocks, such as a GPU, a nest of block loops is a launch: its
blocks run in any order and never wait for each other. The body of the block loops has one of two
forms.

In the form of *phases*, on which schedules work, each nest of thread loops is a phase. The threads
of the block share its iterations, in any order, and all iterations have ended before the next phase
begins. A nest of subgroup loops is a phase as well: its iterations are shared by the subgroups of
the block, which consist of 32 threads each and execute intrinsics together. A nest of warpgroup
loops is a phase of warpgroups in the same way, which consist of four subgroups each.

The *lowered* form has a single nest of thread loops, with a Barrier wherever a phase may access
memory that an earlier phase has written. `ir/threads.py` states the rules of both forms.
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
    WARPGROUP = "warpgroup"
    PIPELINED = "pipelined"


class Effect(enum.Enum):
    """The effect on memory that a statement has itself, apart from the statements nested in it.

    NONE: it only decides which nested statements run, and how often. HINT: it affects only caches,
    so it may be moved, repeated or omitted. STORE: it reads the elements that its expressions load,
    then writes one element. CALL: it may read and write any elements of its tiles. BARRIER: no
    access may be moved across it.
    """

    NONE = "none"
    HINT = "hint"
    STORE = "store"
    CALL = "call"
    BARRIER = "barrier"


class Statement:
    """The base class of statements, with the declarations that each class must make about its
    effect.

    Code that moves, repeats or drops statements checks these declarations rather than classes, so
    that a new class is never treated as free of effects by default.
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
        """The buffers that the statement itself reads, other than by Loads in its expressions."""
        return ()

    @property
    def hints(self) -> tuple[Buffer, ...]:
        """The buffers that the statement itself refers to without reading or writing them, as a
        prefetch does."""
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
    """The elements of a buffer on which an intrinsic works.

    A tile starts at the logical index `origin` and runs along the logical axes `axes`, in the order
    of the axes of the intrinsic's declared tile; without axes it is one element. Along each axis
    its elements are `steps` apart; () stands for steps of 1 along all axes.
    """

    buffer: Buffer
    origin: tuple[Expr, ...]
    axes: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Intrinsic(Statement):
    """A call of the tensor intrinsic `name` (see `farrier.intrinsics`), with the output tile first.
    If `is_late`, the call only starts an asynchronous copy or an asynchronous product of a
    warpgroup, which a later barrier with `copies` completes."""

    effect = Effect.CALL

    name: str
    operands: tuple[Tile, ...]
    is_late: bool = False

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return (self.operands[0].buffer,)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers of all tiles, including the output, which an intrinsic may read as well."""
        return tuple(tile.buffer for tile in self.operands)


@dataclasses.dataclass(frozen=True, slots=True)
class Barrier(Statement):
    """Wait until all threads of the block have arrived. Afterwards, each thread sees the values
    that other threads have stored to workgroup buffers. With the scope `param`, it also sees their
    stores to the kernel's arguments.

    With `copies`, each thread first closes the group of asynchronous copies that it has started
    since the last such barrier. It then waits until at most the latest `copies` groups are
    unfinished. Only barriers with `copies` may be placed between phases.

    With the scope `local`, a thread waits only for its own copies, not for other threads. With the
    scope `subgroup`, the threads of a subgroup wait for each other, and no stores become visible.

    A barrier with the scope `warpgroup` orders asynchronous products. Without `copies`, earlier
    accesses of the warpgroup to its fragments precede its later products, for which that is
    necessary. With `copies`, the warpgroup closes the group of products that it has started, and
    waits until at most the latest `copies` groups are unfinished: only then may others access their
    fragments and overwrite their factors.

    If `publishes`, asynchronous products after the barrier see what the threads stored to workgroup
    buffers, and what they copied by copies that have completed. No other barrier has that effect.
    """

    effect = Effect.BARRIER

    scope: MemoryScope
    copies: int | None = None
    publishes: bool = False


Stmt: TypeAlias = Block | For | Alloc | Store | If | While | Prefetch | Intrinsic | Barrier


@dataclasses.dataclass(frozen=True, slots=True)
class NamedSize:
    """A size that a kernel computes once, at its start. In the body it is a symbol with a known
    range, so that expressions that contain the size stay short."""

    name: str
    extent: Extent  # In terms of the dims.

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.name, *bounds(self.extent), typical(self.extent))


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """One kernel.

    `params` are its arguments in the order of the C ABI, outputs last; if there are `dims`, one
    more argument points to their values as i64. `choices` are sizes that a schedule sets: the
    result is the same for all their values.
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    dims: tuple[Symbol, ...] = ()
    sizes: tuple[NamedSize, ...] = ()
    choices: tuple[Symbol, ...] = ()

    def over_dims(self, extent: Extent) -> Extent:
        """Return an extent of the body in terms of the dims alone, with named sizes replaced by
        their definitions."""
        return substitute(extent, {size.symbol: size.extent for size in self.sizes})
