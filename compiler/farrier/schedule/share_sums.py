"""The schedule primitive `share_sums`: compute a matrix product of few rows on a GPU, where several
threads share the terms of each sum.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import ceildiv
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, For, Function, LoopKind, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Substitution, variables
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.ir.types import DType
from farrier.schedule.neighbours import Neighbours
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.schedule.tiling_parts import digits, product_of, simplified, under, unrolled

_WORDS = (DType.F32, DType.I32, DType.U32)  # The types of values that threads exchange.


def share_sums(
    function: Function,
    total: str,
    reader: str,
    threads: int,
    groups: int,
    each: tuple[int, int],
    run: int,
    turns: int = 1,
    lanes: int = 1,
) -> Function:
    """Compute a matrix product as a GPU launch: `threads` threads together compute `each[0]`
    neighbours along the last row axis by `each[1]` along the last column axis, each thread for runs
    of `run` neighbouring terms.

    before:
        @function
        def product(x: f32[1, 8], w: f32[8, 4], s: f32[4, 4], y: f32[1, 4]):
            for y_init_m in serial(1):
                for y_init_n in serial(4):
                    y[y_init_m, y_init_n] = 0.0
            for y_m in serial(1):
                for y_n in serial(4):
                    for y_k in serial(8):
                        y[y_m, y_n] = y[y_m, y_n] + x[y_m, y_k] * (w[y_k, y_n] * s[y_k // 2, y_n])
    after share_sums("y", "y", 2, 1, (1, 2), 2):
        @function
        def product(x: f32[1, 8], w: f32[8, 4], s: f32[4, 4], y: f32[1, 4]):
            for y_block in block(2):
                with alloc(f32[1, 2, 1, 2] in workgroup) as y_parts:
                    with alloc(f32[1, 2, 1, 2] in register) as y_sums:
                        for y_group0 in thread(1):
                            for y_t0 in thread(2):
                                for y_ey1 in unrolled(1):
                                    for y_ex2 in unrolled(2):
                                        y_sums[y_group0, y_t0, 0, y_ex2] = 0.0
                                for y_turn3 in serial(2):
                                    for y_ahead4 in unrolled(1):
                                        with alloc(f32[1, 2] in register) as y_row:
                                            for y_ey5 in unrolled(1):
                                                for y_term6 in unrolled(2):
                                                    y_row[0, y_term6] = x[0, y_turn3 * 4 + y_t0 * \
2 + y_term6]
                                            for y_ex7 in unrolled(2):
                                                with alloc(f32[1] in register) as y_part:
                                                    for y_ey10 in unrolled(1):
                                                        y_part[0] = 0.0
                                                    for y_term8 in unrolled(2):
                                                        with alloc(f32[1] in register) as y_column:
                                                            y_column[0] = w[y_turn3 * 4 + y_t0 * 2 \
+ y_term8, y_block * 2 + y_ex7]
                                                            for y_ey9 in unrolled(1):
                                                                y_part[0] = y_part[0] + y_row[0, \
y_term8] * y_column[0]
                                                    with alloc(f32[1] in register) as y_column:
                                                        y_column[0] = s[y_turn3 * 2 + y_t0, \
y_block * 2 + y_ex7]
                                                        for y_ey11 in unrolled(1):
                                                            y_sums[y_group0, y_t0, 0, y_ex7] = \
y_sums[y_group0, y_t0, 0, y_ex7] + y_part[0] * y_column[0]
                        for y_group12 in thread(1):
                            for y_t12 in thread(2):
                                for y_ey13 in unrolled(1):
                                    for y_ex14 in unrolled(2):
                                        y_parts[0, y_t12, 0, y_ex14] = y_sums[y_group12, y_t12, 0, \
y_ex14]
                        for y_group15 in thread(1):
                            for y_t15 in thread(2):
                                for y_turn16 in unrolled(1):
                                    with alloc(f32[1] in register) as y_joined:
                                        y_joined[0] = 0.0
                                        for y_part17 in serial(2):
                                            y_joined[0] = y_joined[0] + y_parts[0, y_part17, 0, \
y_t15]
                                        y[0, y_block * 2 + y_t15] = y_joined[0]

    Each block has `groups` groups of threads. A factor of the columns that is equal for all terms
    of a run is multiplied once with the sum of the run, as a scale of a block of weights. A thread
    computes the terms of `turns` runs without a branch between them, so that their loads are in
    flight together. Up to `lanes` threads combine their sums by a butterfly exchange of registers,
    as in `share_rows`, and the rest through workgroup memory. Nothing else is in workgroup memory:
    a sum of few rows reads its columns once.
    """
    nest = NestView(function, "share_sums")
    product = Product.of(nest, total, reader)
    if min(threads, groups, *each, run, turns) < 1:
        nest.fail(f"{threads} threads in {groups} groups for {total}, {run} terms each")
    if lanes < 1 or lanes & (lanes - 1) or lanes > SUBGROUP_SIZE:
        nest.fail(f"{lanes} threads do not exchange the sums of {total}")
    terms = product_of(extent for _, extent in product.sums)
    if not isinstance(terms, int) or terms % run:
        nest.fail(f"{total} has {terms} terms, not a multiple of {run}")
    launch = _Launch(product, threads, groups, each, (run, terms // run, turns), lanes).launch()
    return product.replaced(function, launch)


class _Launch:
    """The builder of the launch of `share_sums`. `runs` is the length of a run, the number of all
    runs, and the number of runs that a thread sums at once."""

    def __init__(
        self,
        product: Product,
        threads: int,
        groups: int,
        each: tuple[int, int],
        runs: tuple[int, int, int],
        lanes: int,
    ) -> None:
        self._product, self._threads, self._groups = product, threads, groups
        self._each = each
        self._run, self._runs, self._turns = runs
        self._name = product.total.name
        self._numbers = itertools.count()
        self._neighbours = Neighbours(product, each)
        is_whole = groups * threads % SUBGROUP_SIZE == 0 and threads & (threads - 1) == 0
        is_word = product.total.dtype in _WORDS
        self._lanes = min(lanes, threads) if is_whole and is_word else 1
        self._points = self._neighbours.points()
        self._count = product_of(extent for _, extent in self._points)
        self._sums = self._own("sums", groups, threads, *each)
        self._varying, self._scale = self._parted(product.columns.value)

    def _var(self, name: str) -> Var:
        return Var(f"{self._name}_{name}")

    def _own(self, name: str, *shape: int) -> Buffer:
        dtype = self._product.total.dtype
        return Buffer(f"{self._name}_{name}", dtype, shape, None, MemoryScope.REGISTER)

    def _parted(self, value: Expr) -> tuple[Expr, Expr | None]:
        """Return the factor of a column's elements that varies within a run, and the factor that is
        equal for all terms of a run, or None if no factor is."""
        if not isinstance(value, Binary) or value.op is not BinaryOp.MUL:
            return value, None
        term, at = self._var("term"), self._var("run")
        axes = (*self._product.batch, *self._product.columns.axes)
        ranges = {term.name: self._run, at.name: self._runs, **dict(axes)}
        simplify = Simplifier(ranges).simplify
        values = self._terms(at, term)
        varies = [
            term.name in variables(simplify(Substitution(values).expr(side)))
            for side in (value.left, value.right)
        ]
        if varies == [True, False]:
            return value.left, value.right
        return (value.right, value.left) if varies == [False, True] else (value, None)

    def _terms(self, run: Expr, term: Expr) -> dict[str, Expr]:
        """Return the loop values of the sum at a term of a run."""
        return digits(e.add(e.mul(run, self._run), term), self._product.sums)

    def launch(self) -> Stmt:
        """Return the launch: the loop over blocks around the phases."""
        other = dataclasses.replace(self._sums, name=f"{self._name}_other")
        statements = [self._phase(self._add_runs), *self._exchanged(other)]
        buffers = [self._sums] if self._lanes == 1 else [self._sums, other]
        if self._lanes == self._threads:
            statements.append(self._phase(self._store_own))
        else:
            shape = (self._groups, self._threads // self._lanes, *self._each)
            scope = MemoryScope.WORKGROUP
            parts = Buffer(f"{self._name}_parts", self._sums.dtype, shape, None, scope)
            buffers.append(parts)
            statements.append(self._phase(lambda g, t: self._put(parts, g, t)))
            statements.append(self._phase(lambda g, t: self._store_joined(parts, g, t)))
        body = block(statements)
        for buffer in buffers:
            body = Alloc(buffer, body)
        blocks = ceildiv(self._count, self._groups)
        return simplified(For(self._var("block").name, blocks, LoopKind.BLOCK, body))

    def _phase(self, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        number = next(self._numbers)
        group, thread = self._var(f"group{number}"), self._var(f"t{number}")
        inner = For(thread.name, self._threads, LoopKind.THREAD, body(group, thread))
        return For(group.name, self._groups, LoopKind.THREAD, inner)

    def _at_group(self, group: Expr, conditions: list[Expr], stmt: Stmt) -> Stmt:
        """Return a statement for the neighbours of a group of threads, guarded by the conditions
        and against groups beyond the last neighbours."""
        number = e.add(e.mul(self._var("block"), self._groups), group)
        if not isinstance(self._count, int) or self._count % self._groups:
            conditions = [*conditions, e.less(number, self._count)]
        return under(conditions, Substitution(digits(number, self._points)).stmt(stmt))

    def _unrolled(self, name: str, count: int, body: Callable[[Expr], Stmt]) -> Stmt:
        loop = self._var(f"{name}{next(self._numbers)}")
        return unrolled([(loop.name, count)], body)

    def _each_sum(self, body: Callable[[tuple[Expr, Expr]], Stmt]) -> Stmt:
        rows, columns = self._each
        return self._unrolled(
            "ey", rows, lambda y: self._unrolled("ex", columns, lambda x: body((y, x)))
        )

    # -- the sums of a thread

    def _add_runs(self, group: Expr, thread: Expr) -> Stmt:
        """Return the statements in which a thread sums its runs."""
        mine = (group, thread)
        clear = self._each_sum(lambda at: Store(self._sums, (*mine, *at), self._zero()))
        turn = self._var(f"turn{next(self._numbers)}")
        step = self._turns * self._threads

        def one(number: Expr) -> Stmt:
            first = e.add(e.mul(turn, self._turns), number)
            run = e.add(e.mul(first, self._threads), thread)
            conditions = [e.less(run, self._runs)] if self._runs % step else []
            return under(conditions, self._add_run(mine, run))

        body = self._unrolled("ahead", self._turns, one)
        loop = For(turn.name, -(-self._runs // step), LoopKind.SERIAL, body)
        return block([clear, self._at_group(group, [], loop)])

    def _zero(self) -> Expr:
        return e.ReduceOp.SUM.identity(self._sums.dtype)

    def _add_run(self, mine: tuple[Expr, Expr], run: Expr) -> Stmt:
        """Return the statements that add a run of terms to all sums of a thread."""
        row = self._own("row", self._each[0], self._run)

        def stored(y: Expr, value: Callable[[Expr], Expr]) -> Stmt:
            return self._unrolled("term", self._run, lambda i: Store(row, (y, i), value(i)))

        def load(y: Expr) -> Stmt:
            values, conditions = self._neighbours.place(0, y)

            def element(term: Expr) -> Expr:
                at = Substitution(values | self._terms(run, term))
                return at.expr(self._product.rows.value)

            zeros = stored(y, lambda i: self._zero()) if conditions else None
            return under(conditions, stored(y, element), zeros)

        loads = self._unrolled("ey", self._each[0], load)
        adds = self._unrolled("ex", self._each[1], lambda x: self._add_column(mine, run, row, x))
        return Alloc(row, block([loads, adds]))

    def _add_column(self, mine: tuple[Expr, Expr], run: Expr, row: Buffer, column: Expr) -> Stmt:
        """Return the statements that add a run of terms of one column to the sums of all rows."""
        values, conditions = self._neighbours.place(1, column)
        element, part = self._own("column", 1), self._own("part", self._each[0])

        def add(y: Expr, term: Expr) -> Stmt:
            product = Binary(BinaryOp.MUL, Load(row, (y, term)), Load(element, (e.index(0),)))
            target, at = (self._sums, (*mine, y, column)) if self._scale is None else (part, (y,))
            return Store(target, at, Binary(BinaryOp.ADD, Load(target, at), product))

        def one(term: Expr) -> Stmt:
            value = Substitution(values | self._terms(run, term)).expr(self._varying)
            loaded = Store(element, (e.index(0),), value)
            adds = self._unrolled("ey", self._each[0], lambda y: add(y, term))
            return Alloc(element, block([loaded, adds]))

        adds = self._unrolled("term", self._run, one)
        if self._scale is None:
            return under(conditions, adds)
        scale = Substitution(values | self._terms(run, e.index(0))).expr(self._scale)

        def scaled(y: Expr) -> Stmt:
            at = (*mine, y, column)
            product = Binary(BinaryOp.MUL, Load(part, (y,)), Load(element, (e.index(0),)))
            return Store(self._sums, at, Binary(BinaryOp.ADD, Load(self._sums, at), product))

        clear = self._unrolled("ey", self._each[0], lambda y: Store(part, (y,), self._zero()))
        loaded = Store(element, (e.index(0),), scale)
        last = Alloc(element, block([loaded, self._unrolled("ey", self._each[0], scaled)]))
        return under(conditions, Alloc(part, block([clear, adds, last])))

    # -- the sums of all threads

    def _exchanged(self, other: Buffer) -> list[Stmt]:
        """Return the phases in which up to `lanes` threads exchange and add their sums."""
        phases = []
        mask = self._lanes // 2
        places = list(itertools.product(*map(range, self._each)))
        while mask:
            for place in places:
                own = tuple(map(e.index, place))

                def exchange(
                    group: Expr, thread: Expr, own: tuple[Expr, ...] = own, mask: int = mask
                ) -> Stmt:
                    lane = Binary(BinaryOp.BIT_XOR, thread, e.index(mask))
                    value = Load(self._sums, (group, lane, *own))
                    return Store(other, (group, thread, *own), value)

                phases.append(self._phase(exchange))

            def join(group: Expr, thread: Expr) -> Stmt:
                def one(at: tuple[Expr, Expr]) -> Stmt:
                    place = (group, thread, *at)
                    both = Binary(BinaryOp.ADD, Load(self._sums, place), Load(other, place))
                    return Store(self._sums, place, both)

                return self._each_sum(one)

            phases.append(self._phase(join))
            mask //= 2
        return phases

    def _store_own(self, group: Expr, thread: Expr) -> Stmt:
        """Return the statements in which the first thread of a group stores its results."""

        def one(at: tuple[Expr, Expr]) -> Stmt:
            return self._neighbours.store(at, Load(self._sums, (group, thread, *at)))

        return self._at_group(group, [e.less(thread, 1)], self._each_sum(one))

    def _put(self, parts: Buffer, group: Expr, thread: Expr) -> Stmt:
        """Return the statements that put the sums of some threads to workgroup memory."""
        conditions = [] if self._lanes == 1 else [e.less(e.mod(thread, self._lanes), 1)]
        part = e.floordiv(thread, self._lanes)

        def one(at: tuple[Expr, Expr]) -> Stmt:
            return Store(parts, (group, part, *at), Load(self._sums, (group, thread, *at)))

        return under(conditions, self._each_sum(one))

    def _store_joined(self, parts: Buffer, group: Expr, thread: Expr) -> Stmt:
        """Return the statements in which the threads of a group add the parts of the results, one
        after the other, and store them."""
        rows, columns = self._each
        joined = self._own("joined", 1)
        here = (e.index(0),)

        def one(turn: Expr) -> Stmt:
            number = e.add(e.mul(turn, self._threads), thread)
            at = e.floordiv(number, columns), e.mod(number, columns)
            part = self._var(f"part{next(self._numbers)}")
            both = Binary(BinaryOp.ADD, Load(joined, here), Load(parts, (group, part, *at)))
            count = self._threads // self._lanes
            loop = For(part.name, count, LoopKind.SERIAL, Store(joined, here, both))
            first = Store(joined, here, self._zero())
            stored = self._neighbours.store(at, Load(joined, here))
            conditions = [e.less(number, rows * columns)] if rows * columns % self._threads else []
            return under(conditions, Alloc(joined, block([first, loop, stored])))

        turns = -(-rows * columns // self._threads)
        return self._at_group(group, [], self._unrolled("turn", turns, one))
