"""The zeros around an output: the nest that writes them, and where it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import assert_never

from farrier.ir import expr as e
from farrier.ir.affine import bounds
from farrier.ir.blocks import block_of
from farrier.ir.dim import Extent, ceildiv, is_less, product, typical
from farrier.ir.expr import Buffer, Const, Expr, Var
from farrier.ir.loop import Alloc, Block, For, If, Intrinsic, LoopKind, Prefetch, Stmt, Store, While
from farrier.ir.statements import map_children, walk_stmts
from farrier.ir.substitute import Substitution, variables
from farrier.ir.tensor import Stage
from farrier.ir.types import Shape
from farrier.lower.padding import Padding


def zeros_around(stage: Stage, buffer: Buffer, padding: Padding) -> Stmt:
    """Zeros around an output: one parallel loop over the lines of the first axis with halo, in it
    all blocks of the axes without. A thread writes zeros beside what it has computed where that was
    shared by lines, too."""
    layout = buffer.layout
    assert layout is not None
    name = f"{buffer.name}_halo"
    shape = padding.shapes.get(buffer.name, buffer.shape)
    rank = len(shape)
    first, *others = [axis for axis in range(rank) if any(layout.halo_of(axis))]
    counts, fixed, lanes = _blocks(stage, buffer, shape, f"{name}_block")
    before, after = layout.halo_of(first)
    line = Var(name)
    fixed[first] = e.sub(line, before)
    zero = Const(0.0 if buffer.dtype.is_float else 0, buffer.dtype)

    def zeros(side: str, spans: Mapping[int, tuple[Extent, Extent]]) -> Stmt:
        """Zeros at (first index, extent) of each of the other axes."""
        nest: list[tuple[str, Extent, LoopKind]] = []
        indices = dict(fixed)
        for axis, (start, length) in spans.items():
            var = f"{name}_{side}_{stage.axes[axis].name}"
            nest.append((var, length, LoopKind.SERIAL))
            indices[axis] = e.add(Var(var), start)
        for axis, (base, block) in lanes.items():
            var = f"{name}_{side}_{stage.axes[axis].name}"
            nest.append((var, block, LoopKind.VECTORIZED))
            indices[axis] = e.add(base, Var(var))
        stmt: Stmt = Store(buffer, tuple(indices[axis] for axis in range(rank)), zero)
        if side == "outside":
            stmt = If(e.less(line, before), stmt, If(e.less(before + shape[first] - 1, line), stmt))
        for var, length, kind in reversed(nest):
            stmt = For(var, length, kind, stmt)
        return stmt

    spans: dict[int, tuple[Extent, Extent]] = {axis: (0, shape[axis]) for axis in others}
    parts = [zeros("outside", spans)]
    for axis in others:  # the ends of every line; corners belong to the last of their axes
        below, above = layout.halo_of(axis)
        for side, start, extent in (("low", -below, below), ("high", shape[axis], above)):
            if extent != 0:
                end = {**spans, axis: (start, extent)}
                parts.append(zeros(f"{stage.axes[axis].name}_{side}", end))
        spans[axis] = (-below, shape[axis] + below + above)
    blocks = For(f"{name}_block", product(counts), LoopKind.SERIAL, Block(tuple(parts)))
    return For(name, before + shape[first] + after, LoopKind.PARALLEL, blocks)


def _blocks(
    stage: Stage, buffer: Buffer, shape: Shape, name: str
) -> tuple[list[Extent], dict[int, Expr], dict[int, tuple[Expr, int]]]:
    """How the axes without halo are walked by one variable: the extents of its digits, the index of
    each plain axis, and (first index, block) of each blocked one."""
    layout = buffer.layout
    assert layout is not None
    walked = [axis for axis in range(len(shape)) if not any(layout.halo_of(axis))]
    blocks = [block_of(layout, axis) for axis in walked]
    counts = [ceildiv(shape[a], b) for a, b in zip(walked, blocks, strict=True)]
    fixed: dict[int, Expr] = {}
    lanes: dict[int, tuple[Expr, int]] = {}
    for position, (axis, block) in enumerate(zip(walked, blocks, strict=True)):
        digit = e.floordiv(Var(name), product(counts[position + 1 :]))
        if position:
            digit = e.mod(digit, counts[position])
        if block > 1:
            lanes[axis] = (e.mul(digit, block), block)
        else:
            fixed[axis] = digit
    return counts, fixed, lanes


def merge_halos(body: Stmt) -> Stmt:
    """Let the parallel loop before a halo's write it as well: one fork and join for both.

    before:  for y_line in parallel(56): …
             for y_halo in parallel(58):
                 for y_halo_block in 4: …zeros beside line y_halo - 1
    after:   for y_line in parallel(56):
                 …
                 for y_halo in 2:
                     if y_line * 58 // 56 + y_halo < (y_line + 1) * 58 // 56:
                         for y_halo_block in 4: …zeros beside line y_line * 58 // 56 + y_halo - 1

    An iteration takes the lines at its share of the way, so that a thread writes zeros beside what
    it computed; or the blocks, where the loop divides the output by those. No order is lost: a
    halo's nest stores outside of the logical shape alone, and nothing else touches what lies there
    before the nests of the next stage.
    """
    match body:
        case Block(statements):
            merged: list[Stmt] = []
            for stmt in map(merge_halos, statements):
                joined = _joined(merged[-1], stmt) if merged and _is_halo(stmt) else None
                if joined is None:
                    merged.append(stmt)
                else:
                    merged[-1] = joined
            return Block(tuple(merged))
        case Alloc():
            return map_children(body, merge_halos)
        case For() | If() | While() | Store() | Prefetch() | Intrinsic():
            return body
        case _:
            assert_never(body)


def _is_halo(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.var.endswith("_halo")


def _joined(before: Stmt, halo: Stmt) -> Stmt | None:
    """`before` with the halo's zeros in the parallel loop that ends it; None where none does."""
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
        case Block() | For() | If() | While() | Store() | Prefetch() | Intrinsic():
            return None
        case _:
            assert_never(before)


def _share(loop: For, halo: For) -> Stmt:
    """The part of the halo that falls to an iteration of the loop."""
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


def _divides(loop: For, one: For, other: For) -> bool:
    """Whether the loop's halves lie further apart along the axes that `one` walks, a loop over a
    halo's zeros, than along those of `other`."""
    zeros = next(s for s in walk_stmts(one) if isinstance(s, Store))
    name = zeros.buffer.name
    written = [s for s in walk_stmts(loop) if isinstance(s, Store) and s.buffer.name == name]

    def distance(walked: For) -> float:
        axes = [a for a, index in enumerate(zeros.indices) if walked.var in variables(index)]
        return max((_distance(loop, s, axis) for s in written for axis in axes), default=0.0)

    return distance(one) > distance(other)


def _distance(loop: For, store: Store, axis: int) -> float:
    """How far apart the halves of the loop store along an axis, as share of its extent."""
    half = typical(loop.extent) // 2
    ranges = {s.var: typical(s.extent) for s in walk_stmts(loop) if isinstance(s, For)}
    index = store.indices[axis]
    later = Substitution({loop.var: e.add(Var(loop.var), half)}).expr(index)
    low = bounds(index, {**ranges, loop.var: max(half, 1)})
    high = bounds(later, {**ranges, loop.var: ranges[loop.var] - half})
    shift = sum(map(typical, high)) - sum(map(typical, low))
    return shift / 2 / typical(store.buffer.shape[axis])
