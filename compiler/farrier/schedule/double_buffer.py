"""The schedule primitive `double_buffer`: overlap copies to workgroup memory with computation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from farrier.ir import expr as e
from farrier.ir.dim import is_less, number
from farrier.ir.expr import Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, Block, For, Function, If, Intrinsic, LoopKind, Stmt, Store
from farrier.ir.statements import below, block, map_children, walk_stmts
from farrier.ir.substitute import Indices, Substitution
from farrier.ir.threads import extents_of, phase_of
from farrier.ir.types import Layout, PhysicalDim
from farrier.schedule.accesses import accesses, touches, writes
from farrier.schedule.nest import NestView, Path, alloc_at, loops
from farrier.schedule.tiling_parts import ZERO, simplified, under

_HALVES = 2
_MOST_KEPT = 64  # Elements of a copy that a thread keeps in registers.
_Loops: TypeAlias = tuple[For, ...]


def double_buffer(function: Function, buffer: str) -> Function:
    """Double-buffer a workgroup buffer: copy the data of the next iteration of a loop while the
    threads work on the data of this one, so that an iteration needs one barrier instead of two.

    before:
        @function
        def sums(a: f32[6, 4], b: f32[4]):
            for i in block(1):
                with alloc(f32[4] in register) as s:
                    for j in thread(4):
                        s[j] = 0.0
                    for k in serial(6):
                        with alloc(f32[4] in workgroup) as t:
                            for l in thread(4):
                                t[l] = a[k, l]
                            for m in thread(4):
                                s[m] = s[m] + t[3 - m]
                    for n in thread(4):
                        b[n] = s[n]
    after double_buffer("t"):
        @function
        def sums(a: f32[6, 4], b: f32[4]):
            for i in block(1):
                with alloc(f32[4] in register) as s:
                    for j in thread(4):
                        s[j] = 0.0
                    with alloc(f32[2, 4] in workgroup) as t:
                        with alloc(f32[4] in register) as t_next:
                            for l_first in thread(4):
                                t[0, l_first] = a[0, l_first]
                            for k in serial(6):
                                for l in thread(4):
                                    if k < 5:
                                        t_next[l] = a[k + 1, l]
                                for m in thread(4):
                                    s[m] = s[m] + t[k % 2, 3 - m]
                                for l_put in thread(4):
                                    if k < 5:
                                        t[(k + 1) % 2, l_put] = t_next[l_put]
                    for n in thread(4):
                        b[n] = s[n]

    The buffer must be allocated within a serial loop, whose body writes it in one phase (loops over
    threads between two barriers) that copies from buffers that the launch does not write. Each
    thread loads its elements for the next iteration into registers before the work of this one and
    stores them to the other half of the buffer after that work, so the latency of the loads is
    hidden.
    """
    nest = NestView(function, "double_buffer")
    staged = _Staged.of(nest, buffer)
    outer = next(s for s in staged.path if isinstance(s, For) and s.kind is LoopKind.BLOCK)
    inside = NestView(nest.replace(staged.path, staged.halves()), "double_buffer")
    path = inside.path_to_loop(outer.var)
    return inside.replace(path, simplified(path[-1]))


@dataclasses.dataclass(frozen=True)
class _Staged:
    """A buffer to which a phase of a serial loop copies data.

    `path` leads to the loop, and `statements` are the statements of its body. `copy` is the
    statement that copies data to the buffer; `inner` are the loops within a thread around its
    stores. `others` are the other buffers that the loop allocates.
    """

    buffer: Buffer
    path: Path
    others: tuple[Buffer, ...]
    statements: tuple[Stmt, ...]
    copy: Stmt
    inner: _Loops

    @classmethod
    def of(cls, nest: NestView, name: str) -> _Staged:
        path = nest.path_to_alloc(name)
        alloc = alloc_at(path)
        if alloc.buffer.scope is not MemoryScope.WORKGROUP:
            nest.fail(f"{name} lies in {alloc.buffer.scope}, not in workgroup memory")
        at = max((at for at, stmt in enumerate(path) if isinstance(stmt, For)), default=0)
        loop = path[at]
        if not isinstance(loop, For) or loop.kind is not LoopKind.SERIAL:
            nest.fail(f"{name} is not allocated within a serial loop")
        if not all(isinstance(stmt, Alloc) for stmt in path[at + 1 :]):
            nest.fail(f"{name} is not allocated where {loop.var} begins a turn")
        others, body = [], loop.body
        while isinstance(body, Alloc):
            others += [body.buffer] if body.buffer.name != name else []
            body = body.body
        statements = body.statements if isinstance(body, Block) else (body,)
        copies = [stmt for stmt in statements if name in writes(stmt)]
        if len(copies) != 1 or any(
            touches(stmt, name) for stmt in statements[: statements.index(copies[0])]
        ):
            nest.fail(f"{name} is not written once in a turn of {loop.var}, and then read")
        inner = _checked_copy(nest, copies[0], name, path)
        return cls(alloc.buffer, path[: at + 1], tuple(others), statements, copies[0], inner)

    @property
    def loop(self) -> For:
        loop = self.path[-1]
        assert isinstance(loop, For)
        return loop

    def halves(self) -> Stmt:
        """Return the loop rewritten for a double buffer: each iteration uses one half of the buffer
        and copies the data of the next iteration to the other."""
        loop, copy, name = self.loop, self.copy, self.buffer.name
        turn = Var(loop.var)
        following = Substitution({loop.var: e.add(turn, 1)})
        threads, _ = phase_of(copy)
        shape = (*extents_of(threads), *(number(part.extent) for part in self.inner))
        own = Buffer(f"{name}_next", self.buffer.dtype, shape, None, MemoryScope.REGISTER)
        held = dataclasses.replace(
            self.buffer, shape=(_HALVES, *self.buffer.shape), layout=_with_halves(self.buffer)
        )

        def to_half(half: Expr, stmt: Stmt) -> Stmt:
            def access(accessed: Buffer, indices: Indices) -> Indices:
                return (half, *indices) if accessed.name == name else indices

            return Substitution(buffers={name: held}, access=access).stmt(_with_axis(stmt, name))

        def fetch(store: Store, at: Indices) -> Store:
            return Store(own, at, store.value)

        def put(store: Store, at: Indices) -> Store:
            return Store(store.buffer, store.indices, Load(own, at))

        is_next = e.less(e.add(turn, 1), loop.extent)
        fetched = following.stmt(_mapped(copy, (), fetch))
        stored = following.stmt(_renamed(_mapped(copy, (), put), "put"))
        stored = to_half(e.mod(e.add(turn, 1), _HALVES), stored)
        parts = [
            _phase_under(is_next, fetched) if stmt is copy else to_half(e.mod(turn, _HALVES), stmt)
            for stmt in self.statements
        ]
        body = block([*parts, _phase_under(is_next, stored)])
        for buffer in reversed(self.others):
            body = Alloc(buffer, body)
        first = _renamed(Substitution({loop.var: ZERO}).stmt(copy), "first")
        first = to_half(ZERO, first)
        if not is_less(0, loop.extent):
            first = _phase_under(e.less(ZERO, loop.extent), first)
        return Alloc(held, Alloc(own, block([first, dataclasses.replace(loop, body=body)])))


def _checked_copy(nest: NestView, copy: Stmt, name: str, path: Path) -> _Loops:
    """Check that the phase `copy`, which fills the buffer `name`, can run one iteration earlier,
    and fail otherwise. Return the loops within a thread around the stores of the phase."""
    threads, body = phase_of(copy)
    if not threads or threads[0].kind is not LoopKind.THREAD:
        nest.fail(f"no phase of threads copies to {name}")
    launch = next(stmt for stmt in path if isinstance(stmt, For) and stmt.kind is LoopKind.BLOCK)
    changed = writes(launch)
    for access in accesses(copy):
        if access.buffer.name in changed and not (access.writes and access.buffer.name == name):
            nest.fail(f"the copy to {name} {access}, which the launch writes")
    around = list(_around_stores(body, ()))
    if not all(isinstance(stmt, For | If | Block | Store) for stmt in walk_stmts(body)):
        nest.fail(f"the copy to {name} is not of loops and conditions around stores")
    extents = {tuple(loop.extent for loop in inner) for inner in around}
    if len(extents) != 1:
        nest.fail(f"the stores to {name} stand in loops of different extents")
    numbers = extents.pop()
    if not all(isinstance(n, int) for n in numbers) or math.prod(numbers) > _MOST_KEPT:
        nest.fail(f"a thread copies more of {name} than it can keep")
    names = [loop.var for loop in loops(copy)]
    nest.require_new(*(f"{name}_{end}" for name in names for end in ("first", "put")))
    nest.require_new_buffer(f"{name}_next")
    return around[0]


def _around_stores(stmt: Stmt, around: _Loops) -> Iterator[_Loops]:
    if isinstance(stmt, Store):
        yield around
    inner = (*around, stmt) if isinstance(stmt, For) else around
    for part in below(stmt):
        yield from _around_stores(part, inner)


def _mapped(stmt: Stmt, at: Indices, change: Callable[[Store, Indices], Store]) -> Stmt:
    """Return a phase with each store replaced by `change(store, indices)`; `indices` are the
    variables of the loops around the store.

    The loops within a thread are unrolled, so that registers have constant indices.
    """
    if isinstance(stmt, Store):
        return change(stmt, at)
    if isinstance(stmt, For):
        kind = stmt.kind if stmt.kind is LoopKind.THREAD else LoopKind.UNROLLED
        return For(stmt.var, stmt.extent, kind, _mapped(stmt.body, (*at, Var(stmt.var)), change))
    mapped = map_children(stmt, lambda part: _mapped(part, at, change))
    if isinstance(mapped, If) and mapped.otherwise is not None:
        taken, passed = mapped.then, mapped.otherwise
        names = [[loop.var for loop in loops(side)] for side in (taken, passed)]
        if len(names[0]) == len(names[1]) and _with_loops(passed, names[1], names[0]) == taken:
            return taken
    return mapped


def _renamed(phase: Stmt, suffix: str) -> Stmt:
    names = [loop.var for loop in loops(phase)]
    return _with_loops(phase, names, [f"{name}_{suffix}" for name in names])


def _with_loops(stmt: Stmt, old: Sequence[str], new: Sequence[str]) -> Stmt:
    names = dict(zip(old, new, strict=True))
    return Substitution({a: Var(b) for a, b in names.items()}, loops=names).stmt(stmt)


def _phase_under(condition: Expr, phase: Stmt) -> Stmt:
    """Return the phase with its work under `condition`. The condition is tested inside the loops
    over threads, so that all threads still reach the barriers."""
    threads, body = phase_of(phase)
    body = under([condition], body)
    for loop in reversed(threads):
        body = dataclasses.replace(loop, body=body)
    return body


def _with_halves(buffer: Buffer) -> Layout | None:
    """Return the layout of a buffer after an axis was inserted before all others."""
    layout = buffer.layout
    if layout is None:
        return None
    dims = (PhysicalDim(0), *(dataclasses.replace(d, axis=d.axis + 1) for d in layout.dims))
    return dataclasses.replace(layout, dims=dims)


def _with_axis(stmt: Stmt, name: str) -> Stmt:
    """Return `stmt` with the axes of each intrinsic's tile of buffer `name` renumbered, for a
    buffer with an axis inserted before all others."""
    if isinstance(stmt, Intrinsic):
        tiles = (
            dataclasses.replace(tile, axes=tuple(axis + 1 for axis in tile.axes))
            if tile.buffer.name == name
            else tile
            for tile in stmt.operands
        )
        return dataclasses.replace(stmt, operands=tuple(tiles))
    return map_children(stmt, lambda part: _with_axis(part, name))
