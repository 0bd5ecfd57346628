"""The input data and expected outputs for the candidates of a task, computed once per task.

Activations and weights are random; the expected output is computed by the reference in float64.
Arrays are in the memory layout of the task's types: halos are zero; elements that pad a partial
block are NaN in inputs, since no candidate may use them, and are excluded from the comparison of
outputs.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.ir.graph import Graph
from farrier.ir.special import convert
from farrier.ir.types import DType, Layout, TensorType
from farrier.measure.blas import on_one_core
from farrier.ops import Trait, lookup
from farrier.ops.run import run_graph
from farrier.partition.task import Task

Fillers: TypeAlias = Mapping[DType, "np.uint32 | np.uint16"]

# Quiet NaNs, as integers of the dtype's width.
_FILLERS: Fillers = {DType.F32: np.uint32(0x7FC00000), DType.BF16: np.uint16(0x7FC0)}
# Values that no computation returns, or hardly any; for integers of 16 bits and fewer the rarest
# value of the array.
_MARKS = {DType.F32: 0x7FC0DEAD, DType.BF16: 0x7FED, DType.F16: 0x7EED, DType.I32: 0x7FC0DEAD}


@dataclasses.dataclass(frozen=True)
class TaskData:
    """The bytes of the inputs and of the expected outputs, each in the order of the region.
    `padding` is, for each output, the bit pattern of elements that are not compared."""

    inputs: tuple[bytes, ...]
    expected: tuple[bytes, ...]
    padding: tuple[int | None, ...]


def make_task_data(task: Task) -> TaskData:
    """Return the data of a task, which is deterministic for the task's key."""
    rng = np.random.default_rng(zlib.crc32(task.key.encode()))
    region = task.region
    arrays = {value.name: _random(value.type, region, rng) for value in region.inputs}
    with on_one_core():
        outputs = run_graph(region, arrays, wide=True)
    inputs, expected, padding = [], [], []
    for value in region.inputs:
        inputs.append(_packed(value.type, arrays[value.name], _FILLERS.get(value.type.dtype)))
    for value in region.outputs:
        array = outputs[value.name].astype(value.type.dtype.numpy)
        mark = _mark(value.type, array)
        padding.append(mark)
        filler = None if mark is None else _unsigned(array).type(mark)
        expected.append(_packed(value.type, array, filler))
    return TaskData(
        tuple(array.tobytes() for array in inputs),
        tuple(array.tobytes() for array in expected),
        tuple(padding),
    )


def _random(kind: TensorType, region: Graph, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return random values of a type. Floats are normally distributed. Integers and booleans are 0
    or 1, so that integers are valid indices of any axis with at least two elements. If the region
    contains a division, integers are 1 to 3."""
    shape, dtype = kind.static_shape, kind.dtype
    if dtype.is_float:
        return convert(rng.standard_normal(shape, np.float32), dtype)
    if dtype is not DType.BOOL and any(lookup(node.op).has(Trait.DIVIDES) for node in region.nodes):
        return rng.integers(1, 4, shape).astype(dtype.numpy)
    smallest = min((d for v in region.inputs for d in v.type.static_shape if d > 1), default=2)
    return rng.integers(0, min(2, smallest), shape).astype(dtype.numpy)


def _mark(kind: TensorType, array: npt.NDArray[Any]) -> int | None:
    """Return a bit pattern that marks elements of an output as not compared; None if all are
    compared."""
    if kind.layout is None or not _fills_up(kind.layout, array).any():
        return None
    if kind.dtype in _MARKS:
        return _MARKS[kind.dtype]
    bits = _unsigned(array)
    if bits.itemsize > 2:
        return None
    return int(np.bincount(array.ravel().view(bits), minlength=1 << 8 * bits.itemsize).argmin())


def _unsigned(array: npt.NDArray[Any]) -> np.dtype[Any]:
    """Return the unsigned dtype with the width of an array's elements."""
    return np.dtype(f"u{array.itemsize}")


def _packed(
    kind: TensorType, array: npt.NDArray[Any], filler: np.unsignedinteger[Any] | None
) -> npt.NDArray[Any]:
    """Return the logical array in the layout of its type. If a filler is passed, it replaces the
    elements that pad partial blocks."""
    layout = kind.layout
    if layout is None:
        return array
    packed = layout.pack(array)
    if filler is not None:
        packed.view(filler.dtype)[_fills_up(layout, array)] = filler
    return packed


def _fills_up(layout: Layout, array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements in memory that belong neither to the array nor to a halo."""
    halo = [layout.halo_of(axis) for axis in range(array.ndim)]
    whole = np.pad(np.ones(array.shape, np.uint8), halo, constant_values=1)
    fills_up: npt.NDArray[np.bool_] = Layout(layout.dims).pack(whole) == 0
    return fills_up
