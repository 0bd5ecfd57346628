"""Run the lowered form of a kernel, all threads of many blocks at once, and detect its races.

Arithmetic is that of numpy in the dtypes of the kernel. For every element that threads share,
shadow memory records which thread read and wrote it last, and at which statement. So a race is
detected in whatever order the threads would run: two threads access one element, one of the
accesses writes it, and no barrier separates them. Blocks never wait for each other, so an element
that one block writes must not be accessed by another block within the launch. An element of a
workgroup buffer that has not been written must not be read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from farrier.errors import CompilerError
from farrier.ir.choices import with_usual_choices
from farrier.ir.dim import number
from farrier.ir.expr import Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    Prefetch,
    Stmt,
    Store,
    Tile,
    While,
)
from farrier.ir.points import Points
from farrier.ir.printer import print_ir
from farrier.ir.run_products import Begun, Products
from farrier.ir.statements import walk_stmts
from farrier.ir.threads import (
    FRAGMENTS,
    PRIVATE,
    SUBGROUP_SIZE,
    UNSEEN,
    WARPGROUP_SIZE,
    Launch,
    LoweredLaunch,
    extents_of,
    launches,
    verify_threads,
)

Array: TypeAlias = npt.NDArray[Any]

# Threads that run at once: enough that the cost of a call of numpy does not show.
_THREADS = 1 << 16
_NOBODY = -1
_SEVERAL = -2


def run_threads(
    function: Function,
    inputs: Mapping[str, Array],
    *,
    initial: Mapping[str, Array] | None = None,
    packed: bool = False,
    meaning: Callable[[str], Function] | None = None,
) -> dict[str, Array]:
    """Run a kernel in the lowered form, its dims bound to numbers, on logical arrays.

    Return, by name, the arrays of the parameters that are not among `inputs`: logical arrays or,
    with `packed`, their memory. `initial` holds contents of some of these before the run, and
    `meaning` returns the declared semantics of an intrinsic as a function with the output first. An
    intrinsic of a subgroup or warpgroup is run once, by its first thread.

    Raises CompilerError, with the statements, for a race, a barrier that not all threads of a block
    reach, an index outside its buffer, a read of workgroup memory that has not been written, and a
    missing wait or fence of asynchronous products.
    """
    function = with_usual_choices(function)
    verify_threads(function)
    contents = {**inputs, **(initial or {})}
    memory: dict[str, Array] = {}
    for buffer in (*function.params, *_workspaces(function.body)):
        memory[buffer.name] = _fresh(buffer)
        if (array := contents.get(buffer.name)) is not None:
            array = array.reshape(buffer.type.static_shape)
            memory[buffer.name] = buffer.element_layout.pack(array).reshape(-1).copy()
    with np.errstate(all="ignore"):
        for launch in launches(function):
            _run(function, launch, memory, meaning)
    outputs = {}
    for buffer in function.params:
        if buffer.name not in inputs:
            layout, shape = buffer.element_layout, buffer.type.static_shape
            flat = memory[buffer.name]
            physical = flat.reshape(layout.physical_shape(shape))
            outputs[buffer.name] = physical if packed else layout.unpack(flat, shape)
    return outputs


def _workspaces(stmt: Stmt) -> tuple[Buffer, ...]:
    return tuple(
        part.buffer
        for part in walk_stmts(stmt)
        if isinstance(part, Alloc) and part.buffer.scope is MemoryScope.WORKSPACE
    )


def _size(buffer: Buffer) -> int:
    return math.prod(buffer.element_layout.physical_shape(buffer.type.static_shape))


def _fresh(buffer: Buffer, *around: int) -> Array:
    undefined = math.nan if buffer.dtype.is_float else 0
    return np.full((*around, _size(buffer)), undefined, buffer.dtype.numpy)


def _run(
    function: Function,
    launch: Launch,
    memory: Mapping[str, Array],
    meaning: Callable[[str], Function] | None,
) -> None:
    shape = tuple(number(loop.extent) for loop in launch.blocks)
    blocks = math.prod(shape)
    lowered = LoweredLaunch.of(launch)
    extents = extents_of(lowered.threads)
    threads = math.prod(extents)
    at_once = max(1, _THREADS // max(1, threads))
    shadows = {name: _Shadow(array.size) for name, array in memory.items()}
    history = _History()
    for first in range(0, blocks, at_once):
        numbers = np.arange(first, min(blocks, first + at_once), dtype=np.int64)
        variables: dict[str, Any] = {}
        for loops, sizes, flat in (
            (launch.blocks, shape, numbers[:, None]),
            (lowered.threads, extents, np.arange(threads, dtype=np.int64)[None, :]),
        ):
            for loop, digit in zip(loops, np.unravel_index(flat, sizes or (1,)), strict=False):
                variables[loop.var] = digit
        run = _Blocks(function, numbers, threads, variables, memory, shadows, history)
        run.meaning = meaning
        for buffer in lowered.shared:
            run.allocate(buffer)
        run.stmt(lowered.body, np.ones((len(numbers), threads), bool))


@dataclasses.dataclass
class _History:
    """The synchronization so far within a launch: the number of all barriers that were passed
    (`workgroup`), and the number of barriers that also order accesses to the kernel's arguments
    (`device`). `statements` has the statements that accessed memory, which races are reported
    with."""

    workgroup: int = 0
    device: int = 0
    statements: list[Stmt] = dataclasses.field(default_factory=list)
    _numbers: dict[int, int] = dataclasses.field(
        default_factory=dict
    )  # By the identity of a statement.

    def number_of(self, stmt: Stmt) -> int:
        if id(stmt) not in self._numbers:
            self._numbers[id(stmt)] = len(self.statements)
            self.statements.append(stmt)
        return self._numbers[id(stmt)]


class _Shadow:
    """The last writer and the last reader of each of `size` elements: thread, block, time (the
    number of barriers before the access) and statement."""

    def __init__(self, size: int) -> None:
        self.writer, self.reader = _Touches(size), _Touches(size)


class _Touches:
    def __init__(self, size: int) -> None:
        self.thread = np.full(size, _NOBODY, np.int64)
        self.block = np.full(size, _NOBODY, np.int64)
        self.time = np.full(size, _NOBODY, np.int64)
        self.statement = np.zeros(size, np.int64)

    def clashes(self, at: Array, threads: Array, blocks: Array, time: int) -> Array:
        """Return a mask of the elements `at` whose last access is by another thread, without a
        barrier in between, or by another block."""
        elsewhere = (self.block[at] != _NOBODY) & (self.block[at] != blocks)
        at_once = (self.time[at] == time) & (self.thread[at] != threads)
        clashing: Array = elsewhere | at_once
        return clashing

    def note(self, at: Array, threads: Array, blocks: Array, time: int, statement: int) -> None:
        """Record, for the elements `at`, which thread and block access them now, with the time and
        the statement. If several threads access an element, `_SEVERAL` is recorded instead of a
        number."""
        fresh = self.time[at] != time
        self.thread[at[fresh]] = threads[fresh]
        self.time[at] = time
        self.thread[at[self.thread[at] != threads]] = _SEVERAL
        unknown = self.block[at] == _NOBODY
        self.block[at[unknown]] = blocks[unknown]
        self.block[at[self.block[at] != blocks]] = _SEVERAL
        self.statement[at] = statement


class _Blocks:
    """The execution of some blocks of a launch in lockstep. Values are arrays that broadcast to
    shape (blocks, threads)."""

    def __init__(
        self,
        function: Function,
        blocks: Array,
        threads: int,
        variables: dict[str, Any],
        memory: Mapping[str, Array],
        shadows: Mapping[str, _Shadow],
        history: _History,
    ) -> None:
        self.function = function
        self.variables = variables
        self._shape = (len(blocks), threads)
        self._blocks = np.broadcast_to(blocks[:, None], self._shape)
        self._threads = self._blocks * threads + np.arange(threads)[None, :]
        self._local = np.arange(len(blocks) * threads).reshape(self._shape)
        self._memory = dict(memory)
        self._shadows = dict(shadows)
        self._undefined: dict[str, Array] = {}
        self._history = history
        self.meaning: Callable[[str], Function] | None = None
        self._last_written = np.zeros(0, np.int64)
        # Copies under way, a group for each barrier that waits for copies; the last one is open.
        self._groups: list[list[tuple[Intrinsic, Array, dict[str, Any]]]] = [[]]
        self._products = Products(self._fail)

    def allocate(self, buffer: Buffer) -> None:
        """Allocate undefined memory for a buffer: one copy for each block, subgroup or thread, by
        its scope."""
        count = int(self._owners(buffer).max(initial=-1)) + 1
        self._memory[buffer.name] = _fresh(buffer, count).reshape(-1)
        if buffer.scope is MemoryScope.WORKGROUP:
            self._shadows[buffer.name] = _Shadow(count * _size(buffer))
            self._undefined[buffer.name] = np.ones(count * _size(buffer), bool)
        self._products.allocate(buffer, count * _size(buffer))

    def stmt(self, stmt: Stmt, mask: Array) -> None:
        match stmt:
            case Block(statements):
                for part in statements:
                    self.stmt(part, mask)
            case For(var, extent, _, body):
                for index in range(number(extent)):
                    self.variables[var] = np.int64(index)
                    self.stmt(body, mask)
            case Alloc(buffer, body):
                self.allocate(buffer)
                self.stmt(body, mask)
            case Store(buffer, indices, value):
                self._store(stmt, buffer, indices, value, mask)
            case If(condition, then, otherwise):
                chosen = self._value(condition, stmt, mask)
                self._under(then, mask & chosen)
                if otherwise is not None:
                    self._under(otherwise, mask & ~chosen)
            case While(condition, body):
                while np.any(mask := mask & self._value(condition, stmt, mask)):
                    self.stmt(body, mask)
            case Prefetch():
                pass
            case Barrier(MemoryScope.WARPGROUP, products):
                self._check_together(stmt, mask, WARPGROUP_SIZE)
                if products is None:
                    self._products.order()
                else:
                    self._finish(products)
            case Barrier(scope, copies, publishes):
                if copies is not None:
                    self._land(copies)
                if publishes:
                    self._products.publish()
                if scope is MemoryScope.LOCAL:
                    return
                if scope is MemoryScope.SUBGROUP:
                    self._check_together(stmt, mask, SUBGROUP_SIZE)
                    return
                if not np.all(mask.all(axis=1) | ~mask.any(axis=1)):
                    self._fail("not all threads of a block come to a barrier", stmt)
                self._history.workgroup += 1
                self._history.device += scope is MemoryScope.PARAM
            case Intrinsic():
                self._intrinsic(stmt, mask)
            case _:
                assert_never(stmt)

    def _check_together(self, stmt: Stmt, mask: Array, size: int) -> None:
        """Fail if only some threads of a subgroup or warpgroup come to a statement."""
        groups = mask.reshape(len(mask), -1, size)
        if not np.all(groups.all(axis=2) | ~groups.any(axis=2)):
            name = "subgroup" if size == SUBGROUP_SIZE else "warpgroup"
            self._fail(f"not all threads of a {name} come to it", stmt)

    def _under(self, stmt: Stmt, mask: Array) -> None:
        if np.any(mask):
            self.stmt(stmt, mask)

    def _value(self, expr: Expr, stmt: Stmt, mask: Array) -> Array:
        points = _Lanes(self.variables, mask, blocks=self, stmt=stmt)
        return np.broadcast_to(points.value(expr), self._shape)

    def _store(
        self, stmt: Stmt, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, mask: Array
    ) -> None:
        values = self._value(value, stmt, mask)[mask]
        owners = self._owners(buffer)[mask]
        at = self._offsets(
            buffer, [self._value(i, stmt, mask)[mask] for i in indices], owners, stmt
        )
        self._write(buffer, at, values, stmt, self._threads[mask], self._blocks[mask])

    def _write(
        self, buffer: Buffer, at: Array, values: Array, stmt: Stmt, threads: Array, blocks: Array
    ) -> None:
        if not self._products.write(buffer, at, stmt):
            return
        if buffer.scope not in UNSEEN:
            self._note(buffer, at, stmt, threads, blocks, writes=True)
            if buffer.name in self._undefined:
                self._undefined[buffer.name][at] = False
        self._memory[buffer.name][at] = values.astype(buffer.dtype.numpy)

    def read(self, buffer: Buffer, indices: list[Array], stmt: Stmt, mask: Any) -> Array:
        """Return the elements that the threads read, as an array of shape (blocks, threads). The
        values for threads for which `mask` is false are undefined."""
        mask = np.broadcast_to(mask, self._shape)
        indices = [np.broadcast_to(index, self._shape)[mask] for index in indices]
        at = self._offsets(buffer, indices, self._owners(buffer)[mask], stmt)
        values = np.zeros(self._shape, self._memory[buffer.name].dtype)
        values[mask] = self._look(buffer, at, stmt, self._threads[mask], self._blocks[mask])
        return values

    def _look(self, buffer: Buffer, at: Array, stmt: Stmt, threads: Array, blocks: Array) -> Array:
        shadow = self._shadows.get(buffer.name)
        self._products.read(buffer, at, stmt, None if shadow is None else shadow.writer.time[at])
        if buffer.scope not in UNSEEN:
            self._note(buffer, at, stmt, threads, blocks, writes=False)
            undefined = self._undefined.get(buffer.name)
            if undefined is not None and np.any(undefined[at]):
                self._fail(f"an element of {buffer.name} is read that nobody wrote", stmt)
        values: Array = self._memory[buffer.name][at]
        return values

    def _owners(self, buffer: Buffer) -> Array:
        """Return, for each thread, which copy of the buffer the thread accesses."""
        if buffer.scope in PRIVATE:
            return self._local
        if buffer.scope in FRAGMENTS:
            return self._local // FRAGMENTS[buffer.scope]
        if buffer.scope is MemoryScope.WORKGROUP:
            return np.broadcast_to(np.arange(self._shape[0])[:, None], self._shape)
        return np.zeros(self._shape, np.int64)

    def _offsets(self, buffer: Buffer, indices: list[Array], owners: Array, stmt: Stmt) -> Array:
        """Return the offset of each accessed element in an array that holds all copies of a buffer;
        `owners` selects the copy. Raises CompilerError for an index outside the buffer."""
        layout = buffer.element_layout
        shape = layout.physical_shape(buffer.type.static_shape)
        parts = []
        for dim in layout.dims:
            part = (indices[dim.axis] + layout.halo_of(dim.axis)[0]) // dim.div
            parts.append(part % dim.mod if dim.mod else part)
        if (swizzle := layout.swizzle) is not None:
            turn = parts[-2] // swizzle.rows % swizzle.count
            chunk, within = np.divmod(parts[-1], swizzle.chunk)
            parts[-1] = (chunk ^ turn) * swizzle.chunk + within
        at = owners
        for part, extent in zip(parts, shape, strict=True):
            outside = (part < 0) | (part >= extent)
            if np.any(outside):
                index = part[outside][0]
                self._fail(f"index {index} of {buffer.name} outside its memory of {extent}", stmt)
            at = at * extent + part
        return at

    # -- intrinsics

    def _begin(self, stmt: Intrinsic, mask: Array) -> None:
        """Start an asynchronous copy: its target must not be read before the copy completes."""
        self._groups[-1].append((stmt, mask.copy(), dict(self.variables)))
        tile = stmt.operands[0]
        self._intrinsic(stmt, mask, lands=True)
        undefined = self._undefined.get(tile.buffer.name)
        if undefined is not None:
            undefined[self._last_written] = True

    def _land(self, most: int) -> None:
        """Close the current group of asynchronous copies, and complete all groups except the latest
        `most`."""
        ended, left = self._groups[: len(self._groups) - most], self._groups[-most:] if most else []
        self._groups = [*left, []]
        variables = self.variables
        for group in ended:
            for stmt, mask, held in group:
                self.variables = held
                self._intrinsic(stmt, mask, lands=True)
        self.variables = variables

    def _finish(self, most: int) -> None:
        """Close the current group of asynchronous products, and complete all groups except the
        latest `most`."""
        variables, self._products.lands = self.variables, True
        for product in self._products.close(most):
            self.variables = dict(product.variables)
            self._multiply(product)
        self.variables, self._products.lands = variables, False

    def _multiply(self, product: Begun) -> None:
        """Run a product, or check its accesses when it is started."""
        self._products.current = product
        self._intrinsic(product.call, product.mask, lands=True)
        self._products.current = None

    def _intrinsic(self, stmt: Intrinsic, mask: Array, *, lands: bool = False) -> None:
        """Run the declared semantics of an intrinsic for each thread, or once for each subgroup or
        warpgroup."""
        if self.meaning is None:
            self._fail(f"the intrinsic {stmt.name} must be expanded before it is run", stmt)
        semantics = self.meaning(stmt.name)
        if stmt.is_late and not lands:
            if stmt.operands[0].buffer.scope is MemoryScope.WARPGROUP:
                time = self._history.workgroup
                product = Begun(stmt, mask.copy(), dict(self.variables), time)
                self._products.begin(product)
                self._multiply(product)
            else:
                self._begin(stmt, mask)
            return
        together = max((FRAGMENTS.get(param.scope, 1) for param in semantics.params), default=1)
        if together > 1:
            self._check_together(stmt, mask, together)
            mask = mask & (np.arange(self._shape[1]) % together == 0)
        loops, body = [], semantics.body
        while isinstance(body, For):
            loops.append(body)
            body = body.body
        assert isinstance(body, Store)
        # The points of the output run at once, [threads, ...]; other loops in turn.
        names = [index.name for index in body.indices if isinstance(index, Var)]
        own = [loop for loop in loops if loop.var in names]
        others = [loop for loop in loops if loop.var not in names]
        unit = (1,) * len(own)
        variables: dict[str, Any] = {
            loop.var: np.arange(number(loop.extent)).reshape(
                *unit[:position], -1, *unit[position + 1 :]
            )
            for position, loop in enumerate(own)
        }

        def wide(values: Array) -> Array:
            return values[mask].reshape(-1, *unit)

        places = {
            param.name: _Place(
                tile,
                [wide(self._value(index, stmt, mask)) for index in tile.origin],
                wide(self._owners(tile.buffer)),
                tile.buffer.scope in PRIVATE and param.scope in FRAGMENTS,
            )
            for param, tile in zip(semantics.params, stmt.operands, strict=True)
        }
        # The threads of a warpgroup do not wait for each other where they wait for a product.
        is_product = self._products.current is not None
        threads = np.full_like(self._threads, _SEVERAL) if is_product else self._threads
        who = wide(threads), wide(self._blocks)
        for turn in np.ndindex(*(number(loop.extent) for loop in others)):
            for loop, at in zip(others, turn, strict=True):
                variables[loop.var] = np.int64(at)
            points = _Elements(variables, run=self, stmt=stmt, places=places, who=who)
            value, place = points.value(body.value), points.offsets(body.buffer.name, body.indices)
            shape = np.broadcast_shapes(place.shape, value.shape)
            flat, values = (np.broadcast_to(each, shape).reshape(-1) for each in (place, value))
            buffer = places[body.buffer.name].tile.buffer
            self._write(buffer, flat, values, stmt, *points.spread(shape))
            self._last_written = flat

    def element_offsets(self, place: _Place, indices: list[Array], stmt: Stmt) -> Array:
        """Return the offsets of the elements of a tile at `indices`, with the threads along axis
        0."""
        at, owners = list(place.origin), place.owners
        if place.is_spread:
            first, *indices = indices
            owners = owners + first
        steps = place.tile.steps or (1,) * len(place.tile.axes)
        for axis, index, step in zip(place.tile.axes, indices, steps, strict=True):
            at[axis] = at[axis] + index * step
        return self._offsets(place.tile.buffer, at, owners, stmt)

    def look(self, place: _Place, at: Array, stmt: Stmt, threads: Array, blocks: Array) -> Array:
        values = self._look(place.tile.buffer, at.reshape(-1), stmt, threads, blocks)
        return values.reshape(at.shape)

    # -- races

    def _note(
        self,
        buffer: Buffer,
        at: Array,
        stmt: Stmt,
        threads: Array,
        blocks: Array,
        *,
        writes: bool,
    ) -> None:
        """Record that `threads` of `blocks` access the elements `at` of a buffer. Raises
        CompilerError if an access races with an earlier one."""
        is_workgroup = buffer.scope is MemoryScope.WORKGROUP
        history, shadow = self._history, self._shadows[buffer.name]
        time = history.workgroup if is_workgroup else history.device
        for touches in (shadow.writer, shadow.reader) if writes else (shadow.writer,):
            clashes = touches.clashes(at, threads, blocks, time)
            if np.any(clashes):
                other = history.statements[touches.statement[at[clashes][0]]]
                self._race(buffer, stmt, other)
        touches = shadow.writer if writes else shadow.reader
        touches.note(at, threads, blocks, time, history.number_of(stmt))
        if writes and np.any(touches.thread[at] == _SEVERAL):
            self._race(buffer, stmt, stmt)

    def _race(self, buffer: Buffer, stmt: Stmt, other: Stmt) -> NoReturn:
        self._fail(
            f"threads race for an element of {buffer.name}: no barrier stands after\n"
            f"{print_ir(other).rstrip()}\nand before",
            stmt,
        )

    def _fail(self, message: str, stmt: Stmt) -> NoReturn:
        raise CompilerError(f"kernel {self.function.name}: {message}\n{print_ir(stmt)}")


@dataclasses.dataclass(frozen=True)
class _Lanes(Points):
    """The evaluation of expressions for all threads of some blocks, at one statement."""

    blocks: _Blocks = dataclasses.field(kw_only=True)
    stmt: Stmt = dataclasses.field(kw_only=True)

    @property
    def owner(self) -> str:
        return f"kernel {self.blocks.function.name}"

    def load(self, load: Load) -> Any:
        indices = [self.value(index) for index in load.indices]
        return self.blocks.read(load.buffer, indices, self.stmt, self.mask)


@dataclasses.dataclass(frozen=True)
class _Place:
    """A tile as threads access it: its origin for each thread, and which copy of the buffer each
    thread accesses."""

    tile: Tile
    origin: list[Array]
    owners: Array
    is_spread: bool = False  # Each thread of the subgroup has an element of the first axis.


@dataclasses.dataclass(frozen=True)
class _Elements(Points):
    """The evaluation of an intrinsic's expressions on elements of its tiles, for some threads and
    their blocks."""

    run: _Blocks = dataclasses.field(kw_only=True)
    stmt: Intrinsic = dataclasses.field(kw_only=True)
    places: Mapping[str, _Place] = dataclasses.field(kw_only=True)
    who: tuple[Array, Array] = dataclasses.field(kw_only=True)

    @property
    def owner(self) -> str:
        return f"the intrinsic {self.stmt.name}"

    def offsets(self, name: str, indices: tuple[Expr, ...]) -> Array:
        values = [np.asarray(self.value(index)) for index in indices]
        return self.run.element_offsets(self.places[name], values, self.stmt)

    def spread(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return the number of the thread and the number of the block that each element belongs to,
        for elements in an array of this shape. Both results are flattened to one dimension."""
        threads, blocks = (np.broadcast_to(each, shape).reshape(-1) for each in self.who)
        return threads, blocks

    def load(self, load: Load) -> Any:
        at = self.offsets(load.buffer.name, load.indices)
        place = self.places[load.buffer.name]
        return self.run.look(place, at, self.stmt, *self.spread(at.shape))
