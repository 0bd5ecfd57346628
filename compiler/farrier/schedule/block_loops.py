"""The loops within a block of a GPU launch whose subgroups and threads take turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from farrier.ir.expr import Var
from farrier.ir.loop import For, LoopKind, Stmt
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.schedule.tiling_parts import unrolled


class BlockLoops:
    """The loops within a block of `groups` subgroups. The names of their variables begin with
    `name` and end with a number, so that no two are equal."""

    def __init__(self, name: str, groups: int) -> None:
        self._name, self._groups = name, groups
        self._numbers = itertools.count()

    def var(self, name: str) -> Var:
        return Var(f"{self._name}_{name}")

    def numbered(self, name: str) -> str:
        """Return a name that no other loop or buffer of the block has."""
        return f"{self._name}_{name}{next(self._numbers)}"

    def threads(self, body: Callable[[Var, Var], Stmt]) -> Stmt:
        """Return a phase in which each thread of the block runs a statement; `body` returns it for
        the number of a subgroup and that of a thread in it."""
        at = next(self._numbers)
        group, lane = self.var(f"ag{at}"), self.var(f"al{at}")
        inner = For(lane.name, SUBGROUP_SIZE, LoopKind.THREAD, body(group, lane))
        return For(group.name, self._groups, LoopKind.THREAD, inner)

    def subgroups(self, body: Callable[[Var], Stmt]) -> Stmt:
        """Return a phase in which each subgroup of the block runs a statement."""
        group = Var(self.numbered("as"))
        return For(group.name, self._groups, LoopKind.SUBGROUP, body(group))

    def unrolled(self, extent: int, body: Callable[[Var], Stmt]) -> Stmt:
        return unrolled([(self.numbered("ae"), extent)], body)
