"""Random functions of a few loop nests, small enough to be run and rich enough to break schedules.

    t = f(x)            one to three stages, elementwise or sums, each in a buffer of its own, that
    u = g(t, x)         read what was made before at tiles, windows, strides, joint and reversed
    y = h(u, t)         axes, some of them under conditions
    z = z shifted       and nests whose iterations depend on their order, or that overwrite inputs

Every access is in bounds, and every element is written before it is read. The loops of the nests of
a buffer `b` are `b_…`, and `b_init_…`, as naive nests have them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from farrier.ir import expr as e
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, Block, Function, If, Stmt, Store
from farrier.ir.types import DType
from farrier.schedule.nest import nested

_F32 = DType.F32
_Loops = list[tuple[str, int]]


@dataclasses.dataclass
class _Walk:
    """Loops, and the place of a buffer that they walk over, under conditions."""

    loops: _Loops
    indices: tuple[Expr, ...]
    conditions: list[Expr]

    def nest(self, store: Stmt, inner: _Loops | None = None) -> Stmt:
        for condition in reversed(self.conditions):
            store = If(condition, store)
        return nested([*self.loops, *(inner or [])], store)


class _Writer:
    """The nests of one function, drawn at random."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw
        self.params: list[Buffer] = []

    def number(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))

    def chance(self, of: int) -> bool:
        """Return True for one draw of `of`; where an example is made simpler, False."""
        return self.number(0, of - 1) == of - 1

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def shape(self) -> tuple[int, ...]:
        return tuple(self.number(1, 6) for _ in range(self.number(1, 2)))

    def param(self, name: str, loops: _Loops) -> Load:
        """A read of a new parameter at forms over the loops, as large as they reach."""
        indices: list[Expr] = []
        shape = []
        for _ in range(self.number(1, 2)):
            place, last = e.index(self.number(0, 1)), 1
            for var, extent in loops:
                step = self.number(0, 2)
                place = e.add(place, e.mul(Var(var), step))
                last += step * (extent - 1)
            indices.append(place)
            shape.append(last + 1)
        buffer = Buffer(name, _F32, tuple(shape))
        self.params.append(buffer)
        return Load(buffer, tuple(indices))

    def walk(self, prefix: str, shape: Sequence[int]) -> _Walk:
        """Loops over a buffer of that shape, in some way that stays within it."""
        actual = _Walk([], (), [])
        axis = 0
        while axis < len(shape):
            name = f"{prefix}_{axis}"
            if axis + 1 < len(shape) and self.chance(4):
                inner = shape[axis + 1]
                actual.loops.append((name, shape[axis] * inner))
                actual.indices += e.floordiv(Var(name), inner), e.mod(Var(name), inner)
                axis += 2
                continue
            actual.indices += (self._along(actual, name, shape[axis]),)
            axis += 1
        if actual.loops and self.chance(5):
            var, extent = self.pick(actual.loops)
            actual.conditions.append(e.less(Var(var), self.number(1, extent)))
        return actual

    def _along(self, actual: _Walk, name: str, extent: int) -> Expr:
        """Add the loops along one axis; return the index."""
        inner, size = f"{name}i", self.number(1, 4)
        match self.pick(["points", "points", "from", "back", "stride", "tiles", "window"]):
            case "from":
                first = self.number(0, extent - 1)
                actual.loops.append((name, extent - first))
                return e.add(Var(name), first)
            case "back":
                actual.loops.append((name, extent))
                return e.sub(extent - 1, Var(name))
            case "stride":
                actual.loops.append((name, -(-extent // 2)))
                return e.mul(Var(name), 2)
            case "tiles":
                actual.loops += [(name, -(-extent // size)), (inner, size)]
                index = e.add(e.mul(Var(name), size), Var(inner))
                if extent % size:
                    actual.conditions.append(e.less(index, extent))
                return index
            case "window":
                size = min(size, extent)
                actual.loops += [(name, extent - size + 1), (inner, size)]
                return e.add(Var(name), Var(inner))
        actual.loops.append((name, extent))
        return Var(name)

    def value(self, read: Load, prefix: str, loops: _Loops) -> Expr:
        """Something computed from an element, and perhaps from one of a parameter more."""
        match self.pick(["next", "twice", "positive", "other", "product"]):
            case "next":
                return Binary(BinaryOp.ADD, read, Const(1.0, _F32))
            case "twice":
                return Binary(BinaryOp.MUL, Const(2.0, _F32), read)
            case "positive":
                return Binary(BinaryOp.MAX, read, Const(0.0, _F32))
            case "other":
                return Binary(BinaryOp.SUB, read, self.param(f"{prefix}x", loops))
        return Binary(BinaryOp.MUL, read, self.param(f"{prefix}x", loops))

    def stage(self, name: str, source: Buffer | None) -> tuple[Buffer, list[Stmt]]:
        """A buffer of its own, and the nests that write all of it from `source`."""
        points = [(f"{name}_{axis}", extent) for axis, extent in enumerate(self.shape())]
        buffer = Buffer(name, _F32, tuple(n for _, n in points), None, MemoryScope.WORKSPACE)
        at = tuple(Var(var) for var, _ in points)
        if not self.chance(3):
            return buffer, [nested(points, Store(buffer, at, self._made_of(source, name, points)))]
        loops = [*points, (f"{name}_k", self.number(1, 4))]
        term = self.value(self.param(f"{name}sum", loops), f"{name}sum", loops)
        start = [(f"{name}_init_{axis}", extent) for axis, (_, extent) in enumerate(points)]
        first = Store(buffer, tuple(Var(var) for var, _ in start), Const(0.0, _F32))
        update = Store(buffer, at, Binary(BinaryOp.ADD, Load(buffer, at), term))
        return buffer, [nested(start, first), nested(loops, update)]

    def _made_of(self, source: Buffer | None, name: str, points: _Loops) -> Expr:
        """A value at the points of a stage: of a parameter, or of where they fall in `source`."""
        if source is None or self.chance(2):
            return self.value(self.param(f"{name}in", points), name, points)
        places = tuple(self._within(points, extent) for extent in source.shape)
        return self.value(Load(source, places), name, points)

    def _within(self, points: _Loops, extent: int) -> Expr:
        """An index below `extent` over some of the points."""
        fitting = [var for var, size in points if size <= extent]
        if fitting and not self.chance(4):
            return Var(self.pick(fitting))
        return e.index(self.number(0, extent - 1))

    def output(self, name: str, source: Buffer) -> list[Stmt]:
        """Nests that read a buffer and write a parameter: at each point, or summed up."""
        walk = self.walk(name, source.shape)
        value = self.value(Load(source, walk.indices), name, walk.loops)
        kept = walk.loops
        summed = bool(kept) and self.chance(3)
        if summed:
            dropped = self.pick(kept)
            kept = [loop for loop in kept if loop is not dropped]
        buffer = Buffer(name, _F32, tuple(extent for _, extent in kept))
        self.params.append(buffer)
        at = tuple(Var(var) for var, _ in kept)
        if not summed:
            store: Stmt = Store(buffer, at, value)
            if self.chance(5):
                twin = Buffer(f"{name}twin", _F32, buffer.shape)
                self.params.append(twin)
                second = Store(twin, at, Binary(BinaryOp.ADD, Load(buffer, at), Const(1.0, _F32)))
                store = Block((store, second))
            return [walk.nest(store)]
        op = self.pick([BinaryOp.ADD, BinaryOp.MAX])
        update = walk.nest(Store(buffer, at, Binary(op, Load(buffer, at), value)))
        if self.chance(2):
            return [update]
        start = [(f"{name}_init_{axis}", extent) for axis, (_, extent) in enumerate(kept)]
        first = Store(buffer, tuple(Var(var) for var, _ in start), Const(0.0, _F32))
        return [nested(start, first), update]

    def shifted(self, name: str) -> Stmt:
        """A nest in whose parameter each element comes from another, one or several times."""
        loops = [(f"{name}_{axis}", self.number(2, 5)) for axis in range(self.number(1, 2))]
        shape = tuple(extent + 1 for _, extent in loops)
        buffer = Buffer(name, _F32, shape)
        self.params.append(buffer)
        there, here = (
            tuple(e.add(Var(var), self.number(0, 1)) for var, _ in loops) for _ in range(2)
        )
        # Each element comes from the row before, at the column after.
        if len(loops) == 2 and self.chance(3):
            (row, _), (column, _) = loops
            there, here = (e.add(Var(row), 1), Var(column)), (Var(row), e.add(Var(column), 1))
        if self.chance(4):  # The last iteration, whichever it is, leaves its mark.
            here = tuple(Var(var) for var, _ in loops)
            there = (*there[:-1], e.index(0))
            value: Expr = self.param(f"{name}x", loops)
        else:
            twice = Binary(BinaryOp.MUL, Const(2.0, _F32), Load(buffer, here))
            value = Binary(BinaryOp.ADD, twice, Const(1.0, _F32))
        store: Stmt = Store(buffer, there, value)
        if self.chance(4):
            twin = Buffer(f"{name}twin", _F32, shape)
            self.params.append(twin)
            read = Binary(BinaryOp.ADD, Load(twin, here), Load(buffer, here))
            store = Block((store, Store(twin, there, read)))
        return nested(loops, store)

    def overwritten(self) -> Stmt:
        """A nest that sets a parameter to zero."""
        buffer = self.pick(self.params)
        loops = [(f"zero_{axis}", extent) for axis, extent in enumerate(buffer.shape)]
        at = tuple(Var(var) for var, _ in loops)
        return nested(loops, Store(buffer, at, Const(0.0, _F32)))


@st.composite
def functions(draw: Callable[[Any], Any]) -> Function:
    """A function as the module's docstring says; its parameters are all given."""
    writer = _Writer(draw)
    stages: list[Buffer] = []
    nests: list[Stmt] = []
    for name in ("t", "u")[: writer.number(1, 2)]:
        buffer, statements = writer.stage(name, stages[-1] if stages else None)
        stages.append(buffer)
        nests += statements
    if writer.chance(6):
        nests.append(writer.overwritten())
    nests += writer.output("y", stages[-1])
    if writer.chance(3):
        nests += writer.output("v", writer.pick(stages))
    if writer.chance(3):
        nests.append(writer.shifted("z"))
    body: Stmt = Block(tuple(nests))
    for buffer in reversed(stages):
        body = Alloc(buffer, body)
    return Function("nests", tuple(writer.params), body)


@st.composite
def shifts(draw: Callable[[Any], Any]) -> Function:
    """One nest whose iterations may depend on each other."""
    writer = _Writer(draw)
    nest = writer.shifted("z")
    return Function("shifts", tuple(writer.params), nest)


@st.composite
def sums_of_products(draw: Callable[[Any], Any]) -> Function:
    """One nest that adds up products of two parameters' elements into one element a point, perhaps
    under a condition, in some order of its loops."""
    writer = _Writer(draw)
    points = [(f"y_{axis}", extent) for axis, extent in enumerate(writer.shape())]
    loops = [*points, ("y_k", writer.number(1, 4))]
    buffer = Buffer("y", _F32, tuple(extent for _, extent in points))
    at = tuple(Var(var) for var, _ in points)
    product = Binary(BinaryOp.MUL, writer.param("a", loops), writer.param("b", loops))
    store: Stmt = Store(buffer, at, Binary(BinaryOp.ADD, Load(buffer, at), product))
    if writer.chance(3):
        var, extent = writer.pick(loops)
        store = If(e.less(Var(var), writer.number(1, extent)), store)
    order = draw(st.permutations(loops)) if writer.chance(3) else loops
    return Function("products", (*writer.params, buffer), nested(order, store))
