"""The schedule primitive `share_rows`: compute row-wise reductions and their users in one GPU
launch.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Binary, Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, For, Function, LoopKind, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Indices, Substitution, loads, variables
from farrier.ir.threads import PRIVATE, SUBGROUP_SIZE
from farrier.ir.types import DType
from farrier.schedule.accesses import touches, writes
from farrier.schedule.launching import with_launch
from farrier.schedule.nest import NestView, allocated, loops, outermost_block
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

_WORDS = (DType.F32, DType.I32, DType.U32)  # The types of values that threads exchange.
_MOST_OWN = 64  # Elements of a row that a thread keeps itself: more do not stay in registers.


def share_rows(
    function: Function,
    buffers: Sequence[str],
    rows: int,
    threads: int,
    shared_bytes: int,
    lanes: int = 1,
) -> Function:
    """Compute buffers row by row in one GPU launch: each block computes `rows` rows with `threads`
    threads for each row.

    before:
        @function
        def share(x: f32[6, 9], y: f32[6, 9]):
            with alloc(f32[6] in workspace) as s:
                for s_init_i in serial(6):
                    s[s_init_i] = 0.0
                for s_i in serial(6):
                    for s_k in serial(9):
                        s[s_i] = s[s_i] + x[s_i, s_k]
                for y_i in serial(6):
                    for y_j in serial(9):
                        y[y_i, y_j] = x[y_i, y_j] / s[y_i]
    after share_rows(("s", "y"), 2, 4, 1024):
        @function
        def share(x: f32[6, 9], y: f32[6, 9]):
            for s_block in block(3):
                with alloc(f32[2, 4] in local) as s:
                    with alloc(f32[2, 2] in workgroup) as s_sums:
                        with alloc(f32[2, 4] in workgroup) as s_parts:
                            with alloc(f32[2, 4] in register) as s_own:
                                for s_row0 in thread(2):
                                    for s_t0 in thread(4):
                                        s_own[s_row0, s_t0] = 0.0
                                        for s_turn1 in serial(3):
                                            if s_turn1 * 4 + s_t0 < 9:
                                                s_own[s_row0, s_t0] = s_own[s_row0, s_t0] + \
x[s_block * 2 + s_row0, s_turn1 * 4 + s_t0]
                                for s_row2 in thread(2):
                                    for s_t2 in thread(4):
                                        s_parts[s_row2, s_t2] = s_own[s_row2, s_t2]
                                for s_row3 in thread(2):
                                    for s_t3 in thread(4):
                                        if s_t3 < 2:
                                            s_own[s_row3, s_t3] = 0.0
                                            for s_turn4 in serial(2):
                                                s_own[s_row3, s_t3] = s_own[s_row3, s_t3] + \
s_parts[s_row3, s_t3 * 2 + s_turn4]
                                            s_sums[s_row3, s_t3] = s_own[s_row3, s_t3]
                                for s_row5 in thread(2):
                                    for s_t5 in thread(4):
                                        s_own[s_row5, s_t5] = 0.0
                                        for s_turn6 in serial(2):
                                            s_own[s_row5, s_t5] = s_own[s_row5, s_t5] + \
s_sums[s_row5, s_turn6]
                                for s_row7 in thread(2):
                                    for s_t7 in thread(4):
                                        s[s_row7, s_t7] = s_own[s_row7, s_t7]
                                for s_row8 in thread(2):
                                    for s_t8 in thread(4):
                                        for s_turn9 in serial(3):
                                            if s_turn9 * 4 + s_t8 < 9:
                                                y[s_block * 2 + s_row8, s_turn9 * 4 + s_t8] = \
x[s_block * 2 + s_row8, s_turn9 * 4 + s_t8] / s[s_row8, s_t8]

    The rows are the points of the first reduction among the buffers. Each thread reduces a part of
    its row, and then all threads of the row combine their partial results. A buffer with a single
    element per row is kept in the local memory of each thread. A longer buffer that no other nest
    accesses is kept in workgroup memory while `shared_bytes` last, or in the thread's local memory
    if `threads` is 1. Other buffers stay where they are.

    If a block consists of complete subgroups and the values are 32-bit words, up to `lanes`
    neighbouring threads combine their partial results by a butterfly exchange of registers: in each
    step a thread combines its value with that of the thread whose number differs in one bit. This
    needs no workgroup memory.
    """
    nest = NestView(function, "share_rows")
    if lanes < 1 or lanes & (lanes - 1) or lanes > SUBGROUP_SIZE:
        nest.fail(f"{lanes} threads do not exchange the parts of {buffers[0]}")
    if min(rows, threads) < 1:
        nest.fail(f"{threads} threads for each of {rows} rows")
    group = Rows.of(nest, buffers)
    launch = RowLaunch(function, group, rows, threads, shared_bytes, lanes)
    return _replaced(function, group, launch)


@dataclasses.dataclass(frozen=True)
class Part:
    """One nest of a launch by rows: its store, its loops over rows, and its loops within a row. If
    the store is a reduction, `first` is the initial value, else None."""

    store: Store
    rows: tuple[str, ...]
    inner: Axes
    first: Expr | None


@dataclasses.dataclass(frozen=True)
class Rows:
    """The loop nests that one launch computes row by row. `places` maps each buffer to the numbers
    of its axes that run over rows."""

    nests: tuple[Stmt, ...]
    parts: tuple[Part, ...]
    extents: tuple[Extent, ...]
    places: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, nest: NestView, buffers: Sequence[str], read: Sequence[str] = ()) -> Rows:
        """Return the description of the nests that write `buffers`; fail unless all of them run
        over the same rows. The buffers `read` have the same rows and are computed by other nests.
        """
        nests = _nests_of(nest, buffers)
        stores = [only_store(stmt) for stmt in nests]
        extents = [{loop.var: loop.extent for loop in loops(stmt)} for stmt in nests]
        reductions = [at for at, store in enumerate(stores) if _reduces(store)]
        if not reductions:
            nest.fail(f"nothing among {', '.join(buffers)} is reduced")
        seed = reductions[0]
        names = [index.name for index in stores[seed].indices if isinstance(index, Var)]
        shape = tuple(extents[seed][name] for name in names if extents[seed][name] != 1)
        places = _places(nest, (*buffers, *read), stores, extents, seed, len(shape))
        parts = []
        begun: dict[str, Expr] = {}
        for store, ranges in zip(stores, extents, strict=True):
            rows = _rows_in(nest, store, places, len(shape))
            if tuple(ranges[row] for row in rows) != shape:
                nest.fail(f"the rows of {store.buffer.name} are others")
            _check_reads(nest, store, places, rows)
            inner = tuple((name, n) for name, n in ranges.items() if name not in rows and n != 1)
            name = store.buffer.name
            is_first = not _reduces(store) and name in {
                other.buffer.name for other in stores if _reduces(other)
            }
            if is_first:
                begun[name] = store.value
                continue
            if _reduces(store) and set(map(Var, _names(inner))) & set(store.indices):
                nest.fail(f"{name} has several elements in a row")
            parts.append(Part(store, rows, inner, begun.get(name) if _reduces(store) else None))
        return cls(tuple(nests), tuple(parts), shape, places)

    @property
    def count(self) -> Extent:
        return product_of(self.extents)


def _names(axes: Axes) -> tuple[str, ...]:
    return tuple(name for name, _ in axes)


def _nests_of(nest: NestView, buffers: Sequence[str]) -> list[Stmt]:
    """Return the nests that write the buffers; fail unless they are perfect and directly follow
    each other."""
    statements = outermost_block(nest.function.body)
    places = [at for at, stmt in enumerate(statements) if writes(stmt) & set(buffers)]
    if not places or places != list(range(places[0], places[-1] + 1)):
        nest.fail(f"the nests of {', '.join(buffers)} do not follow each other")
    nests = [statements[at] for at in places]
    if not all(is_nest(stmt) for stmt in nests):
        nest.fail(f"the nests of {', '.join(buffers)} are not loops around one store")
    return nests


def _reduces(store: Store) -> bool:
    """Check whether a store combines a term with the element that it overwrites."""
    own = Load(store.buffer, store.indices)
    return isinstance(store.value, Binary) and store.value.left == own


def _places(
    nest: NestView,
    buffers: Sequence[str],
    stores: Sequence[Store],
    extents: Sequence[Mapping[str, Extent]],
    seed: int,
    rank: int,
) -> dict[str, tuple[int, ...]]:
    """Find out which axes of each buffer run over rows; return them by the name of the buffer.
    `rank` is the number of row axes that each buffer must have.

    The search starts with the reduction `stores[seed]`, whose row axes are those of its loops. If a
    nest accesses a buffer with known row axes, the row axes of all other buffers that it accesses
    at the same row follow from these.
    """
    first = stores[seed]
    long = [
        at
        for at, index in enumerate(first.indices)
        if isinstance(index, Var) and extents[seed][index.name] != 1
    ]
    places = {first.buffer.name: tuple(long)}
    for _ in stores:
        for store in stores:
            accesses = [Load(store.buffer, store.indices)]
            accesses += [load for load in loads(store.value) if load.buffer.name in buffers]
            for access in accesses:
                if access.buffer.name in places:
                    row = [access.indices[at] for at in places[access.buffer.name]]
                    break
            else:
                continue
            for access in accesses:
                if access.buffer.name not in places and all(i in access.indices for i in row):
                    places[access.buffer.name] = tuple(access.indices.index(i) for i in row)
    for name in buffers:
        if len(places.get(name, range(-1))) != rank if name in places else True:
            nest.fail(f"{name} does not go from row to row")
    return places


def _rows_in(
    nest: NestView, store: Store, places: Mapping[str, tuple[int, ...]], rank: int
) -> tuple[str, ...]:
    row = [store.indices[at] for at in places[store.buffer.name]]
    names = tuple(index.name for index in row if isinstance(index, Var))
    if len(set(names)) != rank:
        nest.fail(f"{store.buffer.name} does not go from row to row")
    return names


def _check_reads(
    nest: NestView, store: Store, places: Mapping[str, tuple[int, ...]], rows: tuple[str, ...]
) -> None:
    for load in loads(store.value):
        if load.buffer.name not in places:
            continue
        row = tuple(load.indices[at] for at in places[load.buffer.name])
        if row != tuple(map(Var, rows)):
            nest.fail(f"{store.buffer.name} reads {load.buffer.name} at other rows")


def _replaced(function: Function, group: Rows, launch: RowLaunch) -> Function:
    """Return the function with the launch in place of the last nest of the group."""
    body = launch.body()
    gone = {name for name, buffer in launch.inside.items() if buffer.name == name}
    return with_launch(function, group.nests, body, gone)


class RowLaunch:
    """The builder of a launch by rows; `group` describes the nests."""

    def __init__(
        self,
        function: Function,
        group: Rows,
        rows: int,
        threads: int,
        shared_bytes: int,
        lanes: int,
    ) -> None:
        self._group = group
        self._rows, self._threads = rows, threads
        is_whole = rows * threads % SUBGROUP_SIZE == 0 and threads & (threads - 1) == 0
        self._lanes = min(lanes, threads) if is_whole else 1
        self._name = group.parts[0].store.buffer.name
        self._numbers = itertools.count()
        # The buffers that live within a block, by name.
        self.inside = self._placed(function, shared_bytes)
        self.joined: list[Buffer] = []

    def _var(self, name: str) -> Var:
        return Var(f"{self._name}_{name}")

    def _placed(self, function: Function, shared_bytes: int) -> dict[str, Buffer]:
        """Return the buffers that can be kept within a block, by their old names, with new shapes
        and memory scopes. They are the buffers that no other nest accesses and that fit in the
        local memory of a thread or in the workgroup memory (`shared_bytes`)."""
        group = self._group
        others = [
            stmt
            for stmt in outermost_block(function.body)
            if not any(stmt is nest for nest in group.nests)
        ]
        left = shared_bytes - self._part_bytes()
        placed = {}
        for buffer in allocated(function.body):
            if buffer.name not in group.places or any(touches(s, buffer.name) for s in others):
                continue
            rest = self._rest(buffer)
            size = product_of(rest)
            shape: tuple[Extent, ...] | None = None
            scope = MemoryScope.LOCAL
            if not isinstance(size, int):
                continue
            nbytes = self._rows * size * buffer.dtype.nbytes
            if size == 1 or (self._threads == 1 and size <= _MOST_OWN):
                shape = (self._rows, self._threads, *rest)
            elif self._threads > 1 and nbytes <= left:
                shape, scope = (self._rows, *rest), MemoryScope.WORKGROUP
                left -= nbytes
            if shape is not None:
                placed[buffer.name] = dataclasses.replace(
                    buffer, shape=shape, layout=None, scope=scope
                )
        return placed

    def _part_bytes(self) -> int:
        parts = [part for part in self._group.parts if part.first is not None]
        width = self._threads + self._groups()
        return sum(self._rows * width * part.store.buffer.dtype.nbytes for part in parts)

    def _groups(self) -> int:
        """Return the number of groups into which the threads of a row are divided to combine their
        partial results: about the square root of their number. In the first step, one thread for
        each group combines the results of the group; in the second step, the results of the groups
        are combined."""
        return 1 << (self._threads.bit_length() // 2)

    def _rest(self, buffer: Buffer) -> list[Extent]:
        """Return the extents of the axes of a buffer that do not run over rows."""
        places = self._group.places[buffer.name]
        return [n for at, n in enumerate(buffer.shape) if at not in places]

    @property
    def count(self) -> Extent:
        """The total number of rows that the blocks divide among themselves."""
        return self._group.count

    def row_values(self, part: Part, row: Expr) -> dict[str, Expr]:
        """Return the value of each row loop of a nest for row number `row` of this block."""
        axes = tuple(zip(part.rows, self._group.extents, strict=True))
        return dict(digits(self.number(row), axes))

    def body(self) -> Stmt:
        """Return the launch: block loops around the phases of all nests, with the buffers that they
        need."""
        statements = [stmt for part in self._group.parts for stmt in self.phases(part)]
        body = block(statements)
        for buffer in (*self.joined, *self.inside.values()):
            body = Alloc(buffer, body)
        blocks = ceildiv(self._group.count, self._rows)
        body = For(self._var("block").name, blocks, LoopKind.BLOCK, body)
        return simplified(body)

    def _phase(self, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        number = next(self._numbers)
        row, thread = self._var(f"row{number}"), self._var(f"t{number}")
        inner = For(thread.name, self._threads, LoopKind.THREAD, body(row, thread))
        return For(row.name, self._rows, LoopKind.THREAD, inner)

    def phases(self, part: Part) -> list[Stmt]:
        """Return the phases (loops over threads between barriers) that compute one nest."""
        if part.first is not None:
            return self._reduction(part)
        size = product_of(extent for _, extent in part.inner)

        def body(row: Expr, thread: Expr) -> Stmt:
            store = self._at(part, row, thread, part.store)
            if size == 1:
                return self._once(store, row, thread)
            return self._over_row(part, row, thread, store)

        return [self._phase(body)]

    def _once(self, store: Store, row: Expr, thread: Expr) -> Stmt:
        """Return a store for a nest with one element per row: executed by each thread if the buffer
        is local, else by the first thread of the row."""
        is_own = store.buffer.scope is MemoryScope.LOCAL
        conditions = [] if is_own or self._threads == 1 else [e.less(thread, 1)]
        return under([*self._of_row(row, store), *conditions], store)

    def _of_row(self, row: Expr, store: Store) -> list[Expr]:
        """Return the guard that `row` is below the number of rows, as a list of at most one
        condition. No guard is needed if the blocks divide the rows evenly or the store accesses
        only private memory."""
        count = self.count
        touched = [store.buffer, *(load.buffer for load in loads(store.value))]
        if all(buffer.scope in PRIVATE for buffer in touched):
            return []
        if isinstance(count, int) and count % self._rows == 0:
            return []
        return [e.less(self.number(row), count)]

    def number(self, row: Expr) -> Expr:
        return e.add(e.mul(self._var("block"), self._rows), row)

    def _over_row(self, part: Part, row: Expr, thread: Expr, stmt: Store) -> Stmt:
        """Return the loop in which the thread `thread` of a row executes `stmt` for its share of
        the row's elements."""
        turn = self._var(f"turn{next(self._numbers)}")
        size = product_of(extent for _, extent in part.inner)
        at = e.add(e.mul(turn, self._threads), thread)
        body = Substitution(digits(at, part.inner)).stmt(stmt)
        is_full = isinstance(size, int) and size % self._threads == 0
        conditions = [] if is_full else [e.less(at, size)]
        loop = For(
            turn.name, ceildiv(size, self._threads), LoopKind.SERIAL, under(conditions, body)
        )
        return under(self._of_row(row, stmt), loop)

    def _at(self, part: Part, row: Expr, thread: Expr, store: Store) -> Store:
        """Return a store of a nest, rewritten for a row of the block and a thread: with the row's
        loop values, and with the buffers that are now kept within the block."""
        values = self.row_values(part, row)
        inner = set(_names(part.inner))
        for name in variables(store.value).union(*map(variables, store.indices)):
            if name not in values and name not in inner:
                values[name] = ZERO

        def access(buffer: Buffer, indices: Indices) -> Indices:
            inside = self.inside.get(buffer.name)
            if inside is None:
                return indices
            places = self._group.places[buffer.name]
            rest = tuple(index for at, index in enumerate(indices) if at not in places)
            own = (row, thread) if inside.scope is MemoryScope.LOCAL else (row,)
            return (*own, *rest)

        change = Substitution(values, self.inside, access=access)
        changed = change.stmt(store)
        assert isinstance(changed, Store)
        return changed

    def _reduction(self, part: Part) -> list[Stmt]:
        """Return the phases of a reduction: each thread reduces its share of a row, the threads of
        the row combine these, and the result is stored."""
        assert part.first is not None
        target, value = part.store.buffer, part.store.value
        assert isinstance(value, Binary)
        own = Buffer(
            f"{target.name}_own",
            target.dtype,
            (self._rows, self._threads),
            None,
            MemoryScope.REGISTER,
        )
        self.joined.append(own)
        op, first = value.op, part.first

        def mine(row: Expr, thread: Expr) -> Stmt:
            place = (row, thread)
            moved = self._at(part, row, thread, part.store)
            assert isinstance(moved.value, Binary)
            term = Binary(op, Load(own, place), moved.value.right)
            return block(
                [
                    Store(own, place, first),
                    self._over_row(part, row, thread, Store(own, place, term)),
                ]
            )

        statements = [self._phase(mine)]
        if self._threads > 1:
            statements += self._join(part, own, op, first)

        def keep(row: Expr, thread: Expr) -> Stmt:
            moved = self._at(part, row, thread, part.store)
            return self._once(
                dataclasses.replace(moved, value=Load(own, (row, thread))), row, thread
            )

        return [*statements, self._phase(keep)]

    def _join(self, part: Part, own: Buffer, op: e.BinaryOp, first: Expr) -> list[Stmt]:
        """Return the phases that combine the partial results of a row's threads, so that each
        thread has the result of the row.

        This takes two steps. First, one thread for each group of threads combines the results of
        its group. Then every thread combines the results of all groups.
        """
        if self._lanes > 1 and own.dtype in _WORDS:
            return self._exchanged(part, own, op, first)
        groups = self._groups()
        each = -(-self._threads // groups)
        parts = self._shared(part, "parts", self._threads)

        def put(row: Expr, thread: Expr) -> Stmt:
            return Store(parts, (row, thread), Load(own, (row, thread)))

        def total(row: Expr, thread: Expr, count: int) -> Stmt:
            turn = self._var(f"turn{next(self._numbers)}")
            at = e.add(e.mul(thread, count), turn)
            place = (row, thread)
            join = Binary(op, Load(own, place), Load(parts, (row, at)))
            conditions = [e.less(at, self._threads)] if groups * count > self._threads else []
            loop = For(
                turn.name, count, LoopKind.SERIAL, under(conditions, Store(own, place, join))
            )
            return block([Store(own, place, first), loop])

        if each == 1:
            return [self._phase(put), self._all(own, parts, op, first)]
        sums = self._shared(part, "sums", groups)

        def some(row: Expr, thread: Expr) -> Stmt:
            joined = total(row, thread, each)
            keep = Store(sums, (row, thread), Load(own, (row, thread)))
            return under([e.less(thread, groups)], block([joined, keep]))

        return [
            self._phase(put),
            self._phase(some),
            self._all(own, sums, op, first),
        ]

    def _shared(self, part: Part, label: str, width: int) -> Buffer:
        """Return a new workgroup buffer with `width` elements for each row, named after the target
        of `part`."""
        target = part.store.buffer
        shape = self._rows, width
        name = f"{target.name}_{label}"
        buffer = Buffer(name, target.dtype, shape, None, MemoryScope.WORKGROUP)
        self.joined.append(buffer)
        return buffer

    def _all(self, own: Buffer, source: Buffer, op: e.BinaryOp, first: Expr) -> Stmt:
        """Return the phase in which every thread of a row combines all elements of that row in the
        buffer `source`, and stores the result in its element of `own`."""
        _, count = source.shape

        def join(row: Expr, thread: Expr) -> Stmt:
            turn = self._var(f"turn{next(self._numbers)}")
            place = (row, thread)
            both = Binary(op, Load(own, place), Load(source, (row, turn)))
            loop = For(turn.name, count, LoopKind.SERIAL, Store(own, place, both))
            return block([Store(own, place, first), loop])

        return self._phase(join)

    def _exchanged(self, part: Part, own: Buffer, op: e.BinaryOp, first: Expr) -> list[Stmt]:
        """Return the phases that combine the partial results of a row's threads. Within a group of
        lanes of a subgroup, threads exchange registers. The results of all groups of the row are
        then combined through workgroup memory."""
        other = dataclasses.replace(own, name=f"{part.store.buffer.name}_other")
        self.joined.append(other)
        phases = []
        mask = self._lanes // 2
        while mask:

            def exchange(row: Expr, thread: Expr, mask: int = mask) -> Stmt:
                lane = Binary(e.BinaryOp.BIT_XOR, thread, e.index(mask))
                return Store(other, (row, thread), Load(own, (row, lane)))

            def join(row: Expr, thread: Expr) -> Stmt:
                place = (row, thread)
                return Store(own, place, Binary(op, Load(own, place), Load(other, place)))

            phases += [self._phase(exchange), self._phase(join)]
            mask //= 2
        if self._lanes == self._threads:
            return phases
        parts = self._shared(part, "parts", self._threads // self._lanes)

        def put(row: Expr, thread: Expr) -> Stmt:
            keep = Store(parts, (row, e.floordiv(thread, self._lanes)), Load(own, (row, thread)))
            return under([e.less(e.mod(thread, self._lanes), 1)], keep)

        return [*phases, self._phase(put), self._all(own, parts, op, first)]
