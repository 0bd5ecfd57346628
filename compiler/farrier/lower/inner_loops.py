"""Decide which guards are left to an inner loop, where a test is cheaper than a copy of the code in
an outer loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from farrier.ir.loop import For, LoopKind, Stmt
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import variables
from farrier.lower.code_size import WORK, unrolled_size
from farrier.lower.guards import Guard

# The unrolled stores from which on a statement is not copied for a guard that a loop in it decides.
MUCH = 64


def is_decided_within(guard: Guard, body: Stmt, is_symbolic: bool) -> bool:
    """Check whether a guard should be decided by a serial loop within `body`, not by the loop
    around `body`.

    In an inner loop that does enough work, a test costs next to nothing. Deciding the guard in the
    outer loop, in contrast, costs a copy of all code next to the inner loop.

    A guard on symbolic sizes may be decided in any inner loop. A guard on constants is only left to
    the loop whose variable it mentions. Only the outermost suitable loop is examined, since it can
    in turn leave the guard to a loop within it.
    """
    names = {name for atom in guard.inner for name in variables(atom)}
    loops = [loop for loop in _serial_loops(body) if loop.var in names]
    if not loops or (len(loops) > 1 and not is_symbolic):
        return False
    loop = loops[0]
    copied = unrolled_size(body)
    if not is_symbolic and (guard.soft or names != {loop.var} or copied < MUCH):
        return False
    size = unrolled_size(loop.body)
    is_least = 2 * size < copied
    return is_least or size >= WORK or any(_serial_loops(loop.body))


def _serial_loops(stmt: Stmt) -> Iterator[For]:
    """Yield all loops within a statement that are serial and have more than one iteration."""
    for loop in walk_stmts(stmt):
        if isinstance(loop, For) and loop.kind is LoopKind.SERIAL and loop.extent != 1:
            yield loop
