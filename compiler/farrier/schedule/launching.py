"""Replace loop nests by the GPU launch that computes the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from farrier.ir.loop import Alloc, Block, Function, Stmt
from farrier.ir.statements import block


def with_launch(
    function: Function, nests: Sequence[Stmt], launch: Stmt, gone: Collection[str]
) -> Function:
    """Return the function with all loop nests in `nests` replaced by `launch`, which is placed at
    the position of the last one. The allocations of the buffers named in `gone` are dropped."""
    last = nests[-1]

    def visit(stmt: Stmt) -> Stmt:
        if any(stmt is nest for nest in nests):
            return launch if stmt is last else Block(())
        if isinstance(stmt, Alloc):
            inner = visit(stmt.body)
            return inner if stmt.buffer.name in gone else Alloc(stmt.buffer, inner)
        if isinstance(stmt, Block):
            parts = [visit(part) for part in stmt.statements]
            return block([part for part in parts if part != Block(())])
        return stmt

    return dataclasses.replace(function, body=visit(function.body))
