"""Replace scalars that a loop nest computes once, and afterwards only reads, by their values:

with alloc(f: i64[()] in register) as row:
    row[()] = p[i] + 1                          row stands for p[i] + 1 wherever it is read
    y[row[()], j] = x[i, j]
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from farrier.ir.expr import Expr, MemoryScope
from farrier.ir.loop import Alloc, Block, Stmt, Store
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import Indices, Substitution, loads


def forwarded_values(body: Stmt) -> dict[str, Expr]:
    """Return, by scalar name, the value of each scalar that `body` allocates and stores once,
    before any read. A value that loads a buffer that `body` writes may change, and is left out."""
    allocations = [s for s in walk_stmts(body) if isinstance(s, Alloc) and _is_scalar(s)]
    if not allocations:
        return {}
    stores = collections.Counter(name.name for s in walk_stmts(body) for name in s.writes)
    values: dict[str, Expr] = {}
    for allocation in allocations:
        name, first = allocation.buffer.name, _first(allocation.body)
        if not isinstance(first, Store) or first.buffer.name != name or stores[name] != 1:
            continue
        value = substitution(values).expr(first.value)
        if not any(load.buffer.name in stores for load in loads(value)):
            values[name] = value
    return values


def substitution(values: dict[str, Expr]) -> Substitution:
    """Return the substitution that replaces each read of a scalar by its value."""
    return Substitution(reads={name: _read(value) for name, value in values.items()})


def _read(value: Expr) -> Callable[[Indices], Expr]:
    return lambda _: value


def _is_scalar(allocation: Alloc) -> bool:
    return allocation.buffer.scope is MemoryScope.REGISTER and not allocation.buffer.shape


def _first(stmt: Stmt) -> Stmt:
    while isinstance(stmt, Block) and stmt.statements:
        stmt = stmt.statements[0]
    return stmt
