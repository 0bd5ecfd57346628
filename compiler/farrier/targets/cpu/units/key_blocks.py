"""The rewrite of attention to blocks of keys: the softmax of a row is combined from the softmaxes
of its blocks.

    before:  high[m] = max(score[m, k])
             weight[m, k] = exp(score[m, k] - high[m])
             total[m] = sum(weight[m, k])
             context[m, n] = sum(weight[m, k] * v[k, n])             the division comes later
    after:   block_high[m, t] = max(score[m, t*B + k])                       for k in B
             weight[m, k] = exp(score[m, k] - max(block_high[m, k // B], lowest))
             block_total[m, t] = sum(weight[m, t*B + k])
             block_context[t, m, n] = sum(weight[m, t*B + k] * v[t*B + k, n])
             partial[t, m, :] = block_context[t, m, :], block_total[m, t], block_high[m, t]
             high[m] = max(partial[t, m, N + 1])
             scale[m, t] = exp(partial[t, m, N + 1] - high[m])
             total[m] = sum(partial[t, m, N] * scale[m, t])
             context[m, n] = sum(partial[t, m, n] * scale[m, t])

All results of a block are stored in one buffer, so that scores and weights are needed only while
their block is processed. (Dao et al., "FlashAttention", 2022, correct earlier sums in place
instead.) For a block that a mask excludes completely, the maximum is the lowest finite number, and
the weights and the block's share of the row are exp(-inf) = 0.
"""

from __future__ import annotations

import dataclasses

from farrier.ir import expr as e
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.ir.walk import rewrite

BLOCK = "key_block"  # The axis over blocks.
CONTEXT = "block_context"
PARTIAL = "partial"
_LOWEST = Const(-3.4028234663852886e38, DType.F32)  # The lowest finite f32.


@dataclasses.dataclass(frozen=True, slots=True)
class KeyBlocks:
    """An attention program, with its stages in two groups: the stages that are computed for each
    block of keys, and the stages that combine the results of all blocks for whole rows. Each group
    is in the order of the program."""

    program: TensorProgram
    inner: tuple[Stage, ...]  # The stages block_high, weight and block_total.
    context: Stage
    partial: Stage
    outer: tuple[Stage, ...]  # The stages high, scale, total, and those computed from it.
    joined: Stage  # The context of whole rows.


def in_key_blocks(
    program: TensorProgram, size: int, rows: tuple[Stage, ...], old: Stage
) -> KeyBlocks:
    """Return an attention rewritten to blocks of `size` keys; `size` must divide the number of
    keys. `rows` are the stages of the row-wise softmax: the maximum of each row, the weights, their
    total, and all stages computed from these. `old` is the stage that computes the context."""
    assert isinstance(old.body, Reduce)
    (reduced,) = old.body.axes
    assert isinstance(reduced.extent, int)
    block = Axis(BLOCK, reduced.extent // size)
    inner = _inner(rows, block, size)
    *batch, point, lane = old.axes
    context = _local(CONTEXT, (*batch, block, point, lane), _over_block(old, size))
    partial = _partial(context, inner)
    outer, joined = _outer(rows, old, block, partial.buffer)
    first, stop = program.stages.index(rows[0]), program.stages.index(old)
    packed = [s for s in program.stages[first:stop] if s not in rows]
    stages = (
        *program.stages[:first],
        *inner,
        *packed,
        context,
        partial,
        *outer,
        joined,
        *program.stages[stop + 1 :],
    )
    program = dataclasses.replace(program, stages=stages)
    return KeyBlocks(program, inner, context, partial, outer, joined)


def _local(name: str, axes: tuple[Axis, ...], body: Expr) -> Stage:
    shape = tuple(axis.extent for axis in axes)
    return Stage(Buffer(name, DType.F32, shape, None, MemoryScope.WORKSPACE), axes, body)


def _over_block(stage: Stage, size: int) -> Expr:
    """Return the reduction of a stage, restricted to the keys of one block."""
    assert isinstance(stage.body, Reduce)
    (axis,) = stage.body.axes
    at = e.add(e.mul(Var(BLOCK), size), Var(axis.name))
    within = Substitution({axis.name: at}).expr(stage.body.body)
    return Reduce(stage.body.op, (Axis(axis.name, size),), within)


def _inner(rows: tuple[Stage, ...], block: Axis, size: int) -> tuple[Stage, Stage, Stage]:
    """Return the three softmax stages of a block of keys: the maximum of its scores (block_high),
    the weights relative to that maximum, and their sum (block_total)."""
    high, weight, total = rows[:3]
    block_high = _local("block_high", (*high.axes, block), _over_block(high, size))

    def of_block(node: object) -> object:
        if isinstance(node, Load) and node.buffer == high.buffer:
            key = e.floordiv(Var(weight.axes[-1].name), size)
            return Binary(BinaryOp.MAX, Load(block_high.buffer, (*node.indices, key)), _LOWEST)
        return node

    weight = dataclasses.replace(weight, body=rewrite(weight.body, of_block))
    return block_high, weight, _local("block_total", (*total.axes, block), _over_block(total, size))


def _partial(context: Stage, inner: tuple[Stage, Stage, Stage]) -> Stage:
    """Return the stage that collects the results of a block in one buffer: its context, total and
    maximum."""
    block_high, _, block_total = inner
    *batch, block, point, lane = context.axes
    assert isinstance(lane.extent, int)
    row = tuple(Var(axis.name) for axis in (*batch, point, block))
    there = tuple(Var(axis.name) for axis in context.axes)
    top = Binary(BinaryOp.MAX, Load(block_high.buffer, row), _LOWEST)
    at_total = Binary(BinaryOp.EQ, Var(lane.name), e.index(lane.extent))
    behind = Select(at_total, Load(block_total.buffer, row), top)
    body = Select(e.less(Var(lane.name), lane.extent), Load(context.buffer, there), behind)
    wider = Axis(lane.name, lane.extent + 2)
    return _local(PARTIAL, (*batch, block, point, wider), body)


def _outer(
    rows: tuple[Stage, ...], old: Stage, block: Axis, partial: Buffer
) -> tuple[tuple[Stage, ...], Stage]:
    """Return the stages that combine the results of the blocks of each row: the maximum over all
    blocks, the scale of each block relative to it, the total, and all stages computed from these.
    Return separately the stage that computes the context of whole rows, which replaces `old`.
    `partial` is the buffer with the results of the blocks."""
    high, _, total, *rest = rows
    lane = old.axes[-1]
    assert isinstance(lane.extent, int)

    def block_result(row: tuple[Expr, ...], at: Expr) -> Load:
        """Return the load of a block's results (`partial`) for a row, at index `at` of the last
        axis: an element of the context, the total or the maximum."""
        return Load(partial, (*row[:-1], Var(BLOCK), row[-1], at))

    def scaled(row: tuple[Expr, ...], at: Expr) -> Reduce:
        """Return the sum over a row's blocks of the loads at index `at`, each multiplied by the
        scale of its block."""
        share = Binary(BinaryOp.MUL, block_result(row, at), Load(scale.buffer, (*row, Var(BLOCK))))
        return Reduce(ReduceOp.SUM, (block,), share)

    mine = tuple(Var(axis.name) for axis in high.axes)
    tops = block_result(mine, e.index(lane.extent + 1))
    high = dataclasses.replace(high, body=Reduce(ReduceOp.MAX, (block,), tops))
    apart = Binary(BinaryOp.SUB, tops, Load(high.buffer, mine))
    scale = _local("block_scale", (*high.axes, block), Unary(UnaryOp.EXP_NONPOSITIVE, apart))
    total = dataclasses.replace(total, body=scaled(mine, e.index(lane.extent)))
    row = tuple(Var(axis.name) for axis in old.axes[:-1])
    joined = dataclasses.replace(old, body=scaled(row, Var(lane.name)))
    return (high, scale, total, *rest), joined
