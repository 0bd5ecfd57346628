"""Merge the nest that writes the zeros around an output into the parallel loop that writes the
output.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import assert_never

from farrier.ir import expr as e
from farrier.ir.affine import bounds
from farrier.ir.dim import ceildiv, is_less, typical
from farrier.ir.expr import Var
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
from farrier.ir.statements import block, map_children, walk_stmts
from farrier.ir.substitute import Substitution, variables


def merge_halos(function: Function) -> Function:
    """Let the parallel loop before a halo write the zeros of the halo as well, which saves one fork
    and join.

    before:
        @function
        def copy(a: f32[4, 3], b: f32[4, 3] @ layout(0, 1, halo=((1, 1), (0, 0)))):
            for y in parallel(4):
                for x in serial(3):
                    b[y, x] = a[y, x]
            for b_halo in parallel(6):
                for b_halo_block in serial(3):
                    if b_halo < 1 or 4 < b_halo:
                        b[b_halo - 1, b_halo_block] = 0.0
    after:
        @function
        def copy(a: f32[4, 3], b: f32[4, 3] @ layout(0, 1, halo=((1, 1), (0, 0)))):
            for y in parallel(4):
                for x in serial(3):
                    b[y, x] = a[y, x]
                for b_halo in serial(2):
                    if y * 6 // 4 + b_halo < (y + 1) * 6 // 4:
                        for b_halo_block in serial(3):
                            if y * 6 // 4 + b_halo < 1 or 4 < y * 6 // 4 + b_halo:
                                b[y * 6 // 4 + b_halo - 1, b_halo_block] = 0.0

    Each iteration writes a share of the lines of the halo, so that a thread writes zeros next to
    the values that it computed; or a share of the blocks, if the loop divides the output by blocks.
    The reordering is safe: a halo's nest stores only outside the logical shape, and nothing
    accesses these elements before the nests of the next stage.
    """
    body = _merged(function.body)
    return function if body is function.body else dataclasses.replace(function, body=body)


def _merged(body: Stmt) -> Stmt:
    match body:
        case Block(statements):
            merged: list[Stmt] = []
            for stmt in map(_merged, statements):
                joined = _joined(merged[-1], stmt) if merged and _is_halo(stmt) else None
                if joined is None:
                    merged.append(stmt)
                else:
                    merged[-1] = joined
            is_same = len(merged) == len(statements) and all(map(operator.is_, merged, statements))
            return body if is_same else block(merged)
        case Alloc():
            return map_children(body, _merged)
        case For() | If() | While() | Store() | Prefetch() | Intrinsic() | Barrier():
            return body
        case _:
            assert_never(body)


def _is_halo(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.var.endswith("_halo")


def _joined(before: Stmt, halo: Stmt) -> Stmt | None:
    """Return `before` with the zeros of the halo added to the parallel loop at its end; None if it
    does not end in a parallel loop."""
    assert isinstance(halo, For)
    match before:
        case For(kind=LoopKind.PARALLEL, extent=extent, body=body) if is_less(0, extent):
            return dataclasses.replace(before, body=Block((body, _share(before, halo))))
        case Alloc():
            inner = _joined(before.body, halo)
            return None if inner is None else dataclasses.replace(before, body=inner)
        case Block((*first, last)):
            inner = _joined(last, halo)
            return None if inner is None else Block((*first, inner))
        case Block() | For() | If() | While() | Store() | Prefetch() | Intrinsic() | Barrier():
            return None
        case _:
            assert_never(before)


def _share(loop: For, halo: For) -> Stmt:
    """Return the share of the halo that one iteration of the loop writes."""
    blocks = halo.body
    assert isinstance(blocks, For)
    outer, inner = (blocks, halo) if _divides(loop, blocks, halo) else (halo, blocks)
    at, count = Var(loop.var), outer.extent
    position = e.add(e.floordiv(e.mul(at, count), loop.extent), Var(outer.var))
    nest = For(inner.var, inner.extent, LoopKind.SERIAL, blocks.body)
    body = Substitution({outer.var: position}).stmt(nest)
    if count % loop.extent != 0:
        end = e.floordiv(e.mul(e.add(at, 1), count), loop.extent)
        body = If(e.less(position, end), body)
    return For(outer.var, ceildiv(count, loop.extent), LoopKind.SERIAL, body)


def _divides(loop: For, blocks: For, lines: For) -> bool:
    """Check whether the loop divides the output along the axes of `blocks` rather than along those
    of `lines`; both are loops over the zeros of a halo.

    The loop divides the output along the axes in which the stores of its first and its second half
    of iterations are furthest apart.
    """
    zeros = next(s for s in walk_stmts(blocks) if isinstance(s, Store))
    name = zeros.buffer.name
    written = [s for s in walk_stmts(loop) if isinstance(s, Store) and s.buffer.name == name]

    def distance(walked: For) -> float:
        axes = [a for a, index in enumerate(zeros.indices) if walked.var in variables(index)]
        return max((_distance(loop, s, axis) for s in written for axis in axes), default=0.0)

    return distance(blocks) > distance(lines)


def _distance(loop: For, store: Store, axis: int) -> float:
    """Return the distance along an axis between the stores of the first and the second half of the
    loop's iterations, as a fraction of the extent of the axis."""
    half = typical(loop.extent) // 2
    ranges = {s.var: typical(s.extent) for s in walk_stmts(loop) if isinstance(s, For)}
    index = store.indices[axis]
    later = Substitution({loop.var: e.add(Var(loop.var), half)}).expr(index)
    low = bounds(index, {**ranges, loop.var: max(half, 1)})
    high = bounds(later, {**ranges, loop.var: ranges[loop.var] - half})
    shift = sum(map(typical, high)) - sum(map(typical, low))
    return shift / 2 / typical(store.buffer.shape[axis])
