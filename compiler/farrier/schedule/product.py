"""The matrix product that loop nests compute: its factors, its axes, and what reads its sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Load, Var
from farrier.ir.loop import Function, Stmt, Store
from farrier.ir.substitute import Substitution, loads, variables
from farrier.ir.walk import walk
from farrier.schedule.accesses import touches, writes
from farrier.schedule.launching import with_launch
from farrier.schedule.nest import NestView, loops, outermost_block
from farrier.schedule.tiling_parts import ZERO, Axes, is_nest, only_store, product_of


@dataclasses.dataclass(frozen=True)
class Factor:
    """One factor of a product: its value in terms of the loops of the sum, and the axes of the
    result on which only this factor depends."""

    value: Expr
    axes: Axes

    @property
    def extent(self) -> Extent:
        return product_of(extent for _, extent in self.axes)


@dataclasses.dataclass(frozen=True)
class Product:
    """A sum of products. The axes of `columns` include the innermost axis of the result."""

    nests: tuple[Stmt, ...]  # The first values, the sums, and what reads them, in order.
    total: Buffer
    store: Store  # It reads the total, or stores it.
    points: Mapping[str, str]  # The loop of the sum for each loop of the store.
    batch: Axes
    rows: Factor
    columns: Factor
    sums: Axes
    joined: Mapping[str, Expr]  # The value of each loop of the sum that has an axis of groups.

    @classmethod
    def of(cls, nest: NestView, total: str, reader: str) -> Product:
        first, update = _sums_of(nest, total)
        store = only_store(update)
        points = [name.name for name in store.indices if isinstance(name, Var)]
        extents = {loop.var: loop.extent for loop in loops(update)}
        value = store.value
        if len(set(points)) != len(store.indices) or not isinstance(value, Binary):
            nest.fail(f"{total} is not summed at its own loops")
        term = value.right
        if not isinstance(term, Binary) or term.op is not BinaryOp.MUL:
            nest.fail(f"{total} is no sum of products")
        loops_of_points = [(name, extents[name]) for name in points]
        axes, joined = _with_groups(loops_of_points, term)
        term = _regrouped(term, axes, joined)
        left, right = variables(term.left), variables(term.right)
        alone = [tuple(a for a in axes if a[0] in left - right)]
        alone.append(tuple(a for a in axes if a[0] in right - left))
        batch = tuple(axis for axis in axes if axis not in (*alone[0], *alone[1]))
        sums = tuple((name, n) for name, n in extents.items() if name not in points)
        factors = [Factor(term.left, alone[0]), Factor(term.right, alone[1])]
        place = {name: at for at, (name, extent) in enumerate(axes) if extent != 1}
        factors.sort(key=lambda factor: max((place.get(a, -1) for a, _ in factor.axes), default=-1))
        rows, columns = factors
        if reader == total:
            named = dict(zip(points, points, strict=True))
            written = dataclasses.replace(store, value=Load(store.buffer, store.indices))
            nests: tuple[Stmt, ...] = (first, update)
        else:
            reading, written, named = _reader_of(nest, total, reader, loops_of_points)
            nests = (first, update, reading)
        return cls(nests, store.buffer, written, named, batch, rows, columns, sums, joined)

    def with_loops(self, values: Mapping[str, Expr]) -> dict[str, Expr]:
        """Return `values`, the value of each axis, extended by the value of each loop that was
        split into several axes."""
        change = Substitution(dict(values))
        return {**values, **{name: change.expr(value) for name, value in self.joined.items()}}

    def stored(self, values: Mapping[str, Expr], total: Expr) -> Store:
        """Return the store of the element at `values`, the value of each axis, whose sum is
        `total`."""
        at = self.with_loops(values)
        of_loops = {
            name: at[self.points[name]] if name in self.points else ZERO
            for name in variables_of(self.store)
        }
        change = Substitution(of_loops, reads={self.total.name: lambda _: total})
        indices = tuple(map(change.expr, self.store.indices))
        return Store(self.store.buffer, indices, change.expr(self.store.value))

    def replaced(self, function: Function, launch: Stmt) -> Function:
        """Return the function with a launch in place of the nests of the product."""
        total = self.total.name
        gone = {total} if self.store.buffer.name != total else set[str]()
        return with_launch(function, self.nests, launch, gone)


def variables_of(store: Store) -> set[str]:
    return variables(store.value).union(*map(variables, store.indices))


def _with_groups(
    axes: Sequence[tuple[str, Extent]], term: Binary
) -> tuple[list[tuple[str, Extent]], dict[str, Expr]]:
    """Split each axis that one factor indexes only by a quotient (as in grouped attention) into an
    axis of groups and an axis of members. Return the new axes, and the value of each split axis in
    terms of its two parts."""
    split: list[tuple[str, Extent]] = []
    joined: dict[str, Expr] = {}
    for name, extent in axes:
        sizes = [_group_size(side, name, extent) for side in (term.left, term.right)]
        size = max(sizes)
        if size > 1 and min(sizes) == 1:
            groups, inner = f"{name}_group", f"{name}_member"
            split += [(groups, extent // size), (inner, size)]
            joined[name] = e.add(e.mul(Var(groups), size), Var(inner))
        else:
            split.append((name, extent))
    return split, joined


def _group_size(value: Expr, name: str, extent: Extent) -> int:
    """Return how many consecutive values of `name` leave `value` unchanged: 1 if each may change
    it, 0 if `value` does not depend on `name` at all."""
    if name not in variables(value):
        return 0
    sizes = {
        part.right.value
        for part in walk(value)
        if isinstance(part, Binary)
        and part.op is BinaryOp.DIV
        and part.left == Var(name)
        and isinstance(part.right, Const)
    }
    uses = sum(part == Var(name) for part in walk(value))
    quotients = sum(
        isinstance(part, Binary) and part.op is BinaryOp.DIV and part.left == Var(name)
        for part in walk(value)
    )
    size = sizes.pop() if len(sizes) == 1 and uses == quotients else 1
    divides = isinstance(size, int) and isinstance(extent, int) and extent % size == 0
    return int(size) if divides else 1


def _regrouped(
    term: Binary, axes: Sequence[tuple[str, Extent]], joined: Mapping[str, Expr]
) -> Binary:
    """Return the product of two factors in terms of `axes`: each axis that was split is replaced by
    its value in `joined`, and the factors are simplified."""
    if not joined:
        return term
    simplify = Simplifier(dict(axes)).simplify
    change = Substitution(dict(joined))
    sides = (simplify(change.expr(side)) for side in (term.left, term.right))
    return Binary(BinaryOp.MUL, *sides)


def _sums_of(nest: NestView, total: str) -> tuple[Stmt, Stmt]:
    """Return the nest that clears buffer `total`, and the nest that accumulates into it."""
    nests = [stmt for stmt in outermost_block(nest.function.body) if total in writes(stmt)]
    if len(nests) != 2 or not all(is_nest(stmt) for stmt in nests):
        nest.fail(f"{total} is not written by a nest of zeros and one of sums")
    first, update = nests
    zero, store = only_store(first), only_store(update)
    own = Load(store.buffer, store.indices)
    is_sum = isinstance(store.value, Binary) and store.value.op is BinaryOp.ADD
    if zero.value != Const(type(_value(zero))(0), store.buffer.dtype) or not is_sum:
        nest.fail(f"{total} is no sum from zero on")
    if not isinstance(store.value, Binary) or store.value.left != own:
        nest.fail(f"{total} is no sum from zero on")
    return first, update


def _value(store: Store) -> float | int:
    return store.value.value if isinstance(store.value, Const) else 1


def _reader_of(
    nest: NestView, total: str, reader: str, axes: Sequence[tuple[str, Extent]]
) -> tuple[Stmt, Store, dict[str, str]]:
    """Return three values for the nest that reads the sums `total`: the nest itself, its store, and
    a mapping from each of its loops to the corresponding loop of the sum."""
    statements = outermost_block(nest.function.body)
    reading = [stmt for stmt in statements if touches(stmt, total) and total not in writes(stmt)]
    if nest.param(total) or len(reading) != 1 or reader not in writes(reading[0]):
        nest.fail(f"{reader} is not the only buffer that is computed of {total}")
    if not is_nest(reading[0]):
        nest.fail(f"{reader} is not computed by a nest of loops around one store")
    store = only_store(reading[0])
    places = {read.indices for read in loads(store.value) if read.buffer.name == total}
    if len(places) != 1:
        nest.fail(f"{reader} reads {total} at {len(places)} places")
    extents = {loop.var: loop.extent for loop in loops(reading[0])}
    named: dict[str, str] = {}
    for index, (axis, extent) in zip(places.pop(), axes, strict=True):
        if isinstance(index, Var) and index.name not in named and extents[index.name] == extent:
            named[index.name] = axis
        elif extent != 1:
            nest.fail(f"{reader} does not read {total} point by point")
    if any(extent != 1 for name, extent in extents.items() if name not in named):
        nest.fail(f"{reader} reads an element of {total} several times")
    return reading[0], store, named
