"""The schedule primitive `tile_product`: compute a matrix product on a GPU in tiles that blocks of
threads share.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, MemoryScope, Var, dtype_of
from farrier.ir.loop import Alloc, For, Function, LoopKind, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Substitution, loads
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.schedule.tiling_parts import (
    ZERO,
    digits,
    product_of,
    simplified,
    under,
    unrolled,
    within,
)

_Pair: TypeAlias = tuple[int, int]


def tile_product(
    function: Function, total: str, reader: str, threads: _Pair, each: _Pair, depth: int
) -> Function:
    """Compute a matrix product as a GPU launch. Each block computes one tile of rows and columns.
    The threads of the block copy slices of both factors to workgroup memory, and each thread
    computes `each` elements (rows, columns) of the tile.

    before:
        @function
        def product(x: f32[4, 6], w: f32[6, 5], y: f32[4, 5]):
            for y_init_m in serial(4):
                for y_init_n in serial(5):
                    y[y_init_m, y_init_n] = 0.0
            for y_m in serial(4):
                for y_n in serial(5):
                    for y_k in serial(6):
                        y[y_m, y_n] = y[y_m, y_n] + x[y_m, y_k] * w[y_k, y_n]
    after tile_product("y", "y", (2, 4), (2, 1), 2):
        @function
        def product(x: f32[4, 6], w: f32[6, 5], y: f32[4, 5]):
            for y_by in block(1):
                for y_bx in block(2):
                    with alloc(f32[2, 4, 2, 1] in register) as y_sums:
                        for y_ty0 in thread(2):
                            for y_tx0 in thread(4):
                                for y_ey1 in unrolled(2):
                                    for y_ex1 in unrolled(1):
                                        y_sums[y_ty0, y_tx0, y_ey1, 0] = 0.0
                        for y_ko in serial(3):
                            with alloc(f32[2, 5] in workgroup) as y_rows:
                                with alloc(f32[2, 4] in workgroup) as y_columns:
                                    for y_ty2 in thread(2):
                                        for y_tx2 in thread(4):
                                            for y_turn0 in serial(1):
                                                y_rows[y_tx2 % 2, y_ty2 * 2 + y_tx2 // 2] = \
x[y_ty2 * 2 + y_tx2 // 2, y_ko * 2 + y_tx2 % 2]
                                    for y_ty3 in thread(2):
                                        for y_tx3 in thread(4):
                                            for y_turn1 in serial(1):
                                                if y_bx * 4 + y_tx3 < 5:
                                                    y_columns[y_ty3, y_tx3] = w[y_ko * 2 + y_ty3, \
y_bx * 4 + y_tx3]
                                                else:
                                                    y_columns[y_ty3, y_tx3] = 0.0
                                    for y_ty4 in thread(2):
                                        for y_tx4 in thread(4):
                                            with alloc(f32[2] in register) as y_row:
                                                with alloc(f32[1] in register) as y_column:
                                                    for y_ki in serial(2):
                                                        for y_erow in unrolled(2):
                                                            y_row[y_erow] = y_rows[y_ki, y_erow * \
2 + y_ty4]
                                                        for y_ecolumn in unrolled(1):
                                                            y_column[0] = y_columns[y_ki, y_tx4]
                                                        for y_ey5 in unrolled(2):
                                                            for y_ex5 in unrolled(1):
                                                                y_sums[y_ty4, y_tx4, y_ey5, 0] = \
y_sums[y_ty4, y_tx4, y_ey5, 0] + y_row[y_ey5] * y_column[0]
                        for y_ty6 in thread(2):
                            for y_tx6 in thread(4):
                                for y_ey7 in unrolled(2):
                                    for y_ex7 in unrolled(1):
                                        if y_bx * 4 + y_tx6 < 5:
                                            y[y_ey7 * 2 + y_ty6, y_bx * 4 + y_tx6] = \
y_sums[y_ty6, y_tx6, y_ey7, 0]

    An axis of `total` on which only one of the two factors depends is a row axis or a column axis:
    the columns are the axes of the factor that has the innermost axis. There may be several axes of
    either kind: a convolution is a product whose operand is gathered as it is copied. Axes on which
    both factors depend (a batch) become block loops. At most one nest may read `total`, element by
    element: its values are computed and stored as soon as the sums are complete. `reader` is the
    buffer that this nest writes; without such a nest, it is `total` itself. A factor whose elements
    are each needed by one thread only is read directly from its buffer.
    """
    nest = NestView(function, "tile_product")
    product = Product.of(nest, total, reader)
    if min(*threads, *each, depth) < 1:
        nest.fail(f"{threads} threads for {total}, {each} elements each, {depth} terms at once")
    launch = TileLaunch(product, threads, each, depth).launch()
    return product.replaced(function, launch)


class TileLaunch:
    """The builder of the launch of `tile_product`."""

    def __init__(self, product: Product, threads: _Pair, each: _Pair, depth: int) -> None:
        self._product = product
        self._threads, self._each, self._depth = threads, each, depth
        self._size = threads[0] * each[0], threads[1] * each[1]
        self._name = product.total.name
        self._numbers = itertools.count()
        self._k = product_of(extent for _, extent in product.sums)
        self._sides = product.rows, product.columns
        self._sums = Buffer(
            f"{self._name}_sums",
            product.total.dtype,
            (*threads, *each),
            None,
            MemoryScope.REGISTER,
        )
        self._staged = tuple(self._staging(side) for side in (0, 1))

    def _var(self, name: str) -> Var:
        return Var(f"{self._name}_{name}")

    def _staging(self, side: int) -> Buffer | None:
        """Return the workgroup buffer for the slice of a factor, or None if each element is read by
        only one thread; `side` is 0 for rows, 1 for columns."""
        if self._threads[1 - side] == 1:
            return None
        # Neighbouring threads that store neighbouring terms are a row apart: an element more keeps
        # them out of each other's banks.
        width = self._size[side] + (1 if self._terms_are_neighbours(side) else 0)
        dtype = dtype_of(self._sides[side].value)
        name = f"{self._name}_{('rows', 'columns')[side]}"
        return Buffer(name, dtype, (self._depth, width), None, MemoryScope.WORKGROUP)

    def _terms_are_neighbours(self, side: int) -> bool:
        """Check whether consecutive terms of the sum, rather than rows or columns, are contiguous
        in the memory of a factor."""
        sums = [name for name, extent in self._product.sums if extent != 1]
        if not sums:
            return False
        read = next(iter(loads(self._sides[side].value)), None)
        if read is None or not read.indices:
            return False
        neighbours = read.buffer.element_layout.dims[-1].axis
        last = Simplifier({}).linear(read.indices[neighbours])
        return last.terms.get(Var(sums[-1])) == 1

    def launch(self) -> Stmt:
        """Return the launch: block loops over batch and tiles around the phases of a tile."""
        body = self.phases()
        for side, name in ((1, "bx"), (0, "by")):
            body = For(self._var(name).name, self.tiles(side), LoopKind.BLOCK, body)
        for name, extent in reversed(self._product.batch):
            body = For(f"{name}_b", extent, LoopKind.BLOCK, body)
        return simplified(body)

    def tiles(self, side: int) -> Extent:
        """Return the number of tiles along the rows (side 0) or the columns (side 1)."""
        return ceildiv(self._sides[side].extent, self._size[side])

    def phases(self) -> Stmt:
        """Return the phases of a tile: clear the sums, add all products, store the results."""
        first = self._phase(lambda point: self._each_element(lambda at: self._zero(point, at)))
        turns = self._turns()
        last = self._phase(lambda point: self._each_element(lambda at: self._store(point, at)))
        return Alloc(self._sums, block([first, turns, last]))

    def _turns(self) -> Stmt:
        """Return the loop over slices of the sum: copy the slices of both factors, then multiply
        them."""
        copies = [self._copy(side) for side in (0, 1) if self._staged[side] is not None]
        body: Stmt = block([*copies, self._phase(self._multiply)])
        for buffer in reversed(self._staged):
            body = body if buffer is None else Alloc(buffer, body)
        turns = ceildiv(self._k, self._depth)
        return For(self._var("ko").name, turns, LoopKind.SERIAL, body)

    def _phase(self, body: Callable[[tuple[Expr, Expr]], Stmt]) -> Stmt:
        number = next(self._numbers)
        rows, columns = self._var(f"ty{number}"), self._var(f"tx{number}")
        inner = For(columns.name, self._threads[1], LoopKind.THREAD, body((rows, columns)))
        return For(rows.name, self._threads[0], LoopKind.THREAD, inner)

    def _each_element(self, body: Callable[[tuple[Expr, Expr]], Stmt]) -> Stmt:
        """Return the unrolled loops of a thread over the elements that it computes."""
        number = next(self._numbers)
        rows, columns = self._var(f"ey{number}"), self._var(f"ex{number}")
        axes = (rows.name, self._each[0]), (columns.name, self._each[1])
        return unrolled(axes, lambda row, column: body((row, column)))

    def _zero(self, point: tuple[Expr, Expr], at: tuple[Expr, Expr]) -> Stmt:
        dtype = self._sums.dtype
        return Store(self._sums, (*point, *at), e.ReduceOp.SUM.identity(dtype))

    def _store(self, point: tuple[Expr, Expr], at: tuple[Expr, Expr]) -> Stmt:
        """Return the statement that stores one element of the result. Guards prevent a store beyond
        the edges of the result."""
        product = self._product
        values: dict[str, Expr] = {name: Var(f"{name}_b") for name, _ in product.batch}
        conditions = []
        for side in (0, 1):
            local = e.add(e.mul(at[side], self._threads[side]), point[side])
            number = e.add(e.mul(self._block_of(side), self._size[side]), local)
            values |= digits(number, self._sides[side].axes)
            conditions += within(number, self._sides[side].extent, self._size[side])
        return under(conditions, product.stored(values, Load(self._sums, (*point, *at))))

    def _block_of(self, side: int) -> Expr:
        return self._var(("by", "bx")[side])

    def _copy(self, side: int) -> Stmt:
        """Return the phase that copies a slice of a factor to workgroup memory."""
        staged = self._staged[side]
        assert staged is not None
        size, threads = self._size[side], math.prod(self._threads)
        count = size * self._depth

        def body(point: tuple[Expr, Expr]) -> Stmt:
            turn = self._var(f"turn{side}")
            thread = e.add(e.mul(point[0], self._threads[1]), point[1])
            number = e.add(e.mul(turn, threads), thread)
            if self._terms_are_neighbours(side):
                at = e.floordiv(number, self._depth)
                term = e.mod(number, self._depth)
            else:
                term, at = e.floordiv(number, size), e.mod(number, size)
            fill = self._fill(side, Store(staged, (term, at), ZERO), term, at)
            fill = under(within(number, count, threads), fill)
            return For(turn.name, -(-count // threads), LoopKind.SERIAL, fill)

        return self._phase(body)

    def _fill(self, side: int, store: Store, term: Expr, at: Expr) -> Stmt:
        """Return the statement that copies one element of a factor to workgroup memory: the element
        at term `term` of the current slice, in row or column `at` of this block's tile. Beyond the
        extents of the product it stores 0."""
        factor = self._sides[side]
        number = e.add(e.mul(self._block_of(side), self._size[side]), at)
        k = e.add(e.mul(self._var("ko"), self._depth), term)
        values: dict[str, Expr] = {name: Var(f"{name}_b") for name, _ in self._product.batch}
        values |= digits(number, factor.axes) | digits(k, self._product.sums)
        fill: Stmt = dataclasses.replace(store, value=Substitution(values).expr(factor.value))
        conditions = within(number, factor.extent, self._size[side])
        conditions += within(k, self._k, self._depth)
        zero = e.ReduceOp.SUM.identity(store.buffer.dtype)
        return under(conditions, fill, dataclasses.replace(store, value=zero))

    def _multiply(self, point: tuple[Expr, Expr]) -> Stmt:
        """Return the loops in which a thread adds the products of a slice to its sums."""
        term = self._var("ki")
        own = []
        statements: list[Stmt] = []
        for side, name in enumerate(("row", "column")):
            dtype, each = dtype_of(self._sides[side].value), self._each[side]
            own.append(Buffer(f"{self._name}_{name}", dtype, (each,), None, MemoryScope.REGISTER))
            number = self._var(f"e{name}")
            at = e.add(e.mul(number, self._threads[side]), point[side])
            staged = self._staged[side]
            if staged is None:
                load = self._fill(side, Store(own[side], (number,), ZERO), term, at)
            else:
                load = Store(own[side], (number,), Load(staged, (term, at)))
            statements.append(For(number.name, each, LoopKind.UNROLLED, load))
        statements.append(self._each_element(lambda at: self._add(own, (*point, *at))))
        body: Stmt = For(term.name, self._depth, LoopKind.SERIAL, block(statements))
        for buffer in reversed(own):
            body = Alloc(buffer, body)
        return body

    def _add(self, own: Sequence[Buffer], at: tuple[Expr, Expr, Expr, Expr]) -> Stmt:
        factors = [Load(buffer, (index,)) for buffer, index in zip(own, at[2:], strict=True)]
        term = Binary(BinaryOp.MUL, factors[0], factors[1])
        return Store(self._sums, at, Binary(BinaryOp.ADD, Load(self._sums, at), term))
