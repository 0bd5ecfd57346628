"""The state shared by a kernel and the bodies of its parallel loops, and cached facts about
statements.

A fact is computed once for each statement and cached by the identity of the statement, because an
unrolled loop requests it in each iteration.
"""

from __future__ import annotations

from typing import assert_never

from farrier.ir import instr
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Buffer, Load, MemoryScope
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.statements import below, walk_stmts
from farrier.targets.cpu.codegen import workspace
from farrier.targets.cpu.codegen.reductions import Reduction, split_reduction
from farrier.targets.cpu.codegen.tiles import RowsCall, TileCall, tile_call
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.llvm.builder import Instructions


class Module:
    """The names, the outlined bodies and the cached facts of one loop function."""

    def __init__(self, function: Function, target: CpuTarget, instructions: Instructions) -> None:
        self.function = function
        self.target = target
        self.instructions = instructions
        self.bodies: list[instr.Function] = []
        self.names = 0
        ranges = {n.var: n.extent for n in walk_stmts(function.body) if isinstance(n, For)}
        self.simplifier = Simplifier(ranges)
        self.params = {p.name: number for number, p in enumerate(function.params)}
        self.workspace = workspace.plan(function)
        self._stored: dict[int, tuple[Stmt, frozenset[str]]] = {}
        self._lockstep: dict[int, tuple[For, bool]] = {}
        self._tile_calls: dict[int, tuple[Intrinsic, TileCall | RowsCall]] = {}
        self._reductions: dict[int, tuple[Store, Reduction | None]] = {}
        self._old: dict[int, tuple[Store, Load]] = {}

    def next_body(self) -> str:
        self.names += 1
        return f"{self.function.name}.body{self.names - 1}"

    def is_lockstep(self, loop: For) -> bool:
        """Check whether the body of a vectorized loop can run in all lanes at once. It must not
        contain an allocation (each lane would need its own), another vectorized or parallel loop,
        or a while loop."""
        entry = self._lockstep.get(id(loop))
        if entry is None:
            entry = self._lockstep[id(loop)] = (
                loop,
                not any(map(_prevents_lockstep, walk_stmts(loop.body))),
            )
        return entry[1]

    def tile_call(self, stmt: Intrinsic) -> TileCall | RowsCall:
        """Return the memory accesses that a call of a tensor intrinsic makes."""
        entry = self._tile_calls.get(id(stmt))
        if entry is None:
            entry = self._tile_calls[id(stmt)] = (stmt, tile_call(stmt, self.simplifier))
        return entry[1]

    def reduction(self, stmt: Store) -> Reduction | None:
        """Return the operator and the operand of a store of the form `buffer[i] = buffer[i] op
        value`; None for any other store."""
        entry = self._reductions.get(id(stmt))
        if entry is None:
            entry = self._reductions[id(stmt)] = (stmt, split_reduction(stmt))
        return entry[1]

    def old(self, stmt: Store) -> Load:
        """Return a load of the element that a store overwrites."""
        entry = self._old.get(id(stmt))
        if entry is None:
            entry = self._old[id(stmt)] = (stmt, Load(stmt.buffer, stmt.indices))
        return entry[1]

    def stored(self, stmt: Stmt) -> frozenset[str]:
        """Return the names of the register buffers that a statement writes."""
        entry = self._stored.get(id(stmt))
        if entry is None:
            parts = [self.stored(part) for part in below(stmt)]
            parts += [_register(buffer) for buffer in stmt.writes]
            names = parts[0] if len(parts) == 1 else frozenset[str]().union(*parts)
            entry = self._stored[id(stmt)] = (stmt, names)
        return entry[1]


def _register(buffer: Buffer) -> frozenset[str]:
    return frozenset((buffer.name,) if buffer.scope is MemoryScope.REGISTER else ())


def _prevents_lockstep(node: Stmt) -> bool:
    """Check whether a vectorized loop that contains `node` cannot run all its lanes at once: the
    node is an allocation, a while loop, or another vectorized or parallel loop with more than one
    iteration."""
    match node:
        case For(_, extent, kind, _):
            return extent != 1 and kind in (LoopKind.VECTORIZED, LoopKind.PARALLEL)
        case While() | Alloc():
            return True
        case Block() | If() | Store() | Prefetch() | Intrinsic() | Barrier():
            return False
        case _:
            assert_never(node)
