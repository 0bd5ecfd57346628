"""The schedule primitive `attend`: compute attention in one GPU launch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, For, Function, LoopKind, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Indices, Substitution, loads
from farrier.schedule.accesses import touches
from farrier.schedule.launching import with_launch
from farrier.schedule.nest import NestView, allocated, outermost_block
from farrier.schedule.product import Product
from farrier.schedule.share_rows import Part, RowLaunch, Rows
from farrier.schedule.tile_product import TileLaunch
from farrier.schedule.tiling_parts import product_of, simplified

_Pair: TypeAlias = tuple[int, int]
_Names: TypeAlias = tuple[str, str]


def attend(
    function: Function,
    first: _Names,
    between: Sequence[str],
    last: _Names,
    threads: _Pair,
    each: _Pair,
    depth: int,
    lanes: int = 1,
) -> Function:
    """Compute two products, and the buffers computed row by row between them, as one GPU launch:
    each block keeps the complete rows of its tile in workgroup memory.

    before:
        @function
        def attention(q: f32[4, 2], k: f32[2, 5], v: f32[5, 2], y: f32[4, 2]):
            with alloc(f32[4, 5] in workspace) as s:
                with alloc(f32[4] in workspace) as t:
                    for s_init_m in serial(4):
                        for s_init_n in serial(5):
                            s[s_init_m, s_init_n] = 0.0
                    for s_m in serial(4):
                        for s_n in serial(5):
                            for s_k in serial(2):
                                s[s_m, s_n] = s[s_m, s_n] + q[s_m, s_k] * k[s_k, s_n]
                    for t_init_m in serial(4):
                        t[t_init_m] = 0.0
                    for t_m in serial(4):
                        for t_k in serial(5):
                            t[t_m] = t[t_m] + s[t_m, t_k]
                    for y_init_m in serial(4):
                        for y_init_n in serial(2):
                            y[y_init_m, y_init_n] = 0.0
                    for y_m in serial(4):
                        for y_n in serial(2):
                            for y_k in serial(5):
                                y[y_m, y_n] = y[y_m, y_n] + s[y_m, y_k] * t[y_m] * v[y_k, y_n]
    after attend(("s", "s"), ("t",), ("y", "y"), (1, 2), (2, 1), 2):
        @function
        def attention(q: f32[4, 2], k: f32[2, 5], v: f32[5, 2], y: f32[4, 2]):
            for t_block in block(2):
                with alloc(f32[2, 5] in workgroup) as s:
                    with alloc(f32[2] in workgroup) as t:
                        with alloc(f32[2, 1] in register) as t_own:
                            for s_bx in serial(3):
                                with alloc(f32[1, 2, 2, 1] in register) as s_sums:
                                    for s_ty0 in thread(1):
                                        for s_tx0 in thread(2):
                                            for s_ey1 in unrolled(2):
                                                for s_ex1 in unrolled(1):
                                                    s_sums[s_ty0, s_tx0, s_ey1, 0] = 0.0
                                    with alloc(f32[2, 3] in workgroup) as s_rows:
                                        for s_ty2 in thread(1):
                                            for s_tx2 in thread(2):
                                                for s_turn0 in serial(2):
                                                    s_rows[s_tx2, s_turn0] = q[t_block * 2 + \
s_turn0, s_tx2]
                                        for s_ty3 in thread(1):
                                            for s_tx3 in thread(2):
                                                with alloc(f32[2] in register) as s_row:
                                                    with alloc(f32[1] in register) as s_column:
                                                        for s_ki in serial(2):
                                                            for s_erow in unrolled(2):
                                                                s_row[s_erow] = s_rows[s_ki, s_erow]
                                                            for s_ecolumn in unrolled(1):
                                                                if s_bx * 2 + s_tx3 < 5:
                                                                    s_column[0] = k[s_ki, s_bx * \
2 + s_tx3]
                                                                else:
                                                                    s_column[0] = 0.0
                                                            for s_ey4 in unrolled(2):
                                                                for s_ex4 in unrolled(1):
                                                                    s_sums[s_ty3, s_tx3, s_ey4, \
0] = s_sums[s_ty3, s_tx3, s_ey4, 0] + s_row[s_ey4] * s_column[0]
                                    for s_ty5 in thread(1):
                                        for s_tx5 in thread(2):
                                            for s_ey6 in unrolled(2):
                                                for s_ex6 in unrolled(1):
                                                    if s_bx * 2 + s_tx5 < 5:
                                                        s[s_ey6, s_bx * 2 + s_tx5] = \
s_sums[s_ty5, s_tx5, s_ey6, 0]
                            for t_row0 in thread(2):
                                for t_t0 in thread(1):
                                    t_own[t_row0, t_t0] = 0.0
                                    for t_turn1 in serial(5):
                                        t_own[t_row0, t_t0] = t_own[t_row0, t_t0] + s[t_row0, \
t_turn1]
                            for t_row2 in thread(2):
                                for t_t2 in thread(1):
                                    t[t_row2] = t_own[t_row2, t_t2]
                            with alloc(f32[1, 2, 2, 1] in register) as y_sums:
                                for y_ty0 in thread(1):
                                    for y_tx0 in thread(2):
                                        for y_ey1 in unrolled(2):
                                            for y_ex1 in unrolled(1):
                                                y_sums[y_ty0, y_tx0, y_ey1, 0] = 0.0
                                for y_ko in serial(3):
                                    with alloc(f32[2, 3] in workgroup) as y_rows:
                                        for y_ty2 in thread(1):
                                            for y_tx2 in thread(2):
                                                for y_turn0 in serial(2):
                                                    if y_ko * 2 + y_tx2 < 5:
                                                        y_rows[y_tx2, y_turn0] = s[y_turn0, y_ko \
* 2 + y_tx2] * t[y_turn0]
                                                    else:
                                                        y_rows[y_tx2, y_turn0] = 0.0
                                        for y_ty3 in thread(1):
                                            for y_tx3 in thread(2):
                                                with alloc(f32[2] in register) as y_row:
                                                    with alloc(f32[1] in register) as y_column:
                                                        for y_ki in serial(2):
                                                            for y_erow in unrolled(2):
                                                                y_row[y_erow] = y_rows[y_ki, y_erow]
                                                            for y_ecolumn in unrolled(1):
                                                                if y_ko * 2 + y_ki < 5:
                                                                    y_column[0] = v[y_ko * 2 + \
y_ki, y_tx3]
                                                                else:
                                                                    y_column[0] = 0.0
                                                            for y_ey4 in unrolled(2):
                                                                for y_ex4 in unrolled(1):
                                                                    y_sums[y_ty3, y_tx3, y_ey4, \
0] = y_sums[y_ty3, y_tx3, y_ey4, 0] + y_row[y_ey4] * y_column[0]
                                for y_ty5 in thread(1):
                                    for y_tx5 in thread(2):
                                        for y_ey6 in unrolled(2):
                                            for y_ex6 in unrolled(1):
                                                y[t_block * 2 + y_ey6, y_tx5] = y_sums[y_ty5, \
y_tx5, y_ey6, 0]

    Each of the pairs `first` and `last` names the buffer with the sums of a product and the buffer
    that is computed from these sums, as in `tile_product`; the buffers `between` are computed row
    by row, as in `share_rows`. A buffer takes over the memory of a buffer that it is computed from
    element by element if nothing reads the latter afterwards. Up to `lanes` threads of a row
    exchange their partial results through registers, as in `share_rows`.
    """
    nest = NestView(function, "attend")
    if threads[1] % each[0]:
        nest.fail(f"{threads[0] * each[0]} rows do not share {threads[0] * threads[1]} threads")
    return _Attention(nest, first, between, last, threads, each, depth, lanes).function()


def check_rows(nest: NestView, products: tuple[Product, Product], rows: Rows) -> None:
    """Fail unless both products have the same rows as the nests between them."""
    for product in products:
        long = [axis for axis in product.rows.axes if axis[1] != 1]
        batch = [axis for axis in product.batch if axis[1] != 1]
        extents = tuple(extent for _, extent in (*batch, *long))
        if product.joined or len(long) != 1 or extents != rows.extents:
            nest.fail(f"the rows of {product.total.name} are others")
    first, last = products
    axes = (*last.batch, *last.rows.axes)
    named = [name for name, extent in axes if extent != 1]
    reads = list(loads(last.rows.value))
    names = {read.buffer.name for read in reads}
    if not names & rows.places.keys():
        nest.fail(f"{last.total.name} reads none of the rows before it")
    for read in reads:
        places = rows.places.get(read.buffer.name, ())
        if places and tuple(read.indices[at] for at in places) != tuple(map(Var, named)):
            nest.fail(f"{read.buffer.name} is read at other rows")
    others = [last.columns.value, last.store.value, first.rows.value, first.columns.value]
    for value in others:
        if any(read.buffer.name in rows.places for read in loads(value)):
            nest.fail("a row is read beyond the first factor of the last product")


class _Attention(RowLaunch):
    """The builder of the launch of `attend`: two products and the row-wise nests between them."""

    def __init__(
        self,
        nest: NestView,
        first: _Names,
        between: Sequence[str],
        last: _Names,
        threads: _Pair,
        each: _Pair,
        depth: int,
        lanes: int,
    ) -> None:
        self._nest = nest
        self._products = Product.of(nest, *first), Product.of(nest, *last)
        self._scores = first[1]
        rows = Rows.of(nest, between, (first[1],))
        check_rows(nest, self._products, rows)
        self._tile = threads, each, depth
        shape = threads[0] * each[0], threads[1] // each[0]
        super().__init__(nest.function, rows, *shape, 0, lanes)

    # -- the memory of a block

    def _placed(self, function: Function, shared_bytes: int) -> dict[str, Buffer]:
        group, placed = self._group, dict[str, Buffer]()
        in_product = {read.buffer.name for read in loads(self._products[1].rows.value)}
        mine = (*group.nests, *self._products[0].nests, *self._products[1].nests)
        own = [s for s in outermost_block(function.body) if not any(s is n for n in mine)]
        local = {buffer.name: buffer for buffer in allocated(function.body)}
        for name in group.places:
            if name not in local or any(touches(stmt, name) for stmt in own):
                self._nest.fail(f"other nests need {name}")
            buffer, rest = local[name], self._rest(local[name])
            size = product_of(rest)
            if not isinstance(size, int):
                self._nest.fail(f"a row of {name} has {size} elements, which are not a number")
            shape: tuple[Extent, ...] = (self._rows, *rest)
            scope = MemoryScope.WORKGROUP
            if size == 1 and name not in in_product:
                shape, scope = (self._rows, self._threads, *rest), MemoryScope.LOCAL
            placed[name] = dataclasses.replace(buffer, shape=shape, layout=None, scope=scope)
        return self._in_place(placed)

    def _in_place(self, placed: dict[str, Buffer]) -> dict[str, Buffer]:
        """Let buffers share memory, and return `placed` with the changes. If a buffer is computed
        element by element from another buffer, which nothing reads afterwards, the two share the
        memory of the latter."""
        parts = self._group.parts
        for at, part in enumerate(parts):
            name = part.store.buffer.name
            for read in loads(part.store.value):
                old = placed.get(read.buffer.name)
                later = [other.store.value for other in parts[at + 1 :]]
                later.append(self._products[1].rows.value)
                is_dead = not any(
                    load.buffer.name == read.buffer.name for value in later for load in loads(value)
                )
                if (
                    old is not None
                    and part.first is None
                    and is_dead
                    and _long(read) == _long(part.store)
                    and old.shape == placed[name].shape
                    and old.scope is MemoryScope.WORKGROUP
                    and old.dtype == placed[name].dtype
                ):
                    placed[name] = old
                    break
        return placed

    # -- the rows of a block

    @property
    def count(self) -> Extent:
        return self._group.extents[-1]

    def row_values(self, part: Part, row: Expr) -> dict[str, Expr]:
        batch = {name: self._batch(at) for at, name in enumerate(part.rows[:-1])}
        return {**batch, part.rows[-1]: self.number(row)}

    def _batch(self, at: int) -> Var:
        return self._var(f"batch{at}")

    # -- the launch

    def function(self) -> Function:
        """Return the function in which the launch replaces the loop nests of both products and of
        the stages between them."""
        function = self._nest.function
        nests = (*self._products[0].nests, *self._group.nests, *self._products[1].nests)
        gone = {self._products[0].total.name, *self.inside}
        if self._products[1].store.buffer.name != self._products[1].total.name:
            gone.add(self._products[1].total.name)
        return with_launch(function, nests, self.body(), gone)

    def body(self) -> Stmt:
        rows = [stmt for part in self._group.parts for stmt in self.phases(part)]
        body = block([self._tiles(0), *rows, self._tiles(1)])
        inside = {buffer.name: buffer for buffer in self.inside.values()}
        for buffer in (*self.joined, *inside.values()):
            body = Alloc(buffer, body)
        blocks = ceildiv(self.count, self._rows)
        body = For(self._var("block").name, blocks, LoopKind.BLOCK, body)
        for at, extent in reversed(list(enumerate(self._group.extents[:-1]))):
            body = For(self._batch(at).name, extent, LoopKind.BLOCK, body)
        return simplified(body)

    def _tiles(self, number: int) -> Stmt:
        """Return the loop over the column tiles of product 0 or 1 within the rows of a block."""
        product, tile = self._products[number], self._tile
        launch = TileLaunch(product, *tile)
        name = product.total.name
        values: dict[str, Expr] = {f"{name}_by": self._var("block")}
        batch = [axis for axis, extent in product.batch if extent != 1]
        values |= {f"{axis}_b": self._batch(at) for at, axis in enumerate(batch)}
        values |= {f"{axis}_b": e.index(0) for axis, extent in product.batch if extent == 1}
        first = e.mul(self._var("block"), self._rows)

        def access(buffer: Buffer, indices: Indices) -> Indices:
            if buffer.name not in self.inside:
                return indices
            places = self._group.places[buffer.name]
            rest = (index for at, index in enumerate(indices) if at not in places)
            return (e.sub(indices[places[-1]], first), *rest)

        change = Substitution(values, self.inside, access=access)
        body = change.stmt(launch.phases())
        return For(f"{name}_bx", launch.tiles(1), LoopKind.SERIAL, body)


def _long(access: Load | Store) -> tuple[Expr, ...]:
    """Return the indices of an access along the axes with more than one element."""
    shape = access.buffer.shape
    return tuple(index for index, extent in zip(access.indices, shape, strict=True) if extent != 1)
