"""Extend loops over a blocked axis to the end of its last block, so that lanes need no guard.

A buffer in NCHW16c with 40 channels has memory for 48. A stage that writes it may compute all 48 if
everything that it reads at those channels has memory too: other blocked buffers do; a workspace
buffer grows along with its stage; a constant gets a layout of complete blocks, whose padding is
zero. If a buffer without blocks is read at that axis, the loop keeps the logical extent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.ir.affine import Simplifier
from farrier.ir.blocks import block_of, coverage
from farrier.ir.dim import Extent, ceildiv, is_less, number
from farrier.ir.expr import Buffer, MemoryScope, Reduce, Var
from farrier.ir.substitute import loads, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout, Shape

_MOST_POWER = 8  # The highest power of two that a block of a constant's open axis may be.


@dataclasses.dataclass(frozen=True, slots=True)
class Padding:
    """The extended shapes and the layouts of constants for a program, by buffer name."""

    # The points that a stage's loops cover; without an entry they cover the logical shape.
    shapes: Mapping[str, Shape]
    # The layouts of constants that are read beyond their logical shape.
    layouts: Mapping[str, Layout]


def plan_padding(program: TensorProgram) -> Padding:
    """Choose the stages that compute complete blocks, including the padding of the last block. Also
    choose the layouts with complete blocks that the constants read by these stages need."""
    plan = Padding({}, {})
    stages = {stage.buffer.name: stage for stage in program.stages}
    for stage in reversed(program.stages):
        for axis, extent in enumerate(stage.buffer.shape):
            whole = coverage(stage.buffer, axis)
            if block_of(stage.buffer.layout, axis) > 1 and whole != extent:
                plan = _pad(stages, stage, axis, whole, plan) or plan
    return plan


def _pad(
    stages: Mapping[str, Stage], stage: Stage, axis: int, whole: Extent, plan: Padding
) -> Padding | None:
    """Extend `plan` so that `stage` computes the indices [0, whole) of `axis`, and return it.
    Return None if the stage would then read outside of some buffer's memory."""
    buffer = stage.buffer
    shape = plan.shapes.get(buffer.name, buffer.shape)
    if is_less(whole - 1, shape[axis]):
        return plan
    shapes = {**plan.shapes, buffer.name: (*shape[:axis], whole, *shape[axis + 1 :])}
    extended: Padding | None = Padding(shapes, plan.layouts)
    name = stage.axes[axis].name
    ranges: dict[str, Extent] = {
        a.name: extent for a, extent in zip(stage.axes, shape, strict=True)
    }
    if isinstance(stage.body, Reduce):
        ranges |= {a.name: a.extent for a in stage.body.axes}
    ranges[name] = whole
    simplifier = Simplifier(ranges)
    for load in loads(stage.body):
        for at, index in enumerate(load.indices):
            if extended is None or name not in variables(index):
                continue
            low, high = simplifier.bounds(index)
            halo = load.buffer.layout.halo_of(at)[0] if load.buffer.layout else 0
            if is_less(-halo - 1, low) and is_less(high, coverage(load.buffer, at)):
                continue
            extended = (
                _extend(stages, load.buffer, at, whole, extended) if index == Var(name) else None
            )
    return extended


def _extend(
    stages: Mapping[str, Stage], buffer: Buffer, axis: int, whole: Extent, plan: Padding
) -> Padding | None:
    """Extend `plan` so that `buffer`, which a padded stage reads, has memory for the indices [0,
    whole) of `axis`, and return it. Return None if that is not possible."""
    if buffer.name in stages:
        owned = buffer.scope is not MemoryScope.PARAM and buffer.layout is None
        fits = owned or is_less(whole - 1, coverage(buffer, axis))
        return _pad(stages, stages[buffer.name], axis, whole, plan) if fits else None
    if buffer.scope is not MemoryScope.CONSTANT or buffer.layout is not None:
        return None
    if buffer.name in plan.layouts:
        chosen = dataclasses.replace(buffer, layout=plan.layouts[buffer.name])
        return plan if is_less(whole - 1, coverage(chosen, axis)) else None
    block = _whole_block(buffer.shape[axis], whole)
    if block is None:
        return None
    layout = Layout.blocked(len(buffer.shape), axis, block)
    return Padding(plan.shapes, {**plan.layouts, buffer.name: layout})


def _whole_block(extent: Extent, whole: Extent) -> int | None:
    """Return a block size such that `extent`, rounded up to whole blocks, is `whole`: the smallest
    such power of two. If there is none, return `whole` itself if it is a number, else None."""
    for power in range(number(whole).bit_length() if isinstance(whole, int) else _MOST_POWER):
        block = 1 << power
        if ceildiv(extent, block) * block == whole:
            return block
    return whole if isinstance(whole, int) else None
