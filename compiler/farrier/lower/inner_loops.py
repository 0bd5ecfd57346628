"""Guards that a loop further in decides, because a test there is cheaper than a copy out here."""

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
    """Check whether a serial loop in `body` is to decide a guard.

    For a loop or a tile of work a test costs nothing, and out here it costs a copy of all the code
    next to that loop. A symbolic guard may be decided for all of a tile there; any other is left to
    the loop whose variable it mentions. The outermost loop counts: it hands on to the others what
    it leaves open.
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
    """Yield the serial loops of more than one iteration."""
    for loop in walk_stmts(stmt):
        if isinstance(loop, For) and loop.kind is LoopKind.SERIAL and loop.extent != 1:
            yield loop
