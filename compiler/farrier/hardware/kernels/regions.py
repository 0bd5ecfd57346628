"""The division of a scheduled loop function into regions: statements that one pipeline executes,
within serial loops.

for i in serial(4):                       Serial i
    for j in serial(3):                       Region of j and k: one pipeline of 24 iterations
        for k in pipelined(8):
            …
    c[i] = …                                  Region without loops: one iteration
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

from farrier.errors import UsageError
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Unary, UnaryOp
from farrier.ir.loop import Alloc, Block, For, Function, If, LoopKind, Stmt, Store
from farrier.ir.substitute import Substitution

_IN_ORDER = (LoopKind.SERIAL, LoopKind.INDEPENDENT, LoopKind.PARALLEL)


@dataclasses.dataclass(frozen=True, slots=True)
class Guarded:
    """A store that takes place only if all `conditions` hold."""

    store: Store
    conditions: tuple[Expr, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Stores that one pipeline executes for each iteration of `loops`, which are listed outermost
    first. `around` are the serial loops around the region, in which it runs repeatedly."""

    loops: tuple[tuple[str, int], ...]
    stores: tuple[Guarded, ...]
    around: tuple[tuple[str, int], ...] = ()

    @property
    def iterations(self) -> int:
        return math.prod(extent for _, extent in self.loops)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Serial:
    """A loop whose iterations run one after another; its body consists of regions and further
    serial loops."""

    var: str
    extent: int
    body: tuple[Item, ...]


Item: TypeAlias = "Region | Serial"


@dataclasses.dataclass(frozen=True, slots=True)
class Regions:
    """A loop function divided into regions. `items` are the regions and the serial loops around
    them, `allocated` the buffers that the function allocates, and `ranges` the extents of all loop
    variables."""

    items: tuple[Item, ...]
    allocated: tuple[Buffer, ...]
    ranges: dict[str, int]

    def every(self) -> list[Region]:
        return _regions(self.items)


def _regions(items: Sequence[Item]) -> list[Region]:
    every = []
    for item in items:
        every += [item] if isinstance(item, Region) else _regions(item.body)
    return every


def regions_of(function: Function) -> Regions:
    """Divide a loop function into regions. Raises UsageError for open (dynamic) sizes, and for
    statements that hardware does not support."""
    if function.dims:
        raise UsageError(
            f"{function.name} has the open size {function.dims[0].name}: hardware has fixed ones"
        )
    expander = _Expander(function)
    items = expander.items(function.body, ())
    return Regions(_placed(items, ()), tuple(expander.allocated.values()), expander.ranges)


def _placed(items: Sequence[Item], around: tuple[tuple[str, int], ...]) -> tuple[Item, ...]:
    """Return the items with the field `around` of each region set to the serial loops around it."""
    return tuple(
        dataclasses.replace(item, around=around)
        if isinstance(item, Region)
        else dataclasses.replace(item, body=_placed(item.body, (*around, (item.var, item.extent))))
        for item in items
    )


class _Expander:
    def __init__(self, function: Function) -> None:
        self._name = function.name
        self.allocated: dict[str, Buffer] = {}
        self.ranges: dict[str, int] = {}

    def items(self, stmt: Stmt, conditions: tuple[Expr, ...]) -> list[Item]:
        """Return the regions and serial loops that `stmt` consists of, in order. Its stores take
        place under `conditions`. Successive stores outside of loops become one region."""
        match stmt:
            case Block(statements):
                items: list[Item] = []
                for each in statements:
                    for item in self.items(each, conditions):
                        _append(items, item)
                return items
            case Alloc(buffer, body):
                self.allocated[buffer.name] = buffer
                return self.items(body, conditions)
            case Store():
                return [Region((), (Guarded(self._simplified(stmt), conditions),))]
            case If(condition, then, otherwise):
                items = self.items(then, (*conditions, condition))
                if otherwise is not None:
                    opposite = Unary(UnaryOp.NOT, condition)
                    for item in self.items(otherwise, (*conditions, opposite)):
                        _append(items, item)
                return items
            case For():
                return self._loop(stmt, conditions)
        raise UsageError(f"{self._name} has a {type(stmt).__name__}, which hardware does not run")

    def _loop(self, loop: For, conditions: tuple[Expr, ...]) -> list[Item]:
        extent, kind = loop.extent, loop.kind
        if not isinstance(extent, int):
            raise UsageError(f"{self._name}: the loop {loop.var} runs over {extent} iterations")
        if kind is LoopKind.UNROLLED:
            copies = [
                Substitution(variables={loop.var: e.index(n)}).stmt(loop.body)
                for n in range(extent)
            ]
            return self.items(Block(tuple(copies)), conditions) if copies else []
        self.ranges[loop.var] = extent
        items = self.items(loop.body, conditions) if extent else []
        if not items:
            return []
        alone = items[0] if len(items) == 1 and isinstance(items[0], Region) else None
        if kind is LoopKind.PIPELINED:
            if alone is None or alone.loops:
                raise UsageError(f"{self._name}: the pipelined loop {loop.var} holds loops")
            return [Region(((loop.var, extent),), alone.stores)]
        if kind not in _IN_ORDER:
            raise UsageError(
                f"{self._name}: the loop {loop.var} is {kind}, which hardware does not have",
                hint="loops of hardware are serial, unrolled or pipelined",
            )
        if alone is not None and alone.loops:
            return [Region(((loop.var, extent), *alone.loops), alone.stores)]
        return [Serial(loop.var, extent, tuple(items))]

    def _simplified(self, store: Store) -> Store:
        simplifier = Simplifier(self.ranges)
        return Store(store.buffer, tuple(map(simplifier.simplify, store.indices)), store.value)


def _append(items: list[Item], item: Item) -> None:
    """Append an item to `items`. If it and the last item are both regions without loops, merge them
    into one region."""
    last = items[-1] if items else None
    if isinstance(last, Region) and isinstance(item, Region) and not last.loops and not item.loops:
        items[-1] = Region((), (*last.stores, *item.stores))
    else:
        items.append(item)


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """Return the conjunction of the conditions, or None if there are none."""
    whole: Expr | None = None
    for condition in conditions:
        whole = condition if whole is None else Binary(BinaryOp.AND, whole, condition)
    return whole
