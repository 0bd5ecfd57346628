"""The schedule primitive `subgroup_product`: compute a matrix product with the matrix instructions
of subgroups.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

from farrier.intrinsics.copies import clear_name, copy_name
from farrier.intrinsics.fragments import load_name, store_name, zero_name
from farrier.ir import expr as e
from farrier.ir.dim import ceildiv
from farrier.ir.expr import (
    Buffer,
    Expr,
    Load,
    MemoryScope,
    Var,
)
from farrier.ir.loop import Alloc, Barrier, For, Function, Intrinsic, LoopKind, Stmt, Store, Tile
from farrier.ir.statements import block
from farrier.ir.substitute import Substitution
from farrier.ir.threads import TOGETHER
from farrier.ir.types import DType
from farrier.schedule.declared_product import Declared, factor_of
from farrier.schedule.factor_source import CHUNK_BYTES, Source
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


def subgroup_product(
    function: Function,
    total: str,
    reader: str,
    intrinsic: str,
    subgroups: tuple[int, int],
    each: tuple[int, int],
    depth: int,
    stages: int = 1,
) -> Function:
    """Compute a matrix product as a GPU launch whose subgroups multiply fragments with matrix
    instructions.

    before:
        @function
        def product(x: f16[16, 30], w: f16[30, 20], y: f32[16, 20]):
            for y_init_m in serial(16):
                for y_init_n in serial(20):
                    y[y_init_m, y_init_n] = 0.0
            for y_m in serial(16):
                for y_n in serial(20):
                    for y_k in serial(30):
                        y[y_m, y_n] = y[y_m, y_n] + cast(f32, x[y_m, y_k]) * cast(f32, w[y_k, y_n])
    after subgroup_product("y", "y", "mma_f16", (1, 2), (1, 1), 16):
        @function
        def product(x: f16[16, 30], w: f16[30, 20], y: f32[16, 20]):
            for y_by in block(1):
                for y_bx in block(1):
                    with alloc(f32[1, 2, 1, 1, 16, 16] in subgroup) as y_sums:
                        for y_gy0 in subgroup(1):
                            for y_gx0 in subgroup(2):
                                for y_e1_0 in unrolled(1):
                                    for y_e1_1 in unrolled(1):
                                        intrinsic('mma_f16_zero', tile(y_sums[y_gy0, y_gx0, 0, 0, \
0, 0], 4, 5))
                        for y_ko in serial(2):
                            with alloc(f16[16, 16] in workgroup) as y_rows:
                                with alloc(f16[16, 32] in workgroup) as y_columns:
                                    for y_t2 in thread(64):
                                        for y_turn2 in serial(2):
                                            if y_ko * 8 + y_t2 % 8 < 15:
                                                for y_e3_0 in unrolled(2):
                                                    y_rows[y_turn2 * 8 + y_t2 // 8, y_t2 % 8 * 2 + \
y_e3_0] = x[y_turn2 * 8 + y_t2 // 8, y_ko * 16 + y_t2 % 8 * 2 + y_e3_0]
                                            else:
                                                for y_e4_0 in unrolled(2):
                                                    y_rows[y_turn2 * 8 + y_t2 // 8, y_t2 % 8 * 2 + \
y_e4_0] = f16(0.0)
                                    for y_t5 in thread(64):
                                        for y_turn5 in serial(2):
                                            if y_t5 % 8 < 5 and y_ko * 16 + y_turn5 * 8 + y_t5 // \
8 < 30:
                                                for y_e6_0 in unrolled(4):
                                                    y_columns[y_turn5 * 8 + y_t5 // 8, y_t5 % 8 * \
4 + y_e6_0] = w[y_ko * 16 + y_turn5 * 8 + y_t5 // 8, y_t5 % 8 * 4 + y_e6_0]
                                            else:
                                                for y_e7_0 in unrolled(4):
                                                    y_columns[y_turn5 * 8 + y_t5 // 8, y_t5 % 8 * \
4 + y_e7_0] = f16(0.0)
                                    for y_gy8 in subgroup(1):
                                        for y_gx8 in subgroup(2):
                                            with alloc(f16[1, 16, 16] in subgroup) as y_a:
                                                with alloc(f16[1, 16, 16] in subgroup) as y_b:
                                                    for y_e9_0 in unrolled(1):
                                                        for y_e10_0 in unrolled(1):
                                                            intrinsic('mma_f16_a', tile(y_a[0, 0, \
0], 1, 2), tile(y_rows[0, 0], 0, 1))
                                                        for y_e11_0 in unrolled(1):
                                                            intrinsic('mma_f16_b_across', \
tile(y_b[0, 0, 0], 1, 2), tile(y_columns[0, y_gx8 * 16], 0, 1))
                                                        for y_e12_0 in unrolled(1):
                                                            for y_e12_1 in unrolled(1):
                                                                intrinsic('mma_f16', \
tile(y_sums[y_gy8, y_gx8, 0, 0, 0, 0], 4, 5), tile(y_a[0, 0, 0], 1, 2), tile(y_b[0, 0, 0], 1, 2))
                        with alloc(f32[16, 40] in workgroup) as y_results:
                            for y_gy13 in subgroup(1):
                                for y_gx13 in subgroup(2):
                                    for y_e14_0 in unrolled(1):
                                        intrinsic('mma_f16_store', tile(y_results[0, y_gx13 * 16], \
0, 1), tile(y_sums[y_gy13, y_gx13, 0, 0, 0, 0], 4, 5))
                            for y_t15 in thread(64):
                                for y_turn15 in serial(2):
                                    if y_t15 % 8 < 5:
                                        with alloc(f32[4] in register) as y_stored16:
                                            for y_e17_0 in unrolled(4):
                                                y_stored16[y_e17_0] = y_results[y_turn15 * 8 + \
y_t15 // 8, y_t15 % 8 * 4 + y_e17_0]
                                            for y_e18_0 in unrolled(4):
                                                y[y_turn15 * 8 + y_t15 // 8, y_t15 % 8 * 4 + \
y_e18_0] = y_stored16[y_e18_0]

    As in `tile_product`, a block computes a tile of rows and columns and copies slices of both
    factors to workgroup memory, `depth` terms of the sum in each iteration; `reader` names the
    buffer of the nest that reads the finished sums. A block has a grid of `subgroups`, each of
    which computes a grid of `each` fragments (rows, columns) with the matrix instruction
    `intrinsic`. Factors that the nest casts to the type of the sums are kept in workgroup memory in
    their original type. At the end the sums are written through workgroup memory, one row of
    fragments at a time, so that each thread can store several neighbouring results.

    With `stages` of 2 or more, workgroup memory holds the factors of that number of iterations:
    asynchronous copies for a later iteration start before each iteration and run while it
    multiplies, and a barrier before an iteration waits for its own copies. The staged factors are
    stored row by row in buffers `<total>_rows` and `<total>_columns`; apply `pad_axis` or `swizzle`
    to these to avoid bank conflicts between the rows that a subgroup reads at once.
    """
    nest = NestView(function, "subgroup_product")
    product = Product.of(nest, total, reader)
    declared = Declared.of(nest, intrinsic)
    if min(*subgroups, *each, stages) < 1 or depth < 1 or depth % declared.depth:
        nest.fail(f"{subgroups} subgroups for {total}, {each} fragments each, {depth} terms")
    if why := declared.why_not(product):
        nest.fail(why)
    launch = FragmentLaunch(product, declared, subgroups, each, depth, stages).launch()
    return product.replaced(function, launch)


class FragmentLaunch:
    """The builder of the launch of `subgroup_product`. Subclasses multiply by other groups of
    threads: `kind` is that of the loops over them, and `scope` that of their fragments."""

    kind = LoopKind.SUBGROUP
    scope = MemoryScope.SUBGROUP

    def __init__(
        self,
        product: Product,
        declared: Declared,
        subgroups: tuple[int, int],
        each: tuple[int, int],
        depth: int,
        stages: int,
    ) -> None:
        self._product, self._declared = product, declared
        self._subgroups, self._each, self._depth = subgroups, each, depth
        self._stages = stages
        self._fragment = declared.rows, declared.columns
        self._size = tuple(math.prod(x) for x in zip(subgroups, each, self._fragment, strict=True))
        self._threads = math.prod(subgroups) * TOGETHER[self.kind]
        self._name = product.total.name
        self._numbers = itertools.count()
        self._k = product_of(extent for _, extent in product.sums)
        self._sides = product.rows, product.columns
        shape = (*subgroups, *each, *self._fragment)
        self._sums = self._buffer("sums", declared.total, shape, self.scope)
        self._sources = tuple(Source.of(product, side) for side in (0, 1))
        self.staged = tuple(self._staging(side) for side in (0, 1))

    def _var(self, name: str) -> Var:
        return Var(f"{self._name}_{name}")

    def _buffer(self, name: str, dtype: DType, shape: Sequence[int], scope: MemoryScope) -> Buffer:
        return Buffer(f"{self._name}_{name}", dtype, tuple(shape), None, scope)

    def _is_across(self, side: int) -> bool:
        """Check whether the staged factor is transposed: each row of workgroup memory holds one
        term of the sum for all rows or columns of the tile."""
        return self._declared.reads_across and not self._sources[side].along_terms

    def _staging(self, side: int) -> Buffer:
        """Return the workgroup buffer for the slice of a factor; `side` is 0 for rows, 1 for
        columns."""
        dtype, _ = factor_of(self._sides[side].value)
        rows, width = self._size[side], self._depth
        if self._is_across(side):
            rows, width = width, rows
        shape: tuple[int, ...] = (rows, width)
        if self._stages > 1:
            shape = (self._stages, *shape)
        return self._buffer(("rows", "columns")[side], dtype, shape, MemoryScope.WORKGROUP)

    def launch(self) -> Stmt:
        """Return the launch: block loops over batch and tiles around the phases of a tile."""
        body: Stmt = Alloc(self._sums, block([self._zero(), self._turns(), self._results()]))
        for side, name in ((1, "bx"), (0, "by")):
            tiles = ceildiv(self._sides[side].extent, self._size[side])
            body = For(self._var(name).name, tiles, LoopKind.BLOCK, body)
        for name, extent in reversed(self._product.batch):
            body = For(f"{name}_b", extent, LoopKind.BLOCK, body)
        return simplified(body)

    # -- phases

    def _of_subgroups(self, body: Callable[[tuple[Expr, Expr]], Stmt]) -> Stmt:
        at = next(self._numbers)
        rows, columns = self._var(f"gy{at}"), self._var(f"gx{at}")
        inner = For(columns.name, self._subgroups[1], self.kind, body((rows, columns)))
        return For(rows.name, self._subgroups[0], self.kind, inner)

    def _of_threads(self, points: int, body: Callable[[Expr], Stmt]) -> Stmt:
        """Return a phase whose threads divide the points 0 to `points - 1` among themselves; `body`
        returns the statement for a point."""
        at = next(self._numbers)
        thread, turn = self._var(f"t{at}"), self._var(f"turn{at}")
        point = e.add(e.mul(turn, self._threads), thread)
        guarded = under(within(point, points, self._threads), body(point))
        turns = For(turn.name, ceildiv(points, self._threads), LoopKind.SERIAL, guarded)
        return For(thread.name, self._threads, LoopKind.THREAD, turns)

    def _unrolled(self, extents: Sequence[int], body: Callable[..., Stmt]) -> Stmt:
        at = next(self._numbers)
        axes = [(self._var(f"e{at}_{axis}").name, extent) for axis, extent in enumerate(extents)]
        return unrolled(axes, body)

    def _sum(self, group: tuple[Expr, Expr], at: tuple[Expr, Expr]) -> Tile:
        return Tile(self._sums, (*group, *at, ZERO, ZERO), (4, 5))

    def _zero(self) -> Stmt:
        name = zero_name(self._declared.name)
        return self._of_subgroups(
            lambda group: self._unrolled(
                self._each, lambda *at: Intrinsic(name, (self._sum(group, at),))
            )
        )

    def _turns(self) -> Stmt:
        """Return the loop over slices of the sum: copy the slices of both factors, then multiply
        them."""
        turn, turns = self._var("ko"), ceildiv(self._k, self._depth)
        first: list[Stmt] = []
        body = [self.copy(side, turn) for side in (0, 1)]
        if self._stages > 1:
            # The copies of the last of these turns end with the first barrier of the loop.
            for ahead in range(self._stages - 1):
                first += [Barrier(MemoryScope.LOCAL, self._stages)] if ahead else []
                first += [self.copy(side, e.index(ahead)) for side in (0, 1)]
            later = e.add(turn, self._stages - 1)
            body = [self._met()]
            body += [self.copy(side, later) for side in (0, 1)]
        body += self._products()
        if self._stages == 1:
            return For(turn.name, turns, LoopKind.SERIAL, self._with_staged(block(body)))
        loop = For(turn.name, turns, LoopKind.SERIAL, block(body))
        return self._with_staged(block([*first, loop]))

    def _met(self) -> Stmt:
        """Return the barrier before an iteration, which waits for its copies."""
        return Barrier(MemoryScope.WORKGROUP, self._stages - 2)

    def _products(self) -> list[Stmt]:
        """Return the statements that multiply the factors of an iteration."""
        return [self._of_subgroups(self._multiply)]

    def _with_staged(self, stmt: Stmt) -> Stmt:
        for buffer in reversed(self.staged):
            stmt = Alloc(buffer, stmt)
        return stmt

    def _stage(self, turn: Expr) -> tuple[Expr, ...]:
        """Return the index of the stage of workgroup memory that iteration `turn` uses; () if there
        is only one stage."""
        return (e.mod(turn, self._stages),) if self._stages > 1 else ()

    def copy(self, side: int, turn: Expr) -> Stmt:
        """Return the phase that copies a slice of a factor to workgroup memory; each thread copies
        several elements that are neighbours in memory."""
        source, size = self._sources[side], self._size[side]
        width = self._depth if source.along_terms else size
        several = math.gcd(source.several, width)
        chunks = width // several
        # Turns ahead of the first ones may be behind the last.
        last = [e.less(turn, ceildiv(self._k, self._depth))] if self._stages > 1 else []

        def chunk(point: Expr) -> Stmt:
            outer, inner = e.floordiv(point, chunks), e.mul(e.mod(point, chunks), several)
            at, term = (outer, inner) if source.along_terms else (inner, outer)
            conditions = within(self._number(side, at), self._sides[side].extent, size)
            conditions += within(self._term(term, turn), self._k, self._depth)
            if source.guard is not None:
                conditions.append(self._placed(source.guard, side, at, term, turn))
            copied, cleared = self._chunk(side, (at, term), turn, several)
            return under(last, under(conditions, copied, cleared if conditions else None))

        return self._of_threads((size if source.along_terms else self._depth) * chunks, chunk)

    def _chunk(
        self, side: int, first: tuple[Expr, Expr], turn: Expr, several: int
    ) -> tuple[Stmt, Stmt]:
        """Return two alternative statements: one copies `several` neighbouring elements of a
        factor, the other clears their places. `first` is the row or column and the term of the
        first."""
        source, staged = self._sources[side], self.staged[side]
        if self._stages > 1 and source.is_whole and self._is_across(side) != source.along_terms:
            place = self._place(side, *first, turn)
            target = Tile(staged, place, (len(place) - 1,))
            return self._begun(target, self._factor(side, *first, turn), source.axis)

        def element(part: Expr, is_inside: bool) -> Stmt:
            at, term = first
            if source.along_terms:
                term = e.add(term, part)
            else:
                at = e.add(at, part)
            value: Expr = e.ReduceOp.SUM.identity(staged.dtype)
            if is_inside:
                value = self._factor(side, at, term, turn)
            return Store(staged, self._place(side, at, term, turn), value)

        copied = self._unrolled((several,), lambda part: element(part, True))
        return copied, self._unrolled((several,), lambda part: element(part, False))

    def _place(self, side: int, at: Expr, term: Expr, turn: Expr) -> tuple[Expr, ...]:
        """Return the position in workgroup memory of an element of a factor, as `_factor` numbers
        it."""
        place = (term, at) if self._is_across(side) else (at, term)
        return (*self._stage(turn), *place)

    def _number(self, side: int, at: Expr) -> Expr:
        """Return the global number of row or column `at` of this block's tile."""
        return e.add(e.mul(self._var(("by", "bx")[side]), self._size[side]), at)

    def _begun(self, target: Tile, value: Expr, axis: int) -> tuple[Stmt, Stmt]:
        """Return two alternative statements: one starts an asynchronous copy to the tile `target`
        of the elements from `value` on along an axis, the other clears the tile."""
        assert isinstance(value, Load)
        source = Tile(value.buffer, value.indices, (axis,))
        dtype = target.buffer.dtype
        copied = Intrinsic(copy_name(dtype), (target, source), True)
        return copied, Intrinsic(clear_name(dtype), (target,), True)

    def _term(self, term: Expr, turn: Expr) -> Expr:
        return e.add(e.mul(turn, self._depth), term)

    def _factor(self, side: int, at: Expr, term: Expr, turn: Expr) -> Expr:
        """Return the element of a factor at row or column `at` of this tile and term `term` of an
        iteration."""
        return self._placed(self._sources[side].value, side, at, term, turn)

    def _placed(self, value: Expr, side: int, at: Expr, term: Expr, turn: Expr) -> Expr:
        """Return `value`, an expression over the axes of the product, for one element of a factor:
        row (`side` 0) or column (`side` 1) `at` of this block's tile, and term `term` in iteration
        `turn` of the loop over slices of the sum."""
        values: dict[str, Expr] = {name: Var(f"{name}_b") for name, _ in self._product.batch}
        values |= digits(self._number(side, at), self._sides[side].axes)
        values |= digits(self._term(term, turn), self._product.sums)
        return Substitution(values).expr(value)

    def _multiply(self, group: tuple[Expr, Expr]) -> Stmt:
        """Return the statement in which a subgroup loads the fragments of the current slice and
        adds their products to its sums."""
        declared, shapes = self._declared, []
        shapes.append((self._each[0], declared.rows, declared.depth))
        shapes.append((self._each[1], declared.depth, declared.columns))
        own = [
            self._buffer(name, staged.dtype, shape, MemoryScope.SUBGROUP)
            for name, staged, shape in zip("ab", self.staged, shapes, strict=True)
        ]

        def factor(side: int, at: Expr) -> Tile:
            return Tile(own[side], (at, ZERO, ZERO), (1, 2))

        def load(side: int, at: Expr, step: Expr) -> Stmt:
            fragment = e.add(e.mul(group[side], self._each[side]), at)
            return self.loaded(side, factor(side, at), fragment, step)

        def multiply(row: Expr, column: Expr) -> Stmt:
            sums = self._sum(group, (row, column))
            return Intrinsic(declared.name, (sums, factor(0, row), factor(1, column)))

        def step(at: Expr) -> Stmt:
            reads = [
                self._unrolled(
                    (self._each[side],), lambda fragment, side=side: load(side, fragment, at)
                )
                for side in (0, 1)
            ]
            return block([*reads, self._unrolled(self._each, multiply)])

        body = self._unrolled((self._depth // declared.depth,), step)
        return Alloc(own[0], Alloc(own[1], body))

    def loaded(self, side: int, target: Tile, fragment: Expr, step: Expr) -> Stmt:
        """Return the call that loads a fragment of a staged factor: its number along the rows or
        columns, and along the terms."""
        memory = self._staged_fragment(side, fragment, step)
        name = load_name(self._declared.name, side, self._is_across(side))
        return Intrinsic(name, (target, memory))

    def _staged_fragment(self, side: int, fragment: Expr, step: Expr) -> Tile:
        """Return the place of a fragment in workgroup memory, as `loaded` numbers it."""
        at, term = e.mul(fragment, self._fragment[side]), e.mul(step, self._declared.depth)
        origin = self._place(side, at, term, self._var("ko"))
        return Tile(self.staged[side], origin, (len(origin) - 2, len(origin) - 1))

    # -- results

    def _results(self) -> Stmt:
        """Return the phases that store the results, one row of fragments of each subgroup at a
        time."""
        rows, columns = self._subgroups[0] * self._fragment[0], self._size[1]
        # Eight elements of padding bring neighbouring rows of a fragment's pairs to other banks.
        shape = (rows, columns + 8)
        out = self._buffer("results", self._declared.total, shape, MemoryScope.WORKGROUP)
        size = self._fragment[0]

        def row_of_fragments(at: Expr) -> Stmt:
            stores = self._of_subgroups(
                lambda group: self._unrolled(
                    (self._each[1],), lambda column: self._keep(out, group, at, column)
                )
            )
            several = math.gcd(self._results_at_once(), columns)
            chunks = columns // several

            def results(point: Expr) -> Stmt:
                row, first = e.floordiv(point, chunks), e.mul(e.mod(point, chunks), several)
                fragment = e.add(e.mul(e.floordiv(row, size), self._each[0]), at)
                place = e.add(e.mul(fragment, size), e.mod(row, size)), first
                return self._store(out, (row, first), place, several)

            return block([stores, self._of_threads(rows * chunks, results)])

        # Written out, so that no barrier stands before the first.
        return Alloc(out, block([row_of_fragments(e.index(at)) for at in range(self._each[0])]))

    def _keep(self, out: Buffer, group: tuple[Expr, Expr], row: Expr, column: Expr) -> Stmt:
        fragment = e.add(e.mul(group[1], self._each[1]), column)
        origin = e.mul(group[0], self._fragment[0]), e.mul(fragment, self._fragment[1])
        operands = Tile(out, origin, (0, 1)), self._sum(group, (row, column))
        return Intrinsic(store_name(self._declared.name), operands)

    def _results_at_once(self) -> int:
        """Return the number of neighbouring results that a thread stores: 16 bytes of sums, or
        fewer if the extent of the innermost axis is not a multiple of that."""
        several = CHUNK_BYTES // self._declared.total.nbytes
        columns = self._product.columns.axes
        inner = [extent for _, extent in columns if extent != 1][-1:] or [1]
        return math.gcd(several, inner[0]) if isinstance(inner[0], int) else 1

    def _store(
        self, out: Buffer, at: tuple[Expr, Expr], place: tuple[Expr, Expr], several: int
    ) -> Stmt:
        """Return the statement that stores `several` neighbouring results. Guards prevent stores
        beyond the edges of the result. `at` is the position of the first result in `out`, and
        `place` its position in the tile of the block."""
        product = self._product
        own_row, first = self._number(0, place[0]), self._number(1, place[1])
        conditions = within(own_row, self._sides[0].extent, self._size[0])
        conditions += within(first, self._sides[1].extent, self._size[1])

        # All values of a thread come before its stores, so that these are joined to one: what they
        # read may lie where a store writes, for all that the code generator knows.
        at_once = next(self._numbers)
        own = self._buffer(
            f"stored{at_once}", product.store.buffer.dtype, (several,), MemoryScope.REGISTER
        )

        def element(part: Expr, is_stored: bool) -> Stmt:
            values: dict[str, Expr] = {name: Var(f"{name}_b") for name, _ in product.batch}
            values |= digits(own_row, self._sides[0].axes)
            values |= digits(e.add(first, part), self._sides[1].axes)
            store = product.stored(values, Load(out, (at[0], e.add(at[1], part))))
            if not is_stored:
                return Store(own, (part,), store.value)
            return dataclasses.replace(store, value=Load(own, (part,)))

        steps = [
            self._unrolled((several,), lambda part, is_stored=is_stored: element(part, is_stored))
            for is_stored in (False, True)
        ]
        return under(conditions, Alloc(own, block(steps)))
