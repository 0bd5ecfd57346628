"""The schedule primitive `inline`: compute the elements of a buffer where they are read."""

from __future__ import annotations

from farrier.ir.expr import Expr, Var
from farrier.ir.loop import Alloc, For, Function, If, Stmt, Store
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import Indices, Substitution, loads
from farrier.schedule.accesses import changed_after, prefetches
from farrier.schedule.nest import NestView, Path, alloc_at, loops, outermost_block, stores, without


def inline(function: Function, buffer: str) -> Function:
    """Compute a buffer's elements where they are read, and drop the buffer.

    before:
        @function
        def double(a: f32[8], b: f32[4]):
            with alloc(f32[8] in workspace) as t:
                for i in serial(8):
                    t[i] = a[i] + 1.0
                for j in serial(4):
                    b[j] = t[2 * j] * 2.0
    after inline("t"):
        @function
        def double(a: f32[8], b: f32[4]):
            for j in serial(4):
                b[j] = (a[2 * j] + 1.0) * 2.0

    The buffer must be written by one store, at indices that are distinct loop variables of its
    nest.
    """
    nest = NestView(function, "inline")
    path, producer, store = _check(nest, buffer)
    return nest.replace(path, _edit(path, producer, store))


def _check(nest: NestView, name: str) -> tuple[Path, Stmt, Store]:
    path = nest.path_to_alloc(name)
    alloc = alloc_at(path)
    writers = stores(alloc.body, name)
    if len(writers) != 1:
        nest.fail(f"{name} is written by {len(writers)} stores; only a plain stage can be inlined")
    store = writers[0]
    names = [index.name for index in store.indices if isinstance(index, Var)]
    if len(set(names)) != len(store.indices):
        nest.fail(f"{name} is not written at distinct loop variables: inline before you split")
    producer = _producer(nest, alloc, store)
    extents = {loop.var: loop.extent for loop in loops(producer)}
    if set(extents) != set(names):
        nest.fail(f"{name} is written within the loops {list(extents)}, at {names}")
    if any(isinstance(s, If) for s in walk_stmts(producer)):
        nest.fail(f"{name} is written under a condition")
    for load in loads(store.value):
        if load.buffer.name == name:
            nest.fail(f"{name} is computed from itself")
    changed = changed_after(alloc.body, [producer])
    if changed:
        nest.fail(f"{name} is computed from {', '.join(changed)}, which change in between")
    if prefetches(alloc.body, name):
        nest.fail(f"{name} is prefetched")
    return path, producer, store


def _producer(nest: NestView, alloc: Alloc, store: Store) -> Stmt:
    """Return the statement that contains the store to the buffer: a statement of the block in which
    the buffer is allocated. Fail if it contains anything but loops, guards and stores."""
    statements = outermost_block(alloc.body)
    producer = next((s for s in statements if any(t is store for t in walk_stmts(s))), alloc)
    plain = all(isinstance(s, For | Store | If) for s in walk_stmts(producer))
    if len(statements) < 2 or not plain:
        nest.fail(f"{alloc.buffer.name} is not written by a nest of its own")
    return producer


def _edit(path: Path, producer: Stmt, store: Store) -> Stmt:
    alloc = alloc_at(path)
    names = [index.name for index in store.indices if isinstance(index, Var)]

    def value(indices: Indices) -> Expr:
        return Substitution(dict(zip(names, indices, strict=True))).expr(store.value)

    readers = Substitution(reads={alloc.buffer.name: value})
    return readers.stmt(without(alloc.body, [producer]))
