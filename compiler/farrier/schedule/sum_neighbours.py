"""The schedule primitive `sum_neighbours`: compute a matrix product on a GPU without workgroup
memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from farrier.ir import expr as e
from farrier.ir.dim import ceildiv
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, MemoryScope, Var, dtype_of
from farrier.ir.loop import Alloc, For, Function, LoopKind, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Substitution
from farrier.ir.types import DType
from farrier.schedule.neighbours import Neighbours
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.schedule.tiling_parts import digits, product_of, simplified, under, unrolled


def sum_neighbours(
    function: Function,
    total: str,
    reader: str,
    threads: int,
    each: tuple[int, int],
    unrolled: int,
) -> Function:
    """Compute a matrix product as a GPU launch whose threads each compute a few neighbouring
    results in registers and read both factors directly from global memory.

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
    after sum_neighbours("y", "y", 8, (1, 2), 0):
        @function
        def product(x: f32[4, 6], w: f32[6, 5], y: f32[4, 5]):
            for y_block in block(2):
                for y_thread in thread(8):
                    if y_block * 8 + y_thread < 12:
                        with alloc(f32[1, 2] in register) as y_sums:
                            for y_ey0 in unrolled(1):
                                for y_ex0 in unrolled(2):
                                    y_sums[0, y_ex0] = 0.0
                            for y_k in serial(6):
                                with alloc(f32[1] in register) as y_row:
                                    with alloc(f32[2] in register) as y_column:
                                        for y_erow in unrolled(1):
                                            y_row[0] = x[(y_block * 8 + y_thread) // 3, y_k]
                                        for y_ecolumn in unrolled(2):
                                            if (y_block * 8 + y_thread) % 3 * 2 + y_ecolumn < 5:
                                                y_column[y_ecolumn] = w[y_k, (y_block * 8 + \
y_thread) % 3 * 2 + y_ecolumn]
                                            else:
                                                y_column[y_ecolumn] = 0.0
                                        for y_ey2 in unrolled(1):
                                            for y_ex2 in unrolled(2):
                                                y_sums[0, y_ex2] = y_sums[0, y_ex2] + y_row[0] * \
y_column[y_ex2]
                            for y_ey1 in unrolled(1):
                                for y_ex1 in unrolled(2):
                                    if (y_block * 8 + y_thread) % 3 * 2 + y_ex1 < 5:
                                        y[(y_block * 8 + y_thread) // 3, (y_block * 8 + y_thread) \
% 3 * 2 + y_ex1] = y_sums[0, y_ex1]

    A thread computes `each[0]` neighbours along the last row axis by `each[1]` along the last
    column axis, where rows and columns are those of `tile_product`. The `unrolled` innermost loops
    of the sum are unrolled, so that an element that several neighbours read is loaded once. A
    convolution with few terms or channels does not profit from workgroup memory: its windows
    overlap in the cache.
    """
    nest = NestView(function, "sum_neighbours")
    product = Product.of(nest, total, reader)
    if min(threads, *each) < 1 or not 0 <= unrolled <= len(product.sums):
        nest.fail(f"{threads} threads for {total}, {each} elements each, {unrolled} loops unrolled")
    launch = _Launch(product, threads, each, unrolled).launch()
    return product.replaced(function, launch)


class _Launch:
    """The builder of the launch of `sum_neighbours`."""

    def __init__(
        self, product: Product, threads: int, each: tuple[int, int], unrolled: int
    ) -> None:
        self._product, self._threads, self._each = product, threads, each
        self._unrolled = unrolled
        self._neighbours = Neighbours(product, each)
        self._name = product.total.name
        self._numbers = itertools.count()
        self._sides = product.rows, product.columns
        self._sums = self._register("sums", product.total.dtype, each)
        self._own = tuple(
            self._register(name, dtype_of(factor.value), (count,))
            for name, factor, count in zip(("row", "column"), self._sides, each, strict=True)
        )

    def _var(self, name: str) -> Var:
        return Var(f"{self._name}_{name}")

    def _register(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return Buffer(f"{self._name}_{name}", dtype, shape, None, MemoryScope.REGISTER)

    def launch(self) -> Stmt:
        """Return the launch: loops over blocks and threads around the statements of a thread."""
        points = self._neighbours.points()
        count = product_of(extent for _, extent in points)
        number = e.add(e.mul(self._var("block"), self._threads), self._var("thread"))
        body = Substitution(digits(number, points)).stmt(self._body())
        if not isinstance(count, int) or count % self._threads:
            body = under([e.less(number, count)], body)
        body = For(self._var("thread").name, self._threads, LoopKind.THREAD, body)
        blocks = ceildiv(count, self._threads)
        return simplified(For(self._var("block").name, blocks, LoopKind.BLOCK, body))

    def _body(self) -> Stmt:
        """Return the statements of a thread: clear the sums, add all terms, store the results."""
        first = self._each_element(lambda at: Store(self._sums, at, self._zero(self._sums)))
        last = self._each_element(self._store)
        return Alloc(self._sums, block([first, self._adding(), last]))

    def _each_element(self, body: Callable[[tuple[Expr, Expr]], Stmt]) -> Stmt:
        number = next(self._numbers)
        rows, columns = self._var(f"ey{number}"), self._var(f"ex{number}")
        axes = (rows.name, self._each[0]), (columns.name, self._each[1])
        return unrolled(axes, lambda row, column: body((row, column)))

    def _zero(self, buffer: Buffer) -> Expr:
        return e.ReduceOp.SUM.identity(buffer.dtype)

    def _adding(self) -> Stmt:
        """Return the loops over the terms of the sum."""
        statements: list[Stmt] = [self._load(side) for side in (0, 1)]
        statements.append(self._each_element(self._add))
        body: Stmt = block(statements)
        for buffer in reversed(self._own):
            body = Alloc(buffer, body)
        sums = self._product.sums
        for at, (name, extent) in reversed(list(enumerate(sums))):
            is_unrolled = at >= len(sums) - self._unrolled and isinstance(extent, int)
            kind = LoopKind.UNROLLED if is_unrolled else LoopKind.SERIAL
            body = For(name, extent, kind, body)
        return body

    def _load(self, side: int) -> Stmt:
        """Return the loop in which a thread loads the elements of a factor for one term of the sum
        into registers. Elements beyond the end of the axis are set to 0."""
        own = self._own[side]

        def load(number: Var) -> Stmt:
            values, conditions = self._neighbours.place(side, number)
            value = Substitution(values).expr(self._sides[side].value)
            zero = Store(own, (number,), self._zero(own))
            return under(conditions, Store(own, (number,), value), zero)

        name = self._var(f"e{('row', 'column')[side]}").name
        return unrolled([(name, self._each[side])], load)

    def _add(self, at: tuple[Expr, Expr]) -> Stmt:
        factors = [Load(buffer, (index,)) for buffer, index in zip(self._own, at, strict=True)]
        term = Binary(BinaryOp.MUL, factors[0], factors[1])
        return Store(self._sums, at, Binary(BinaryOp.ADD, Load(self._sums, at), term))

    def _store(self, at: tuple[Expr, Expr]) -> Stmt:
        return self._neighbours.store(at, Load(self._sums, at))
