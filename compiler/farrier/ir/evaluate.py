"""Run a tensor program in numpy, one stage at a time: the meaning of a kernel before any schedule.

The evaluator is strict where code generation relies on it: operands must have one dtype; a load
outside a buffer and its zero halo is an error unless a Select guards it; a halo reads as zero.
Reductions run in the order of their axes, `_SLAB` points at a time, so that large programs fit in
memory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.errors import CompilerError
from farrier.ir.dim import number
from farrier.ir.expr import Axis, Buffer, Expr, Load, Reduce, ReduceOp
from farrier.ir.points import BINARY, Points
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType

Array: TypeAlias = npt.NDArray[Any]

_SLAB = 1 << 22


def evaluate(program: TensorProgram, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the program's outputs by buffer name; `inputs` are logical arrays by buffer name. Dims
    must have been replaced by numbers.

    Raises CompilerError for an input of a wrong shape or dtype, for operands of two dtypes, and for
    an unguarded load out of bounds.
    """
    arrays: dict[str, Array] = {}
    for buffer in program.inputs:
        array = inputs[buffer.name]
        if array.shape != buffer.shape or array.dtype != buffer.dtype.numpy:
            raise CompilerError(
                f"{program.name}: input {buffer.name} is {buffer.dtype}{list(buffer.shape)}, "
                f"given {array.dtype}{list(array.shape)}"
            )
        arrays[buffer.name] = array
    with np.errstate(all="ignore"):
        for stage in program.stages:
            arrays[stage.buffer.name] = _run_stage(stage, arrays)
    return {buffer.name: arrays[buffer.name] for buffer in program.outputs}


def value_at(expr: Expr, variables: Mapping[str, Any]) -> Any:
    """Return the value of an index expression for these values of its variables, which may be
    arrays that broadcast against each other. Raises KeyError for a variable without a value and for
    an element of a buffer, CompilerError for a symbolic size."""
    stage = Stage(Buffer("", DType.I64, ()), (), expr)
    return _StagePoints(variables, stage=stage, arrays={}).value(expr)


def _run_stage(stage: Stage, arrays: Mapping[str, Array]) -> Array:
    shape, dtype = stage.buffer.type.static_shape, stage.buffer.dtype.numpy
    rank, body = len(shape), stage.body
    if not isinstance(body, Reduce):
        here = _StagePoints(_open_axes(stage.axes, rank), stage=stage, arrays=arrays)
        return np.broadcast_to(here.value(body), shape).astype(dtype, order="C")
    total = np.full(shape, body.op.identity(stage.buffer.dtype).value, dtype)
    for fixed, open_axes in _slabs(body.axes, math.prod(shape)):
        width = rank + len(open_axes)
        variables = _open_axes((*stage.axes, *open_axes), width)
        variables |= {name: np.int64(at) for name, at in fixed.items()}
        here = _StagePoints(variables, stage=stage, arrays=arrays)
        extents = _extents(open_axes)
        part = np.broadcast_to(here.value(body.body), (*shape, *extents))
        joined = _REDUCERS[body.op](part, axis=tuple(range(rank, width)), dtype=dtype)
        total = BINARY[body.op.binary](total, joined).astype(dtype, copy=False)
    return total


def _open_axes(axes: tuple[Axis, ...], rank: int) -> dict[str, Any]:
    """Return, for each axis, an array of all its indices. The array has `rank` dimensions and
    extends along that axis only, so that the arrays broadcast against each other."""
    variables: dict[str, Any] = {}
    for position, axis in enumerate(axes):
        shape = [1] * rank
        shape[position] = number(axis.extent)
        variables[axis.name] = np.arange(shape[position], dtype=np.int64).reshape(shape)
    return variables


def _extents(axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(number(axis.extent) for axis in axes)


def _slabs(
    axes: tuple[Axis, ...], points: int
) -> Iterator[tuple[dict[str, int], tuple[Axis, ...]]]:
    """Split a reduction over `axes` into parts by fixing outer axes one by one, until the terms of
    a part, for `points` points of the result, are at most `_SLAB` evaluations. Yield, for each
    part, the values of the fixed axes by name, and the remaining axes."""
    cut = 0
    while cut < len(axes) and points * math.prod(_extents(axes[cut:])) > _SLAB:
        cut += 1
    outer, inner = axes[:cut], axes[cut:]
    for index in np.ndindex(*_extents(outer)):
        yield {axis.name: at for axis, at in zip(outer, index, strict=True)}, inner


@dataclasses.dataclass(frozen=True)
class _StagePoints(Points):
    """The evaluation of a stage at all of its points at once."""

    stage: Stage = dataclasses.field(kw_only=True)
    arrays: Mapping[str, Array] = dataclasses.field(kw_only=True)

    @property
    def owner(self) -> str:
        return f"stage {self.stage.buffer.name}"

    def load(self, load: Load) -> Any:
        buffer, data = load.buffer, self.arrays[load.buffer.name]
        inside: Any = True
        clipped = []
        for axis, index in enumerate(load.indices):
            at, extent = self.value(index), number(buffer.shape[axis])
            before, after = buffer.layout.halo_of(axis) if buffer.layout else (0, 0)
            if np.any(self.mask & ((at < -before) | (at >= extent + after))):
                raise CompilerError(
                    f"{self.owner} reads {buffer.name} at {np.min(at)}.."
                    f"{np.max(at)} along axis {axis} of {extent} with halo {before}, {after}"
                )
            if np.min(at, initial=0) < 0 or np.max(at, initial=0) >= extent:
                inside = inside & (at >= 0) & (at < extent)
                at = np.clip(at, 0, extent - 1)
            clipped.append(at)
        elements = data[tuple(clipped)]
        return elements if inside is True else np.where(inside, elements, data.dtype.type(0))


def _summed(part: Array, axis: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.asarray(np.sum(part, axis=axis, dtype=dtype))


def _multiplied(part: Array, axis: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.asarray(np.prod(part, axis=axis, dtype=dtype))


_REDUCERS: dict[ReduceOp, Callable[..., Array]] = {
    ReduceOp.SUM: _summed,
    ReduceOp.PROD: _multiplied,
    ReduceOp.MAX: lambda part, axis, dtype: np.asarray(np.max(part, axis=axis)),
    ReduceOp.MIN: lambda part, axis, dtype: np.asarray(np.min(part, axis=axis)),
}
