"""The schedule primitive `warpgroup_product`: compute a matrix product with the matrix instructions
of warpgroups, which read both factors from workgroup memory.
"""

from __future__ import annotations

import dataclasses
import math

from farrier.intrinsics import lookup
from farrier.intrinsics.fragments import store_name
from farrier.intrinsics.warpgroups import ROW_BYTES, product_name
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import ceildiv, number
from farrier.ir.expr import Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, Barrier, For, Function, Intrinsic, LoopKind, Stmt, Tile
from farrier.ir.statements import block
from farrier.ir.threads import fetch_name
from farrier.ir.types import Layout, PhysicalDim, Swizzle
from farrier.schedule.declared_product import Declared, factor_of
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.schedule.subgroup_product import FragmentLaunch
from farrier.schedule.tiling_parts import ZERO, under

_CHUNK_BYTES = 16  # The chunks of eight rows lie in different banks.
_MOST_ROWS = 256  # Of a tile that one thread copies.
_PADDING = 8  # Elements of padding in a row of results.


def warpgroup_product(
    function: Function,
    total: str,
    reader: str,
    intrinsic: str,
    warpgroups: tuple[int, int],
    each: tuple[int, int],
    depth: int,
    stages: int,
    fetches: bool = False,
) -> Function:
    """Compute a matrix product as a GPU launch whose warpgroups multiply with matrix instructions
    that read both factors from workgroup memory.

    before:
        @function
        def product(x: f16[16, 64], w: f16[20, 64], y: f32[16, 20]):
            for y_init_m in serial(16):
                for y_init_n in serial(20):
                    y[y_init_m, y_init_n] = 0.0
            for y_m in serial(16):
                for y_n in serial(20):
                    for y_k in serial(64):
                        y[y_m, y_n] = y[y_m, y_n] + cast(f32, x[y_m, y_k]) * cast(f32, w[y_n, y_k])
    after warpgroup_product("y", "y", "wgmma_f16_32", (1, 1), (1, 1), 64, 1):
        @function
        def product(x: f16[16, 64], w: f16[20, 64], y: f32[16, 20]):
            for y_by in block(1):
                for y_bx in block(1):
                    with alloc(f32[1, 1, 1, 1, 64, 32] in warpgroup) as y_sums:
                        for y_gy0 in warpgroup(1):
                            for y_gx0 in warpgroup(1):
                                for y_e1_0 in unrolled(1):
                                    for y_e1_1 in unrolled(1):
                                        intrinsic('wgmma_f16_32_zero', tile(y_sums[y_gy0, y_gx0, \
0, 0, 0, 0], 4, 5))
                        with alloc(f16[64, 64] @ layout(1 / 64, 0, 1 % 64, swizzle=(8, 1, 8)) in \
workgroup) as y_rows:
                            with alloc(f16[32, 64] @ layout(1 / 64, 0, 1 % 64, swizzle=(8, 1, 8)) \
in workgroup) as y_columns:
                                for y_t2 in thread(128):
                                    for y_turn2 in serial(4):
                                        if y_turn2 < 1:
                                            for y_e3_0 in unrolled(8):
                                                y_rows[y_turn2 * 16 + y_t2 // 8, y_t2 % 8 * 8 + \
y_e3_0] = x[y_turn2 * 16 + y_t2 // 8, y_t2 % 8 * 8 + y_e3_0]
                                        else:
                                            for y_e4_0 in unrolled(8):
                                                y_rows[y_turn2 * 16 + y_t2 // 8, y_t2 % 8 * 8 + \
y_e4_0] = f16(0.0)
                                for y_t5 in thread(128):
                                    for y_turn5 in serial(2):
                                        if y_turn5 * 16 + y_t5 // 8 < 20:
                                            for y_e6_0 in unrolled(8):
                                                y_columns[y_turn5 * 16 + y_t5 // 8, y_t5 % 8 * 8 + \
y_e6_0] = w[y_turn5 * 16 + y_t5 // 8, y_t5 % 8 * 8 + y_e6_0]
                                        else:
                                            for y_e7_0 in unrolled(8):
                                                y_columns[y_turn5 * 16 + y_t5 // 8, y_t5 % 8 * 8 + \
y_e7_0] = f16(0.0)
                                for y_gy8 in warpgroup(1):
                                    for y_gx8 in warpgroup(1):
                                        for y_e9_0 in unrolled(4):
                                            for y_e9_1 in unrolled(1):
                                                for y_e9_2 in unrolled(1):
                                                    intrinsic('wgmma_f16_32', tile(y_sums[y_gy8, \
y_gx8, 0, 0, 0, 0], 4, 5), tile(y_rows[0, y_e9_0 * 16], 0, 1), tile(y_columns[0, y_e9_0 * 16], 0, \
1), late=True)
                                barrier(warpgroup, copies=0)
                        with alloc(f32[64, 40] in workgroup) as y_results:
                            for y_gy10 in warpgroup(1):
                                for y_gx10 in warpgroup(1):
                                    intrinsic('wgmma_f16_32_store', tile(y_results[0, 0], 0, 1), \
tile(y_sums[y_gy10, y_gx10, 0, 0, 0, 0], 4, 5))
                            for y_t11 in thread(128):
                                for y_turn11 in serial(4):
                                    if y_turn11 < 1 and y_t11 % 8 < 5:
                                        with alloc(f32[4] in register) as y_stored12:
                                            for y_e13_0 in unrolled(4):
                                                y_stored12[y_e13_0] = y_results[y_turn11 * 16 + \
y_t11 // 8, y_t11 % 8 * 4 + y_e13_0]
                                            for y_e14_0 in unrolled(4):
                                                y[y_turn11 * 16 + y_t11 // 8, y_t11 % 8 * 4 + \
y_e14_0] = y_stored12[y_e14_0]

    As in `subgroup_product`, a block computes a tile of rows and columns. In each iteration it
    copies the slices of both factors for `depth` terms of the sum to workgroup memory, which holds
    the slices of `stages` iterations. A block has a grid of `warpgroups`, each of which computes a
    grid of `each` fragments.

    With `fetches` and at least two stages, one thread of a block copies the block's slices of a
    factor in bulk, if the factor's rows are evenly spaced in memory and the tiles divide it evenly.
    All threads copy other factors.

    A slice is stored as panels, one after another. A panel has ROW_BYTES bytes of each row of the
    slice, with chunks swizzled as the instructions require it. The products of an iteration are
    asynchronous: they are waited for at its end, before a barrier lets threads overwrite the
    factors. At the end the sums are written through workgroup memory, some columns of each fragment
    at a time.
    """
    nest = NestView(function, "warpgroup_product")
    product = Product.of(nest, total, reader)
    declared = _declared(nest, intrinsic)
    if min(*warpgroups, *each, stages) < 1 or depth < 1 or depth % declared.depth:
        nest.fail(f"{warpgroups} warpgroups for {total}, {each} fragments each, {depth} terms")
    if why := declared.why_not(product):
        nest.fail(why)
    launch = _Launch(product, declared, warpgroups, each, depth, stages)
    launch.fetches = fetches and stages > 1
    if why := launch.why_not():
        nest.fail(why)
    return product.replaced(function, launch.launch())


def _declared(nest: NestView, name: str) -> Declared:
    declared = Declared.of(nest, name)
    try:
        lookup(product_name(name, (True, True)))
    except KeyError:
        return declared
    return dataclasses.replace(declared, reads_across=True)


class _Launch(FragmentLaunch):
    """The builder of the launch of `warpgroup_product`."""

    kind = LoopKind.WARPGROUP
    scope = MemoryScope.WARPGROUP
    fetches = False

    def why_not(self) -> str:
        """Return the reason why the factors cannot lie as the instructions require it, as a clause;
        "" if they can."""
        for side in (0, 1):
            row = ROW_BYTES // factor_of(self._sides[side].value)[0].nbytes
            width = self._size[side] if self._is_across(side) else self._depth
            if width % row:
                return (
                    f"a slice of {self.staged[side].name} has {width} elements, not rows of {row}"
                )
            if self._is_across(side) and self._fragment[side] % row:
                return f"a fragment of {self._name} has no whole rows of {row}"
        return ""

    def _staging(self, side: int) -> Buffer:
        plain = super()._staging(side)
        last, each = len(plain.shape) - 1, plain.dtype.nbytes
        row, chunk = ROW_BYTES // each, _CHUNK_BYTES // each
        stages = [PhysicalDim(axis) for axis in range(last - 1)]
        dims = *stages, PhysicalDim(last, row), PhysicalDim(last - 1), PhysicalDim(last, 1, row)
        layout = Layout(dims, swizzle=Swizzle(chunk, 1, row // chunk))
        return dataclasses.replace(plain, layout=layout)

    def copy(self, side: int, turn: Expr) -> Stmt:
        if not self.fetches or (axes := self._fetched_axes(side)) is None:
            return super().copy(side, turn)
        source, staged = self._sources[side], self.staged[side]
        rows, width = map(number, staged.shape[-2:])
        row = ROW_BYTES // staged.dtype.nbytes
        several = min(rows, _MOST_ROWS)

        def box(first: Expr, column: Expr) -> Stmt:
            inner, outer = e.mul(column, row), e.mul(first, several)
            at, term = (outer, inner) if source.along_terms else (inner, outer)
            value = self._factor(side, at, term, turn)
            assert isinstance(value, Load)
            place = self._place(side, at, term, turn)
            target = Tile(staged, place, (len(place) - 2, len(place) - 1))
            name = fetch_name(staged.dtype, several)
            return Intrinsic(name, (target, Tile(value.buffer, value.indices, axes)), True)

        boxes = self._unrolled((rows // several, width // row), box)
        turns = ceildiv(self._k, self._depth)
        thread = self._var(f"t{next(self._numbers)}").name
        return For(thread, 1, LoopKind.THREAD, under([e.less(turn, turns)], boxes))

    def _fetched_axes(self, side: int) -> tuple[int, int] | None:
        """Return the axes of the buffer of a factor along which rows and elements of a tile lie;
        None if it has no such tiles."""
        source, staged = self._sources[side], self.staged[side]
        rows, _ = map(number, staged.shape[-2:])
        own, value = self._sides[side], source.value
        if not source.is_whole or source.guard is not None or not isinstance(value, Load):
            return None
        if self._is_across(side) == source.along_terms or rows % min(rows, _MOST_ROWS):
            return None
        if rows & (rows - 1) or own.extent % self._size[side] != 0 or self._k % self._depth != 0:
            return None
        terms, points = (
            [(name, extent) for name, extent in axes if extent != 1]
            for axes in (self._product.sums, own.axes)
        )
        inner, outer = (terms, points) if source.along_terms else (points, terms)
        row = ROW_BYTES // staged.dtype.nbytes
        if len(outer) != 1 or not inner or inner[-1][1] % row != 0:
            return None
        forms = [Simplifier({}).linear(index) for index in value.indices]
        along = [axis for axis, form in enumerate(forms) if Var(outer[0][0]) in form.terms]
        if len(along) != 1 or forms[along[0]].terms[Var(outer[0][0])] != 1:
            return None
        return along[0], source.axis

    def _met(self) -> Stmt:
        stored = not self.fetches or any(self._fetched_axes(side) is None for side in (0, 1))
        return Barrier(MemoryScope.WORKGROUP, self._stages - 2, publishes=stored)

    def _products(self) -> list[Stmt]:
        return [*super()._products(), Barrier(MemoryScope.WARPGROUP, 0)]

    def _multiply(self, group: tuple[Expr, Expr]) -> Stmt:
        declared, across = self._declared, [self._is_across(side) for side in (0, 1)]

        def factor(side: int, at: Expr, step: Expr) -> Tile:
            fragment = e.add(e.mul(group[side], self._each[side]), at)
            return self._staged_fragment(side, fragment, step)

        def multiply(step: Expr, row: Expr, column: Expr) -> Stmt:
            factors = factor(0, row, step), factor(1, column, step)
            operands = self._sum(group, (row, column)), *factors
            return Intrinsic(product_name(declared.name, across), operands, True)

        return self._unrolled((self._depth // declared.depth, *self._each), multiply)

    # -- results

    def _results(self) -> Stmt:
        """Return the phases that store the results, some columns of a fragment of each warpgroup at
        a time."""
        (rows, width), stored = self._fragment, self._stored()
        shape = self._subgroups[0] * rows, self._subgroups[1] * stored
        out = self._buffer(
            "results", self._declared.total, (shape[0], shape[1] + _PADDING), MemoryScope.WORKGROUP
        )
        several = math.gcd(self._results_at_once(), stored)
        chunks = shape[1] // several

        def part(at: tuple[int, int], column: int) -> list[Stmt]:
            def keep(group: tuple[Expr, Expr]) -> Stmt:
                origin = e.mul(group[0], rows), e.mul(group[1], stored)
                first = e.index(at[0]), e.index(at[1]), ZERO, e.index(column)
                operands = Tile(out, origin, (0, 1)), Tile(self._sums, (*group, *first), (4, 5))
                return Intrinsic(store_name(self._declared.name), operands)

            def results(point: Expr) -> Stmt:
                row, first = e.floordiv(point, chunks), e.mul(e.mod(point, chunks), several)
                fragments = [
                    e.add(e.mul(e.floordiv(own, size), each), e.index(number))
                    for own, size, each, number in zip(
                        (row, first), (rows, stored), self._each, at, strict=True
                    )
                ]
                own_row = e.add(e.mul(fragments[0], rows), e.mod(row, rows))
                within = e.add(e.mod(first, stored), e.index(column))
                own_column = e.add(e.mul(fragments[1], width), within)
                return self._store(out, (row, first), (own_row, own_column), several)

            return [self._of_subgroups(keep), self._of_threads(shape[0] * chunks, results)]

        # Written out, so that no barrier stands before the first.
        parts = [
            statement
            for row in range(self._each[0])
            for each in range(self._each[1])
            for column in range(0, width, stored)
            for statement in part((row, each), column)
        ]
        return Alloc(out, block(parts))

    def _stored(self) -> int:
        """Return the number of columns of a fragment that are stored at once."""
        _, part = lookup(store_name(self._declared.name)).semantics.params
        return number(part.shape[1])
