"""The loop grammar: how a kernel computes.

    function = Function(name, [buffer] params, stmt, [symbol] dims, [size] sizes)
    size     = NamedSize(name, extent)               what a kernel computes from its dims
    stmt     = Block([stmt])
             | For(var, extent, kind, stmt)          var runs over [0, extent)
             | Alloc(buffer, stmt)                   buffer exists within stmt, undefined at first
             | Store(buffer, [expr], expr)
             | If(expr, stmt, stmt?)
             | While(expr, stmt)                     tested before each iteration
             | Prefetch(buffer, [expr], level)       a hint: the cache line at that element
             | Intrinsic(name, [operand])            a declared tensor intrinsic, on tiles
    operand  = Tile(buffer, [expr] origin, [axis], [step])
    kind     = serial | parallel | vectorized | unrolled | dot | group

Variables are unique within a function. A parallel loop's iterations run in any order on any thread.
A vectorized loop is innermost, or holds only straight-line stores, and its iterations run in
lockstep; a store whose index does not depend on its variable, combined with its own old value by
add, mul, min or max, is a horizontal reduction. A dot loop is innermost, within a vectorized one,
and holds one store that adds a product to its element: the target may add up all of them at once. A
group loop is innermost, within a vectorized one, and holds one store: iterations that store
neighbours may do so at once.
A While stands in no vectorized loop.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias

from farrier.ir.dim import Extent, Symbol, bounds, substitute, typical
from farrier.ir.expr import Buffer, Expr


class LoopKind(enum.StrEnum):
    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    DOT = "dot"
    GROUP = "group"


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    statements: tuple[Stmt, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class For:
    var: str
    extent: Extent
    kind: LoopKind
    body: Stmt


@dataclasses.dataclass(frozen=True, slots=True)
class Alloc:
    buffer: Buffer
    body: Stmt


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclasses.dataclass(frozen=True, slots=True)
class If:
    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class While:
    condition: Expr
    body: Stmt


@dataclasses.dataclass(frozen=True, slots=True)
class Prefetch:
    """Fetches the cache line of `buffer[indices]` into cache `level` (1, 2 or 3); never faults."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 2


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
class Intrinsic:
    """A call of the tensor intrinsic `name` (see `farrier.intrinsics`): output tile first."""

    name: str
    operands: tuple[Tile, ...]


Stmt: TypeAlias = Block | For | Alloc | Store | If | While | Prefetch | Intrinsic


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
    where there are `dims`, holds the values of these as i64."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    dims: tuple[Symbol, ...] = ()
    sizes: tuple[NamedSize, ...] = ()

    def over_dims(self, extent: Extent) -> Extent:
        """An extent of the body with what named sizes stand for."""
        return substitute(extent, {size.symbol: size.extent for size in self.sizes})
