"""Random tensor programs of a few stages, small enough for the interpreter.

    t[i, j] = f(x[i, 2*j + 1], …)            at shifted, strided, broadcast or turned axes
    u[i] = sum(t[i, k] * w[k, i] for k …)    sums, minima and maxima, under guards of padding
    v[i] = sum(… if (i + 1 - k) % 2 == 0 …)  or by residue, as strided transposed convolutions
    a[i] = min(k if x[i, k] == m[i] …)       where the minima and maxima of rows lie
    y[i, j] = g(t, u, …)                     several outputs, of several element types

Extents are 0 to 9 and, rarely, longer than two vectors; scalars are among the buffers. Bytes are
only added and multiplied, because the interpreters wrap them at different places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from farrier.ir import expr as e
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
    Select,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.substitute import Substitution, loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType

_DTYPES = (DType.F32, DType.F32, DType.F64, DType.I64, DType.I32, DType.U8)
_OPS = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MAX, BinaryOp.MIN)

_WRAPPING = (BinaryOp.ADD, BinaryOp.MUL)


class _Writer:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw
        self.inputs: list[Buffer] = []
        self.stages: list[Stage] = []

    def number(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def extent(self) -> int:
        return self.pick([1, 2, 3, 4, 5, 7, 8, 9, 1, 2, 3, 4, 5, 0, 17, 35])

    def stage(self, name: str, dtype: DType) -> None:
        axes = tuple(Axis(f"{name}{at}", self.extent()) for at in range(self.number(0, 3)))
        reduced: tuple[Axis, ...] = ()
        if self.number(0, 2):
            reduced = tuple(Axis(f"{name}r{at}", self.extent()) for at in range(self.number(1, 2)))
        body = self.value((*axes, *reduced), dtype, self.number(1, 3))
        if reduced:
            orders = [ReduceOp.MAX, ReduceOp.MIN]
            if dtype is DType.U8 or any(axis.extent == 0 for axis in reduced):
                orders = []  # The minimum of an empty axis is undefined in numpy.
            op = self.pick([ReduceOp.SUM, ReduceOp.SUM, *orders])
            if axes and not self.number(0, 2):
                identity = op.identity(dtype)
                body = Select(self._residue(self.pick(axes), self.pick(reduced)), body, identity)
            body = Reduce(op, reduced, body)
        self._write(name, dtype, axes, body)
        if reduced and op is not ReduceOp.SUM and not self.number(0, 1):
            self._position(name, axes, reduced, body)

    def _write(self, name: str, dtype: DType, axes: tuple[Axis, ...], body: Expr) -> None:
        shape = tuple(axis.extent for axis in axes)
        buffer = Buffer(name, dtype, shape, None, MemoryScope.WORKSPACE)
        self.stages.append(Stage(buffer, axes, body))

    def _residue(self, point: Axis, term: Axis) -> Expr:
        """A guard that lets a few of the terms of a point through."""
        steps = e.mul(Var(term.name), self.pick([1, 1, 2, 3]))
        place = e.sub(e.add(e.mul(Var(point.name), self.pick([1, 1, 2])), self.number(0, 2)), steps)
        stride = self.number(2, 4)
        return Binary(BinaryOp.EQ, e.mod(place, stride), e.index(self.number(0, stride - 1)))

    def _position(
        self, name: str, axes: tuple[Axis, ...], reduced: tuple[Axis, ...], extremes: Reduce
    ) -> None:
        """Write a stage of the positions of extremes along the last of the reduced axes: the first
        or the last position of equal elements."""
        along = reduced[-1]
        best = Load(self.stages[-1].buffer, tuple(Var(axis.name) for axis in axes))
        is_best = Binary(BinaryOp.EQ, extremes.body, best)
        op = self.pick([ReduceOp.MIN, ReduceOp.MAX])
        other = e.index(along.extent if op is ReduceOp.MIN else -1)
        body = Reduce(op, reduced, Select(is_best, Var(along.name), other))
        self._write(f"{name}_at", DType.I64, axes, body)

    def value(self, axes: tuple[Axis, ...], dtype: DType, reads: int) -> Expr:
        value = self.read(axes, dtype)
        for _ in range(reads - 1):
            ops = _WRAPPING if dtype is DType.U8 else _OPS
            value = Binary(self.pick(ops), value, self.read(axes, dtype))
        if dtype.is_float and self.number(0, 4) == 4:
            value = Unary(UnaryOp.ABS, value)
        return value

    def read(self, axes: tuple[Axis, ...], dtype: DType) -> Expr:
        """A read of an earlier stage if one fits, else of a new input."""
        earlier = [s.buffer for s in self.stages if len(s.buffer.shape) <= len(axes)]
        if earlier and self.number(0, 1):
            load = self._within(self.pick(earlier), axes)
            if load is not None:
                return load if e.dtype_of(load) is dtype else Cast(dtype, load)
        return self._input(axes, dtype)

    def _within(self, buffer: Buffer, axes: tuple[Axis, ...]) -> Expr | None:
        """A read of a buffer at some of the axes, guarded where these reach past its end."""
        chosen: list[Axis] = []
        for _ in buffer.shape:
            chosen.append(self.pick([axis for axis in axes if axis not in chosen]))
        guards = [
            e.less(Var(axis.name), extent)
            for axis, extent in zip(chosen, buffer.shape, strict=True)
            if axis.extent > extent
        ]
        if any(extent == 0 for extent in buffer.shape) and guards:
            return None
        load = Load(buffer, tuple(Var(axis.name) for axis in chosen))
        if not guards:
            return load
        condition = guards[0]
        for guard in guards[1:]:
            condition = e.both(condition, guard)
        return Select(condition, load, Const(0.0 if buffer.dtype.is_float else 0, buffer.dtype))

    def _input(self, axes: tuple[Axis, ...], dtype: DType) -> Expr:
        left, indices, shape = list(axes), [], []
        while left and self.number(0, 5):
            axis = left.pop(self.number(0, len(left) - 1))
            step, start = self.pick([1, 1, 1, 2]), self.pick([0, 0, 1])
            index: Expr = e.add(e.mul(Var(axis.name), step), start)
            last = step * (axis.extent - 1) + start
            if left and not self.number(0, 3):
                other = left.pop(self.number(0, len(left) - 1))
                index, last = e.add(index, Var(other.name)), last + other.extent - 1
            indices.append(index)
            shape.append(max(last + 1, 0))
        buffer = Buffer(f"x{len(self.inputs)}", dtype, tuple(shape))
        self.inputs.append(buffer)
        return Load(buffer, tuple(indices))


@st.composite
def programs(draw: Callable[[Any], Any], most: int = 4) -> TensorProgram:
    """Programs of up to `most` stages, of which the unread ones are outputs."""
    writer = _Writer(draw)
    for number in range(writer.number(1, most)):
        writer.stage("tuvwabcd"[number % 8] + str(number // 8), writer.pick(_DTYPES))
    read = {load.buffer.name for stage in writer.stages for load in _loads(stage.body)}
    stages, outputs = [], []
    for stage in writer.stages:
        is_output = stage.buffer.name not in read or writer.number(0, 5) == 5
        if is_output:
            buffer = Buffer(stage.buffer.name, stage.buffer.dtype, stage.buffer.shape)
            outputs.append(buffer)
        stages.append(stage)
    return _with_outputs(writer.inputs, stages, outputs)


def _loads(body: Expr) -> list[Load]:
    return list(loads(body))


def _with_outputs(
    inputs: list[Buffer], stages: list[Stage], outputs: list[Buffer]
) -> TensorProgram:
    change = Substitution(buffers={buffer.name: buffer for buffer in outputs})
    written = tuple(
        Stage(change.buffers.get(s.buffer.name, s.buffer), s.axes, change.expr(s.body))
        for s in stages
    )
    return TensorProgram("program", tuple(inputs), written, tuple(outputs))
