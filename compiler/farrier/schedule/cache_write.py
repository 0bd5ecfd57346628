"""The schedule primitive `cache_write`: compute values in a new buffer and copy them afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier.ir.expr import Buffer, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, Block, For, Function, If, Stmt, Store
from farrier.ir.statements import block, walk_stmts
from farrier.ir.substitute import Substitution
from farrier.schedule.accesses import accesses, reads_of, touches, writes
from farrier.schedule.nest import (
    NestView,
    Path,
    find,
    loops,
    nested,
    stores,
)


def cache_write(function: Function, buffer: str, name: str) -> Function:
    """Compute the values of a buffer in a new buffer, and copy them to the original afterwards.

    before:
        @function
        def total(a: f32[8, 5], y: f32[8]):
            for y_init_i in serial(8):
                y[y_init_i] = 0.0
            for y_i in serial(8):
                for y_k in serial(5):
                    y[y_i] = y[y_i] + a[y_i, y_k]
    after cache_write("y", "acc"):
        @function
        def total(a: f32[8, 5], y: f32[8]):
            with alloc(f32[8] in workspace) as acc:
                for acc_init_i in serial(8):
                    acc[acc_init_i] = 0.0
                for acc_i in serial(8):
                    for acc_k in serial(5):
                        acc[acc_i] = acc[acc_i] + a[acc_i, acc_k]
                for y_i in serial(8):
                    y[y_i] = acc[y_i]

    The nests that compute the values write the new buffer, and the copy writes the original one. So
    a reduction gets an epilogue, into which other work can be fused, and its sums can be kept in
    registers. Apply `cache_write` before any other primitive.
    """
    nest = NestView(function, "cache_write")
    path, nests, old = _check(nest, buffer, name)
    return nest.replace(path, _edit(path, nests, old, name))


def _check(nest: NestView, name: str, new: str) -> tuple[Path, list[Stmt], Buffer]:
    """Return three values: the path to the block that contains the nests which write the buffer,
    these nests, and the buffer. Fail if the primitive cannot be applied."""
    body = nest.function.body
    nest.require_new_buffer(new)
    path = find(
        body, lambda s: isinstance(s, Block) and any(_computes(t, name) for t in s.statements)
    )
    statements = path[-1].statements if path and isinstance(path[-1], Block) else (body,)
    nests = [s for s in statements if _computes(s, name)]
    if not nests:
        nest.fail(f"no nest writes {name}")
    for stmt in nests:
        variables = {loop.var for loop in loops(stmt)}
        if writes(stmt) != {name} or not all(var.startswith(f"{name}_") for var in variables):
            nest.fail(f"{name} is not written by its own nests alone")
    extents = {loop.var: loop.extent for stmt in nests for loop in loops(stmt)}
    shapes = set()
    for store in (store for stmt in nests for store in stores(stmt, name)):
        points = [index.name for index in store.indices if isinstance(index, Var)]
        if len(set(points)) != len(store.indices) or not set(points) <= extents.keys():
            nest.fail(f"{name} is not written at its own loops: cache_write before you schedule")
        shapes.add(tuple(extents[var] for var in points))
    _check_values(nest, statements, nests, name)
    conditional = any(isinstance(s, If) for stmt in nests for s in walk_stmts(stmt))
    if conditional or len(shapes) > 1:
        nest.fail(f"the nests of {name} do not cover it alike")
    nest.require_new(*(_renamed(loop.var, name, new) for s in nests for loop in loops(s)))
    return path or (body,), nests, stores(nests[-1], name)[0].buffer


def _check_values(nest: NestView, statements: Sequence[Stmt], nests: list[Stmt], name: str) -> None:
    """Check two conditions, and fail otherwise. The nests must not read values that the buffer had
    before they run. It must be possible to run all nests at the position of the last one."""
    if reads_of(nests[0], name):
        nest.fail(f"{name} is computed from what it held before")
    first, last = (next(i for i, s in enumerate(statements) if s is nests[n]) for n in (0, -1))
    between = [s for s in statements[first:last] if not any(s is own for own in nests)]
    for stmt in between:
        if touches(stmt, name) and not _is_halo(stmt, name):
            nest.fail(f"{name} is used between the nests that write it")
    changed = {written for stmt in between for written in writes(stmt)}
    moved = nests[:-1]
    needed = {a.buffer.name for stmt in moved for a in accesses(stmt) if not a.writes} - {name}
    if needed & changed:
        overwritten = ", ".join(sorted(needed & changed))
        nest.fail(f"{name} is computed from {overwritten}, which change in between")


def _computes(stmt: Stmt, name: str) -> bool:
    """Check whether a statement computes values of the buffer, rather than the zeros of its
    halo."""
    if isinstance(stmt, Block | Alloc):
        return False
    return any(
        isinstance(s, Store) and s.buffer.name == name and not _is_halo(stmt, name)
        for s in walk_stmts(stmt)
    )


def _is_halo(stmt: Stmt, name: str) -> bool:
    return isinstance(stmt, For) and stmt.var == f"{name}_halo"


def _renamed(loop: str, old: str, new: str) -> str:
    return new + loop.removeprefix(old)


def _edit(path: Path, nests: list[Stmt], old: Buffer, name: str) -> Stmt:
    store = stores(nests[-1], old.name)[0]
    extents = {loop.var: loop.extent for loop in loops(nests[-1])}
    points = [index.name for index in store.indices if isinstance(index, Var)]
    shape = tuple(extents[var] for var in points)
    cache = dataclasses.replace(
        old, name=name, shape=shape, layout=None, scope=MemoryScope.WORKSPACE
    )
    renamed = {
        loop.var: _renamed(loop.var, old.name, name) for stmt in nests for loop in loops(stmt)
    }
    compute = Substitution(
        {var: Var(new) for var, new in renamed.items()}, {old.name: cache}, renamed
    )
    copy = nested(
        [(var, extents[var]) for var in points],
        Store(old, store.indices, Load(cache, store.indices)),
    )
    new = [*map(compute.stmt, nests), copy]
    top = path[-1]
    if not isinstance(top, Block):
        return Alloc(cache, block(new))
    rest: list[Stmt] = []
    for stmt in top.statements:
        if stmt is nests[-1]:
            rest += new
        elif not any(stmt is s for s in nests):
            rest.append(stmt)
    return Alloc(cache, Block(tuple(rest)))
