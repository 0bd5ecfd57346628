"""What a task's candidates are fed, and what they must answer: made once a task.

Activations and weights are random; the answer is the reference's, in float64. Arrays lie in memory
as the task's types say: halos are zero, the lanes that fill up a partial block are NaN where they
are inputs (nobody may read them) and marked as not compared where they are outputs.
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
from farrier.ops.run import run_graph
from farrier.partition.extract import Task

Fillers: TypeAlias = Mapping[DType, "np.uint32 | np.uint16"]

# Quiet NaNs, as integers of the dtype's width; `farrier_max_error` skips those not to compare.
_NOT_COMPARED: Fillers = {DType.F32: np.uint32(0x7FC0DEAD), DType.BF16: np.uint16(0x7FED)}
_FILLERS: Fillers = {DType.F32: np.uint32(0x7FC00000), DType.BF16: np.uint16(0x7FC0)}
_SIGNED_OPS = frozenset(("Div", "Mod"))  # a zero divisor has no answer


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Bytes of the inputs and of the expected outputs, each in the order of the region."""

    inputs: tuple[bytes, ...]
    expected: tuple[bytes, ...]


def make_task_data(task: Task) -> TaskData:
    """Deterministic by the task's key."""
    rng = np.random.default_rng(zlib.crc32(task.key.encode()))
    region = task.region
    arrays = {value.name: _random(value.type, region, rng) for value in region.inputs}
    outputs = run_graph(region, arrays, wide=True)
    inputs = tuple(
        _packed(value.type, arrays[value.name], _FILLERS).tobytes() for value in region.inputs
    )
    expected = tuple(
        _packed(
            value.type, outputs[value.name].astype(value.type.dtype.numpy), _NOT_COMPARED
        ).tobytes()
        for value in region.outputs
    )
    return TaskData(inputs, expected)


def _random(kind: TensorType, region: Graph, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Normal floats, coins for booleans; integers that index any axis of two elements."""
    shape, dtype = kind.static_shape, kind.dtype
    if dtype.is_float:
        return convert(rng.standard_normal(shape, np.float32), dtype)
    if dtype is not DType.BOOL and any(node.op in _SIGNED_OPS for node in region.nodes):
        return rng.integers(1, 4, shape).astype(dtype.numpy)
    smallest = min((d for v in region.inputs for d in v.type.static_shape if d > 1), default=2)
    return rng.integers(0, min(2, smallest), shape).astype(dtype.numpy)


def _packed(kind: TensorType, array: npt.NDArray[Any], fillers: Fillers) -> npt.NDArray[Any]:
    """The logical array in memory; elements that fill up a partial block hold their dtype's
    filler, where it has one."""
    layout = kind.layout
    if layout is None:
        return array
    packed = layout.pack(array)
    filler = fillers.get(kind.dtype)
    if filler is None:
        return packed
    halo = [layout.halo_of(axis) for axis in range(array.ndim)]
    whole = np.pad(np.ones(array.shape, np.uint8), halo, constant_values=1)
    inside = Layout(layout.dims).pack(whole)
    packed.view(filler.dtype)[inside == 0] = filler
    return packed
