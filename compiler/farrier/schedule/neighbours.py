"""The places of results of a matrix product that one thread computes: neighbours along its last row
axis and its last column axis."""

from __future__ import annotations

from farrier.ir import expr as e
from farrier.ir.dim import ceildiv
from farrier.ir.expr import Expr, Var
from farrier.ir.loop import Stmt
from farrier.ir.substitute import variables
from farrier.schedule.product import Product
from farrier.schedule.tiling_parts import Axes, under, within


class Neighbours:
    """The results of a product in groups of `each[0]` neighbours along the last row axis by
    `each[1]` along the last column axis."""

    def __init__(self, product: Product, each: tuple[int, int]) -> None:
        self._product, self._each = product, each
        self._sides = product.rows, product.columns

    def points(self) -> Axes:
        """Return the axes whose points are the groups, in the order of the result. The last row
        axis and the last column axis are divided by `each`."""
        places = _places(self._product)
        points = [(name, (name, extent)) for name, extent in self._product.batch]
        for side in (0, 1):
            *outer, (name, extent) = self._sides[side].axes or ((self._unit_axis(side), 1),)
            points += [(axis[0], axis) for axis in outer]
            points.append((name, (_group(name), ceildiv(extent, self._each[side]))))
        # An axis that the result lacks has one element.
        points.sort(key=lambda point: places.get(point[0], -1))
        return tuple(axis for _, axis in points)

    def _unit_axis(self, side: int) -> str:
        """Return the name of an additional axis of extent 1, for a factor without row axes (`side`
        0) or without column axes (`side` 1)."""
        return f"{self._product.total.name}_{('row', 'column')[side]}_axis"

    def place(self, side: int, number: Expr) -> tuple[dict[str, Expr], list[Expr]]:
        """Return the position of neighbour `number` of a group along the last row axis (`side` 0)
        or column axis (`side` 1): its index, as a mapping from the name of the axis, and the guard
        that this index is within the axis. The list of guards is empty if every index is."""
        axes, each = self._sides[side].axes, self._each[side]
        if not axes:
            return {}, [] if each == 1 else [e.less(number, 1)]
        name, extent = axes[-1]
        at = e.add(e.mul(Var(_group(name)), each), number)
        return {name: at}, within(at, extent, each)

    def store(self, at: tuple[Expr, Expr], total: Expr) -> Stmt:
        """Return the statement that stores the result of the neighbours `at`, whose sum is `total`,
        guarded against positions beyond the axes."""
        values: dict[str, Expr] = {name: Var(name) for name in _axes(self._product)}
        conditions = []
        for side in (0, 1):
            places, inside = self.place(side, at[side])
            values |= places
            conditions += inside
        return under(conditions, self._product.stored(values, total))


def _group(axis: str) -> str:
    return f"{axis}_neighbours"


def _places(product: Product) -> dict[str, int]:
    """Return a mapping from the name of each axis of a product to the position of that axis in the
    result. If an axis of the result was split into several axes, all of them have its position."""
    return {
        name: at
        for at, loop in enumerate(product.points.values())
        for name in variables(product.joined.get(loop, Var(loop)))
    }


def _axes(product: Product) -> list[str]:
    """Return the names of the axes of a result."""
    every = (*product.batch, *product.rows.axes, *product.columns.axes)
    return [name for name, _ in every]
