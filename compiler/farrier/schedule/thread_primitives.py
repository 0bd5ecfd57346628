"""Schedule primitives for devices whose threads run in blocks: bind, cooperate, split_axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import number
from farrier.ir.expr import MemoryScope, Var
from farrier.ir.loop import Alloc, For, Function, If, LoopKind, Stmt, Store
from farrier.ir.operands import map_operands
from farrier.ir.statements import map_children
from farrier.ir.substitute import Indices, Substitution
from farrier.ir.threads import PRIVATE
from farrier.schedule.accesses import accesses
from farrier.schedule.kind_primitives import require_independent, require_undecided
from farrier.schedule.loop_primitives import fuse, reorder, split
from farrier.schedule.nest import NestView, Path, alloc_at, allocated, loops

_KINDS = {kind.value: kind for kind in (LoopKind.BLOCK, LoopKind.THREAD)}


def bind(function: Function, loop: str, to: str) -> Function:
    """Distribute the iterations of a loop over the blocks of a launch, or over the threads of a
    block.

    before:
        @function
        def copy(a: f32[8, 64], b: f32[8, 64]):
            for i in block(8):
                for j in serial(64):
                    b[i, j] = a[i, j]
    after bind("j", "thread"):
        @function
        def copy(a: f32[8, 64], b: f32[8, 64]):
            for i in block(8):
                for j in thread(64):
                    b[i, j] = a[i, j]

    Refused where iterations conflict. Loops of a nest are bound from the outermost: a block loop
    may only stand within block loops, and a thread loop may stand within another only if directly
    within. A local buffer that is allocated around a thread loop must have the loop's variable as
    its next index, so that each thread accesses its own elements.
    """
    nest = NestView(function, "bind")
    if to not in _KINDS:
        nest.fail(f"{loop} cannot be bound to {to}, only to block or thread")
    kind = _KINDS[to]
    path, bound = nest.path_to_loop(loop), nest.loop(loop)
    require_undecided(nest, bound)
    if kind is LoopKind.BLOCK:
        _check_block(nest, path, bound)
    else:
        _check_thread(nest, path, bound)
    for other in loops(bound.body):
        if other.kind in (*_KINDS.values(), LoopKind.PARALLEL):
            nest.fail(f"{loop} stands around {other.var}, which is bound already")
    require_independent(nest, path, bound)
    return nest.replace(path, dataclasses.replace(bound, kind=kind))


def _check_block(nest: NestView, path: Path, loop: For) -> None:
    for stmt in path[:-1]:
        if isinstance(stmt, For) and stmt.kind is not LoopKind.BLOCK:
            nest.fail(f"{loop.var} stands within {stmt.var}, which is not bound to blocks")
        if isinstance(stmt, Alloc) and stmt.buffer.scope is not MemoryScope.WORKSPACE:
            nest.fail(f"the blocks of {loop.var} would share the local buffer {stmt.buffer.name}")
    for buffer in allocated(loop.body):
        if buffer.scope is MemoryScope.WORKSPACE:
            nest.fail(f"the blocks of {loop.var} would share the workspace buffer {buffer.name}")


def _check_thread(nest: NestView, path: Path, loop: For) -> None:
    if not isinstance(loop.extent, int):
        nest.fail(f"{loop.var} runs over {loop.extent}, and the threads of a block are a number")
    threads = [stmt for stmt in path[:-1] if isinstance(stmt, For) and stmt.kind is LoopKind.THREAD]
    if threads and threads[-1].body is not loop:
        nest.fail(f"{loop.var} stands within {threads[-1].var}, but not directly")
    if not any(isinstance(stmt, For) and stmt.kind is LoopKind.BLOCK for stmt in path[:-1]):
        nest.fail(f"{loop.var} stands in no block loop")
    own = {stmt.buffer.name: stmt.buffer for stmt in path[:-1] if isinstance(stmt, Alloc)}
    first = tuple(Var(thread.var) for thread in (*threads, loop))
    extents = tuple(thread.extent for thread in (*threads, loop))
    for access in accesses(loop):
        buffer = own.get(access.buffer.name)
        if buffer is None or buffer.scope not in PRIVATE:
            continue
        if access.indices[: len(first)] != first or buffer.shape[: len(first)] != extents:
            names = ", ".join(variable.name for variable in first)
            nest.fail(f"{buffer.name} is local, and has no part [{names}] for each thread")


def cooperate(function: Function, loop: str, threads: int, row: int, thread: str) -> Function:
    """Distribute the points of a nest of loops over `threads` threads of a block. Each thread
    processes `row` neighbouring points at a time, so that neighbouring threads access neighbouring
    elements.

    before:
        @function
        def stage(a: f32[2, 16, 64], b: f32[2, 16, 64]):
            for block in block(2):
                for i in serial(16):
                    for j in serial(64):
                        b[block, i, j] = a[block, i, j]
    after cooperate("i", 128, 4, "t"):
        @function
        def stage(a: f32[2, 16, 64], b: f32[2, 16, 64]):
            for block in block(2):
                for t in thread(128):
                    for t_turn in serial(2):
                        for t_row in serial(4):
                            b[block, t_turn * 8 + t // 16, t_row + t % 16 * 4] = \
a[block, t_turn * 8 + t // 16, t_row + t % 16 * 4]
    """
    nest = NestView(function, "cooperate")
    if threads < 1 or row < 1:
        nest.fail(f"{threads} threads for {loop}, {row} neighbours each")
    around = nest.loop(loop)
    while isinstance(around.body, For):
        joined = f"{thread}_{around.var}"
        function = fuse(function, around.var, around.body.var, joined)
        around = NestView(function, "cooperate").loop(joined)
    body: Stmt = around.body
    while isinstance(body, If) and body.otherwise is None:
        body = body.then
    if not isinstance(body, Store):
        nest.fail(f"{loop} is not a perfect nest of loops around one store")
    function = split(function, around.var, row, f"{thread}_rows", f"{thread}_row")
    function = split(function, f"{thread}_rows", threads, f"{thread}_turn", thread)
    function = reorder(function, (thread, f"{thread}_turn"))
    function = bind(function, thread, "thread")
    nest = NestView(function, "cooperate")
    path = nest.path_to_loop(thread)
    simplify = Simplifier(nest.ranges()).simplify

    def simplified(stmt: Stmt) -> Stmt:
        return map_children(map_operands(stmt, simplify), simplified)

    return nest.replace(path, simplified(path[-1]))


def split_axes(function: Function, buffer: str, factors: Sequence[int]) -> Function:
    """Split each axis of an allocated buffer in two, by a factor each: the new axes are first all
    quotients, then all remainders.

    before:
        @function
        def twice(a: f32[8, 8], b: f32[8, 8]):
            with alloc(f32[8, 8] in local) as t:
                for i in serial(2):
                    for j in serial(4):
                        for k in serial(4):
                            for l in serial(2):
                                t[i * 4 + k, j * 2 + l] = a[i * 4 + k, j * 2 + l] * 2.0
                for m in serial(8):
                    for n in serial(8):
                        b[m, n] = t[m, n]
    after split_axes("t", (4, 2)):
        @function
        def twice(a: f32[8, 8], b: f32[8, 8]):
            with alloc(f32[2, 4, 4, 2] in local) as t:
                for i in serial(2):
                    for j in serial(4):
                        for k in serial(4):
                            for l in serial(2):
                                t[i, j, k, l] = a[i * 4 + k, j * 2 + l] * 2.0
                for m in serial(8):
                    for n in serial(8):
                        b[m, n] = t[m // 4, n // 2, m % 4, n % 2]

    After the split a tile has an axis for each loop over threads, as `bind` requires of local
    buffers.
    """
    nest = NestView(function, "split_axes")
    path = nest.path_to_alloc(buffer)
    alloc = alloc_at(path)
    old = alloc.buffer
    if old.layout is not None:
        nest.fail(f"{buffer} has a layout of its own")
    if len(factors) != len(old.shape):
        nest.fail(f"{len(factors)} factors for the {len(old.shape)} axes of {buffer}")
    for extent, factor in zip(old.shape, factors, strict=True):
        if not isinstance(extent, int) or factor < 1 or extent % factor:
            nest.fail(f"an axis of {buffer} has {extent} elements, not a multiple of {factor}")
    quotients = tuple(number(n) // factor for n, factor in zip(old.shape, factors, strict=True))
    new = dataclasses.replace(old, shape=(*quotients, *factors))
    simplifier = Simplifier(nest.ranges())

    def divided(accessed: e.Buffer, indices: Indices) -> Indices:
        if accessed.name != buffer:
            return indices
        pairs = list(zip(indices, factors, strict=True))
        quotients = [simplifier.simplify(e.floordiv(index, factor)) for index, factor in pairs]
        rest = [simplifier.simplify(e.mod(index, factor)) for index, factor in pairs]
        return (*quotients, *rest)

    return nest.replace(path, Substitution(buffers={buffer: new}, access=divided).stmt(alloc))
