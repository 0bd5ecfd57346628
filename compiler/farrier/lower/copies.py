"""Copy statements of a loop nest with new names for their loops, within a budget for the code
size.
"""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir import expr as e
from farrier.ir.dim import Extent
from farrier.ir.expr import Expr, Var
from farrier.ir.loop import For, Stmt
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import Substitution
from farrier.lower.code_size import unrolled_size
from farrier.lower.guards import Guard

_NOTHING: Mapping[str, Expr] = {}
# Bounds on the unrolled stores in copies of one kernel, made to free others from a Select, and in
# tails of unknown length that have narrower tiles.
_MOST_FREED = 256
_MOST_NARROWED = 2048


class Copies:
    """A maker of copies of statements in one nest. `origins` maps each copied loop to the original
    loop."""

    def __init__(self, body: Stmt) -> None:
        self.origins: dict[str, str] = {}
        self._taken = {s.var for s in walk_stmts(body) if isinstance(s, For)}
        self._counts: dict[str, int] = {}
        self._freed = 0
        self._narrowed = 0

    def of(self, stmt: Stmt, variables: Mapping[str, Expr] = _NOTHING) -> Stmt:
        """Return a copy of the statement with variables replaced and new names for its loops."""
        old = [s.var for s in walk_stmts(stmt) if isinstance(s, For)]
        loops = dict(zip(old, self._new_names(old), strict=True))
        renamed = {name: Var(new) for name, new in loops.items()}
        return Substitution({**variables, **renamed}, loops=loops).stmt(stmt)

    def rest(self, loop: For, cut: Extent) -> Stmt:
        """Return the iterations of the loop from `cut` on as a loop that counts from zero, with new
        names for this loop and those within."""
        extent = loop.extent - cut
        if extent == 1:
            return self.of(loop.body, {loop.var: e.index(cut)})
        (name,) = self._new_names([loop.var])
        body = self.of(loop.body, {loop.var: e.add(Var(name), cut)})
        return For(name, extent, loop.kind, body)

    def may_free(self, guard: Guard, body: Stmt) -> bool:
        """Check whether the budget allows one more copy of `body` to remove a guard, and charge the
        copy to the budget. Only soft guards (conditions of Selects) have a budget."""
        if not guard.soft:
            return True
        size = unrolled_size(body)
        if self._freed + size > _MOST_FREED:
            return False
        self._freed += size
        return True

    def may_narrow(self, tile: Stmt) -> bool:
        """Check whether the budget allows this narrower tile in a tail, and charge the tile to the
        budget."""
        size = unrolled_size(tile)
        if self._narrowed + size > _MOST_NARROWED:
            return False
        self._narrowed += size
        return True

    def _new_names(self, names: list[str]) -> list[str]:
        """Return a new name for the copy of each loop: `<loop>_tail`, numbered from the second copy
        on."""
        new = []
        for name in names:
            base, copy = name.partition("_tail")[0], name
            count = self._counts.get(base, 0)
            while copy in self._taken:
                count += 1
                copy = f"{base}_tail{count if count > 1 else ''}"
            self._counts[base] = count
            self._taken.add(copy)
            self.origins[copy] = self.origins.get(name, name)
            new.append(copy)
        return new
