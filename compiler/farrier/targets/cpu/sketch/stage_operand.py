"""Rewrite: copy a reduction's operand to a layout in which the elements of a vector are adjacent.

before:
    @program
    def p(a: f32[8, 16], b: f32[32, 16]):
        y: f32[8, 32]
        for i, j in axes(8, 32):
            y[i, j] = sum(a[i, k] * b[j, k] for k in axes(16))
        return y
after:
    @program
    def p(a: f32[8, 16], b: f32[32, 16]):
        y_b_staged: f32[16, 32] in workspace
        for b1, b0 in axes(16, 32):
            y_b_staged[b1, b0] = b[b0, b1]
        y: f32[8, 32]
        for i, j in axes(8, 32):
            y[i, j] = sum(a[i, k] * y_b_staged[k, j] for k in axes(16))
        return y

Vectors run along the axis in which the result is contiguous. An operand that is indexed by that
axis in a non-contiguous dimension must be loaded lane by lane, each time that a tile reads it; the
copy does so only once. Padding is written into the copy, so that the reduction needs no guard.

The cost estimate decides whether the copy is profitable. It contains everything that the reduction
reads, and is a separate stage with its own tiles and threads: a copy for each tile would be
repeated by every thread whose tiles share the operand.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
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
    Select,
    Var,
)
from farrier.ir.linear import Linear, combine
from farrier.ir.operands import map_operands
from farrier.ir.shared_bytes import shares_bytes
from farrier.ir.substitute import loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.space.operations import count_points
from farrier.space.rewrites import conjuncts, replaced
from farrier.targets.cpu.sketch.access import store

# A copy, which reads and writes each element once, may pay off if each element is read this often.
_REUSED = 4


def stage_operands(program: TensorProgram) -> TensorProgram | None:
    """Return the program with copies of the operands that its reductions read lane by lane; None if
    its reductions read all operands by vectors."""
    changed = program
    for stage in program.stages:
        if not isinstance(stage.body, Reduce):
            continue
        staging = _Staging.of(stage)
        if staging is not None:
            body = dataclasses.replace(stage.body, body=staging.rewritten(stage.body.body))
            reader = dataclasses.replace(stage, body=body)
            changed = replaced(changed, stage, *staging.copies.values(), reader)
    return None if len(changed.stages) == len(program.stages) else changed


@dataclasses.dataclass(frozen=True)
class _Box:
    """The range of indices along one dimension of a buffer that a reduction reads: `extent` indices
    from `first`."""

    first: int
    extent: int


_Key: TypeAlias = tuple[str, tuple[_Box, ...], tuple[int, ...], Const | None]


@dataclasses.dataclass(frozen=True)
class _Staging:
    """The copies of one reduction's operands, keyed by the buffer, the ranges and the order of its
    dimensions, and the padding value."""

    stage: Stage
    lane: str
    simplifier: Simplifier
    copies: dict[_Key, Stage]

    @classmethod
    def of(cls, stage: Stage) -> _Staging | None:
        strides = store(stage).strides
        along = [axis for axis, stride in zip(stage.axes, strides, strict=True) if stride == 1]
        lane = next((axis for axis in along if axis.extent != 1), None)
        if lane is None:
            return None
        simplifier = Simplifier({axis.name: axis.extent for axis in stage.all_axes})
        return cls(stage, lane.name, simplifier, {})

    def rewritten(self, expr: Expr) -> Expr:
        """Return the expression with loads replaced by loads of copies; the copies are created on
        demand."""
        staged: Expr | None = None
        if isinstance(expr, Select) and isinstance(expr.then, Load):
            if isinstance(expr.otherwise, Const) and self._is_padding(expr.condition, expr.then):
                staged = self._staged(expr.then, expr.otherwise)
        elif isinstance(expr, Load):
            return self._staged(expr, None) or expr
        return staged or map_operands(expr, self.rewritten)

    def _is_padding(self, condition: Expr, load: Load) -> bool:
        """Check whether a condition is only the bounds check of a load."""
        bounds = []
        for index, extent in zip(load.indices, load.buffer.shape, strict=True):
            form = self.simplifier.linear(index)
            bounds += [form, combine(Linear({}, extent - 1), form, -1)]
        return all(self.simplifier.slack(each) in bounds for each in conjuncts(condition))

    def _staged(self, load: Load, padding: Const | None) -> Expr | None:
        """Return the load of a copy that replaces `load`; None if a copy is not worthwhile."""
        boxes = self._boxes(load, padded=padding is not None)
        inner = self._inner(load)
        if boxes is None or inner is None:
            return None
        if padding is None and inner == _contiguous(load.buffer):
            return None
        elements = math.prod(box.extent for box in boxes)
        if count_points(self.stage.all_axes) < _REUSED * elements:
            return None
        order = [axis for axis in range(len(boxes)) if axis != inner] + [inner]
        copy = self._copy(load.buffer, boxes, order, padding)
        at = (e.sub(load.indices[axis], boxes[axis].first) for axis in order)
        return Load(copy.buffer, tuple(map(self.simplifier.simplify, at)))

    def _boxes(self, load: Load, *, padded: bool) -> list[_Box] | None:
        """Return the range of indices that is read along each dimension. Return None if a range is
        open (dynamic) or data-dependent, or exceeds the buffer and the load is not `padded`."""
        if any(True for index in load.indices for _ in loads(index)) or shares_bytes(load.buffer):
            return None
        boxes = []
        for index, extent in zip(load.indices, load.buffer.shape, strict=True):
            low, high = self.simplifier.bounds(index)
            if not isinstance(low, int) or not isinstance(high, int) or low > high:
                return None
            if not isinstance(extent, int) or not (padded or 0 <= low <= high < extent):
                return None
            boxes.append(_Box(low, high - low + 1))
        return boxes

    def _inner(self, load: Load) -> int | None:
        """Return the dimension whose index increases by one from lane to lane; None if no dimension
        or several depend on the lane."""
        dimensions = [
            dimension
            for dimension, index in enumerate(load.indices)
            if Var(self.lane) in self.simplifier.linear(index).terms
        ]
        if len(dimensions) != 1:
            return None
        form = self.simplifier.linear(load.indices[dimensions[0]])
        return dimensions[0] if form.terms[Var(self.lane)] == 1 else None

    def _copy(
        self, source: Buffer, boxes: list[_Box], order: list[int], padding: Const | None
    ) -> Stage:
        """Return a stage that copies a part of the buffer `source`. `boxes` has the range of
        indices to copy for each dimension, `order` the order of the dimensions in the copy, and
        `padding` the value of elements outside of the buffer."""
        key = (source.name, tuple(boxes), tuple(order), padding)
        if key in self.copies:
            return self.copies[key]
        axes = [Axis(f"{source.name}{axis}", box.extent) for axis, box in enumerate(boxes)]
        ranges = Simplifier({axis.name: axis.extent for axis in axes})
        places = [e.add(Var(axis.name), b.first) for axis, b in zip(axes, boxes, strict=True)]
        body: Expr = Load(source, tuple(places))
        for place, box, extent in zip(places, boxes, source.shape, strict=True):
            assert isinstance(extent, int)
            if padding is not None and box.first < 0:
                body = Select(Binary(BinaryOp.LE, e.index(0), place), body, padding)
            if padding is not None and box.first + box.extent > extent:
                body = Select(e.less(place, extent), body, padding)
        turned = tuple(axes[axis] for axis in order)
        number = len(self.copies) or ""
        name = f"{self.stage.buffer.name}_{source.name}_staged{number}"
        shape = tuple(axis.extent for axis in turned)
        buffer = Buffer(name, source.dtype, shape, None, MemoryScope.WORKSPACE)
        copy = self.copies[key] = Stage(buffer, turned, ranges.simplify(body))
        return copy


def _contiguous(buffer: Buffer) -> int:
    return buffer.layout.dims[-1].axis if buffer.layout is not None else len(buffer.shape) - 1
