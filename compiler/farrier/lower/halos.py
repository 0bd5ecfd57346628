"""Build the loop nest that writes the zeros of a halo around an output."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir import expr as e
from farrier.ir.blocks import block_of
from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.expr import Buffer, Const, Expr, Var
from farrier.ir.loop import Block, For, If, LoopKind, Stmt, Store
from farrier.ir.tensor import Stage
from farrier.ir.types import Shape
from farrier.lower.padding import Padding


def zeros_around(stage: Stage, buffer: Buffer, padding: Padding) -> Stmt:
    """Return the loop nest that writes the zeros of the halo around an output. Its outermost loop
    is parallel and runs over the first axis that has a halo. Inside, loops run over all other axes:
    by blocks of elements along the axes without a halo.

    If the loop that computes the output is distributed along the same axis, a thread writes the
    zeros next to its own values.
    """
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
        """Return the nest that stores zeros over `spans`, which maps each further axis with a halo
        to (first index, extent)."""
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
    # The ends of every line; corners belong to the last of their axes.
    for axis in others:
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
    """Compute the indices along the axes without a halo from the variable `name` of a single loop
    over all their blocks.

    Return three values: the number of blocks along each of these axes; the index of each axis that
    the layout does not divide into blocks; and, for each axis that it does divide, the index at
    which the block begins and the size of a block.
    """
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
