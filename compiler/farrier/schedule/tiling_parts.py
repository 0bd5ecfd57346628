"""Helpers of the primitives that turn loop nests into a GPU launch of blocks and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent
from farrier.ir.expr import Buffer, Expr, Var
from farrier.ir.loop import For, If, LoopKind, Stmt, Store
from farrier.ir.operands import map_operands
from farrier.ir.statements import map_children
from farrier.ir.substitute import Indices, Substitution
from farrier.ir.threads import UNSEEN, exchange_of, nest_of, phase_of, phases
from farrier.schedule.nest import allocated, loops

Axes: TypeAlias = tuple[tuple[str, Extent], ...]
ZERO = e.index(0)


def product_of(extents: Iterable[Extent]) -> Extent:
    size: Extent = 1
    for extent in extents:
        size = size * extent
    return size


def is_nest(stmt: Stmt) -> bool:
    """Check whether a statement is a perfect nest of serial loops around one store."""
    while isinstance(stmt, For) and stmt.kind in (LoopKind.SERIAL, LoopKind.INDEPENDENT):
        stmt = stmt.body
    return isinstance(stmt, Store)


def only_store(stmt: Stmt) -> Store:
    while isinstance(stmt, For):
        stmt = stmt.body
    assert isinstance(stmt, Store)
    return stmt


def digits(number: Expr, axes: Axes) -> dict[str, Expr]:
    """Return the value of each axis variable at point `number`, where points are numbered in
    row-major order over `axes`."""
    values: dict[str, Expr] = {}
    inner: Extent = 1
    long = [axis for axis in axes if axis[1] != 1]
    for name, extent in reversed(axes):
        if extent == 1:
            values[name] = ZERO
            continue
        digit = e.floordiv(number, inner)
        values[name] = digit if name == long[0][0] else e.mod(digit, extent)
        inner = inner * extent
    return values


def within(point: Expr, extent: Extent, step: int) -> list[Expr]:
    """Return the guard `point < extent` as a list of at most one condition: none if `step`, the
    size of a tile, divides the extent."""
    if isinstance(extent, int) and extent % step == 0:
        return []
    return [e.less(point, extent)]


def under(conditions: Sequence[Expr], stmt: Stmt, otherwise: Stmt | None = None) -> Stmt:
    """Return `stmt` guarded by the conjunction of all conditions, or unguarded if there are none;
    `otherwise` runs if the guard fails."""
    if not conditions:
        return stmt
    condition = conditions[0]
    for other in conditions[1:]:
        condition = e.both(condition, other)
    return If(condition, stmt, otherwise)


def unrolled(axes: Sequence[tuple[str, int]], body: Callable[..., Stmt]) -> Stmt:
    """Return a nest of unrolled loops over `axes`, the outermost first, around the statement that
    `body` returns for their variables."""
    nest = body(*(Var(name) for name, _ in axes))
    for name, extent in reversed(axes):
        nest = For(name, extent, LoopKind.UNROLLED, nest)
    return nest


def simplified(stmt: Stmt) -> Stmt:
    """Return a launch with its expressions simplified.

    Memory that is private to a thread or subgroup is indexed first by the variables of the phase's
    loops. These indices are preserved even for loops with a single iteration, although
    simplification would replace them by 0.
    """
    simplifier = Simplifier({loop.var: loop.extent for loop in loops(stmt)})
    own = {buffer.name for buffer in allocated(stmt) if buffer.scope in UNSEEN}
    inside = {buffer.name for _, body in phases(_body_of(stmt)) for buffer in allocated(body)}

    def visit(part: Stmt) -> Stmt:
        if isinstance(part, For) and part.kind is LoopKind.SERIAL and part.extent == 1:
            return visit(Substitution({part.var: ZERO}).stmt(part.body))
        nest, body = phase_of(part)
        if nest and exchange_of(nest, body):
            return part
        if nest:
            first = tuple(Var(loop.var) for loop in nest)

            def access(buffer: Buffer, indices: Indices) -> Indices:
                if buffer.name not in own - inside:
                    return indices
                return (*first, *indices[len(first) :])

            body = Substitution(access=access).stmt(_simplified(body, simplifier))
            for loop in reversed(nest):
                body = For(loop.var, loop.extent, loop.kind, body)
            return body
        return map_children(map_operands(part, simplifier.simplify), visit)

    return visit(stmt)


def _body_of(stmt: Stmt) -> Stmt:
    """Return the statement within the block loops of a launch."""
    return nest_of(stmt, LoopKind.BLOCK)[1]


def _simplified(stmt: Stmt, simplifier: Simplifier) -> Stmt:
    return map_children(
        map_operands(stmt, simplifier.simplify), lambda part: _simplified(part, simplifier)
    )
