"""The schedule primitive `transpose_tiles`: copy an array to another order of its axes on a GPU by
tiles in workgroup memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, For, Function, LoopKind, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Indices, Substitution, loads
from farrier.schedule.accesses import writes
from farrier.schedule.launching import with_launch
from farrier.schedule.nest import NestView, loops, outermost_block
from farrier.schedule.tiling_parts import (
    ZERO,
    Axes,
    digits,
    is_nest,
    only_store,
    product_of,
    simplified,
    under,
)

_WORD = 4  # The bytes of a bank.


def transpose_tiles(function: Function, buffer: str, source: str, size: int, rows: int) -> Function:
    """Compute `buffer`, whose elements are computed of those of `source` in another order, as a GPU
    launch of tiles of `size` by `size` elements, with `rows` rows of `size` threads.

    before:
        @function
        def copy(x: f32[4, 6], y: f32[6, 4]):
            for i in serial(6):
                for j in serial(4):
                    y[i, j] = x[j, i] * 2.0
    after transpose_tiles("y", "x", 2, 1):
        @function
        def copy(x: f32[4, 6], y: f32[6, 4]):
            for y_by in block(2):
                for y_bx in block(3):
                    with alloc(f32[2, 3] in workgroup) as y_tile:
                        for y_ty0 in thread(1):
                            for y_tx0 in thread(2):
                                for y_turn0 in unrolled(2):
                                    y_tile[y_turn0, y_tx0] = x[y_by * 2 + y_turn0, y_bx * 2 + y_tx0]
                        for y_ty1 in thread(1):
                            for y_tx1 in thread(2):
                                for y_turn1 in unrolled(2):
                                    y[y_bx * 2 + y_turn1, y_by * 2 + y_tx1] = y_tile[y_tx1, \
y_turn1] * 2.0

    Neighbouring threads read elements that are neighbours in `source`, and write elements that are
    neighbours in `buffer`; between the two they lie in workgroup memory, where a word more in
    each row keeps the elements of a column out of each other's banks.
    """
    nest = NestView(function, "transpose_tiles")
    if size < 1 or rows < 1 or size % rows:
        nest.fail(f"{rows} rows of threads do not divide tiles of {size}")
    transposed = Transposed.of(nest, buffer, source)
    return with_launch(function, [transposed.nest], _launch(transposed, size, rows), ())


@dataclasses.dataclass(frozen=True)
class Transposed:
    """A nest that computes each element of a buffer of an element of `source` in another order.
    `read` are the axes along which elements of the source are neighbours, and `written` those along
    which the results are; the nest runs over `batch` besides."""

    nest: Stmt
    store: Store
    source: Buffer
    batch: Axes
    read: Axes
    written: Axes

    @classmethod
    def of(cls, nest: NestView, buffer: str, source: str) -> Transposed:
        nests = [s for s in outermost_block(nest.function.body) if buffer in writes(s)]
        if len(nests) != 1 or not is_nest(nests[0]):
            nest.fail(f"{buffer} is not computed by one nest of loops around one store")
        store = only_store(nests[0])
        places = {load.indices for load in loads(store.value) if load.buffer.name == source}
        if len(places) != 1:
            nest.fail(f"{buffer} reads {source} at {len(places)} places")
        extents = {loop.var: loop.extent for loop in loops(nests[0])}
        written = _order(store.indices, extents)
        read = _order(places.pop(), extents)
        named = set(read or ())
        if written is None or read is None or named != set(written) or named != _long(extents):
            nest.fail(f"{buffer} does not have each element of {source} once")
        if not store.buffer.is_plain:
            nest.fail(f"{buffer} does not lie row after row")
        inside = _before(read, written[-1:])
        along = _before(written, inside)
        if not inside or not along:
            nest.fail(f"{buffer} has the neighbours of {source}")
        origin = next(load.buffer for load in loads(store.value) if load.buffer.name == source)
        if not origin.is_plain:
            nest.fail(f"{source} does not lie row after row")

        def axes(names: Sequence[str]) -> Axes:
            return tuple((name, extents[name]) for name in names)

        batch = [name for name in written if name not in (*inside, *along)]
        return cls(nests[0], store, origin, axes(batch), axes(inside), axes(along))


def _long(extents: Mapping[str, Extent]) -> set[str]:
    return {name for name, extent in extents.items() if extent != 1}


def _order(indices: Indices, extents: Mapping[str, Extent]) -> list[str] | None:
    """Return the loops that are the indices of an access, without those of a single iteration; None
    if an index is another expression, or a loop occurs twice."""
    names = [index.name for index in indices if isinstance(index, Var) and index.name in extents]
    others = [index for index in indices if not isinstance(index, Var)]
    long = [name for name in names if extents[name] != 1]
    is_plain = all(index == ZERO for index in others) and len(set(long)) == len(long)
    return long if is_plain else None


def _before(names: Sequence[str], ends: Sequence[str]) -> list[str]:
    """Return the names after the last name that is in `ends`."""
    behind = max((at for at, name in enumerate(names) if name in ends), default=-1)
    return list(names[behind + 1 :])


def _launch(transposed: Transposed, size: int, rows: int) -> Stmt:
    """Return the launch: loops over tiles around the phases that read and write a tile."""
    store, source = transposed.store, transposed.source
    name = store.buffer.name
    shape = (size, size + max(1, _WORD // source.dtype.nbytes))
    tile = Buffer(f"{name}_tile", source.dtype, shape, None, MemoryScope.WORKGROUP)
    sides = transposed.written, transposed.read
    counts = [product_of(extent for _, extent in side) for side in sides]
    blocks = [Var(f"{name}_by"), Var(f"{name}_bx")]

    def placed(at: tuple[Expr, Expr], stmt: Stmt) -> Stmt:
        """Return a statement at a place of the tile: its row and its column are numbers of points
        along the written and the read axes."""
        values: dict[str, Expr] = {}
        conditions = []
        for axes, count, number, place in zip(sides, counts, blocks, at, strict=True):
            point = e.add(e.mul(number, size), place)
            values |= digits(point, axes)
            if not isinstance(count, int) or count % size:
                conditions.append(e.less(point, count))
        return under(conditions, Substitution(values).stmt(stmt))

    def phase(number: int, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        turn = Var(f"{name}_turn{number}")
        row, column = Var(f"{name}_ty{number}"), Var(f"{name}_tx{number}")
        inner = body(e.add(e.mul(turn, rows), row), column)
        loop: Stmt = For(turn.name, size // rows, LoopKind.UNROLLED, inner)
        loop = For(column.name, size, LoopKind.THREAD, loop)
        return For(row.name, rows, LoopKind.THREAD, loop)

    (origin,) = {load for load in loads(store.value) if load.buffer.name == source.name}

    def read(row: Expr, column: Expr) -> Stmt:
        at = Store(tile, (Var(f"{name}_row"), Var(f"{name}_column")), origin)
        where: dict[str, Expr] = {f"{name}_row": row, f"{name}_column": column}
        return placed((row, column), Substitution(where).stmt(at))

    def write(row: Expr, column: Expr) -> Stmt:
        def element(indices: Indices) -> Expr:
            return Load(tile, (column, row))

        change = Substitution({}, reads={source.name: element})
        return placed((column, row), Store(store.buffer, store.indices, change.expr(store.value)))

    body: Stmt = Alloc(tile, block([phase(0, read), phase(1, write)]))
    for number, count in zip(reversed(blocks), reversed(counts), strict=True):
        body = For(number.name, ceildiv(count, size), LoopKind.BLOCK, body)
    for axis, extent in reversed(transposed.batch):
        body = For(axis, extent, LoopKind.BLOCK, body)
    single = {loop.var: ZERO for loop in loops(transposed.nest) if loop.extent == 1}
    return simplified(Substitution(single).stmt(body))
