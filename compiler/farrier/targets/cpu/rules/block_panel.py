"""Rule: products of many rows with weights that are quantized in blocks, where each panel of
weights is dequantized once.

    for panel:                           `vectors` vectors of columns
        packed[b, i, lanes] = (codes - zeros) * scales       in a cache of the thread's own
        for row:                         a tile in registers, as `register_tile` computes it
            sum[row, vector] += broadcast[row] * packed[vector]
            epilogue, store

With few rows, the dequantized copy does not pay off; the rule `block_tile` then multiplies by the
codes (the quantized integers) directly. It also takes rows of bytes.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Var,
)
from farrier.ir.operands import map_operands
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Decisions, Knob, Space
from farrier.targets.cpu.rules.register_tile import RegisterTileKernel
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.block_layout import BlockLayout
from farrier.targets.cpu.units.block_products import BlockProduct, find_block_product
from farrier.targets.cpu.units.contraction import extent_of, find_contraction
from farrier.targets.cpu.units.operands import PACKED, by_first_use

RULE = RuleId("block_panel", version=1)
_FEWEST_ROWS = 16


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a product of many floating-point rows with block-quantized
    weights; None for any other program."""
    program = by_first_use(without_halos(program))
    product = find_block_product(program)
    machine = target.machine(threads)
    if product is None or product.part.stage.buffer.dtype is not DType.F32:
        return None
    rows = [axis for axis in product.points if extent_of(product.total, axis) > 1]
    if not rows or extent_of(product.total, rows[-1]) < _FEWEST_ROWS:
        return None
    layout = BlockLayout(product, machine.lanes, 1)
    program = accumulate(_dequantized(program, product))
    contraction = find_contraction(program, leading=(PACKED,))
    if contraction is None or 2 * extent_of(product.total, product.lane) < machine.lanes:
        return None
    weight = target.code_weight
    kernel = BlockPanelKernel(program, contraction, machine, (), 0, "", True, None, weight, layout)
    return Space.of(RULE, kernel)


def _dequantized(program: TensorProgram, product: BlockProduct) -> TensorProgram:
    """Return the program with the dequantized weights as a stage of floats.

    before:  sums[m, b] = sum(x[m, 32 * b + i])
             part[m, b, n] = sum(codes[b, i, n] * x[m, 32 * b + i])
             total[m, n] = sum((part[m, b, n] - sums[m, b] * zeros[b, n]) * scales[b, n])
    after:   packed[b, i, n] = (codes[b, i, n] - zeros[b, n]) * scales[b, n]
             total[m, n] = sum(x[m, 32 * b + i] * packed[b, i, n])
    """
    total, part = product.total, product.part
    assert isinstance(total.body, Reduce)
    assert isinstance(part.stage.body, Reduce)
    block, within = total.body.axes[0], part.stage.body.axes[0]
    lane = total.axes[-1]
    axes: tuple[Axis, ...] = (block, within, lane)
    shape = tuple(axis.extent for axis in axes)
    buffer = Buffer(PACKED, DType.F32, shape, None, MemoryScope.WORKSPACE)
    values: dict[str, Expr] = {part.stage.buffer.name: Cast(DType.F32, part.vector_load)}
    if product.sums is not None:
        values[product.sums.buffer.name] = Const(1.0, DType.F32)
    weight = Stage(buffer, axes, _with(total.body.body, values))
    packed = Load(buffer, tuple(Var(axis.name) for axis in axes))
    term = Binary(BinaryOp.MUL, part.broadcast_load, packed)
    product_stage = Stage(total.buffer, total.axes, Reduce(ReduceOp.SUM, (block, within), term))
    return dataclasses.replace(program, stages=(weight, product_stage, *product.epilogue))


def _with(expr: Expr, values: dict[str, Expr]) -> Expr:
    """Return the expression with each load from a buffer in `values` replaced by that buffer's
    value."""
    match expr:
        case Load(buffer, _) if buffer.name in values:
            return values[buffer.name]
        case Binary(BinaryOp.MUL, left, right):
            sides = [_with(side, values) for side in (left, right)]
            others = [side for side in sides if side != Const(1.0, DType.F32)]
            return others[0] if len(others) == 1 else Binary(BinaryOp.MUL, *sides)
    return map_operands(expr, lambda part: _with(part, values))


@dataclasses.dataclass(frozen=True)
class BlockPanelKernel(RegisterTileKernel):
    layout: BlockLayout

    def knobs(self) -> tuple[Knob, ...]:
        widths = self.layout.widths
        return tuple(
            Knob(knob.name, widths) if knob.name == "vectors" else knob for knob in super().knobs()
        )

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = super().schedule(decisions)
        self.layout.apply(schedule)
        return schedule

    def _pack_panel(self, schedule: Schedule, stage: Stage) -> None:
        """Vectorize the loop nest that dequantizes a panel of weights. If several codes share a
        byte, the nest processes the first code of all bytes, then the second, and so on."""
        block, within, lane = (f"{stage.buffer.name}_{axis.name}" for axis in stage.axes)
        chunk, lanes = schedule.split(lane, self.machine.lanes)
        places = []
        if self.layout.per_byte > 1:
            place, within = schedule.split(within, self.layout.block // self.layout.per_byte)
            places.append(place)
        schedule.reorder(block, within, *places, chunk, lanes)
        schedule.vectorize(lanes)
        schedule.unroll(chunk, *places)
