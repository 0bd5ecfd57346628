"""Rules of shapes of tensors, and of operators that change a tensor's shape but not its
elements."""

from __future__ import annotations

import functools

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule, as_index
from farrier.frontends.tflite.schema import DTYPES, INT32
from farrier.ops import Mismatch
from farrier.ops.operator import normal_axis


def _reshape(call: Call, b: Builder) -> str:
    """Convert RESHAPE: the new shape is the second operand, or the option if that is omitted."""
    x = call.value(0)
    if call.has(1):
        shape = as_index(b, call.value(1))
    else:
        shape = b.constant(np.array(call.option("shape"), np.int64))
    if call.is_complex(0):
        shape = b.add("Concat", shape, [2], axis=0)
    return b.add("Reshape", x, shape, allowzero=1)


def _squeeze(call: Call, b: Builder) -> str:
    """Convert SQUEEZE; if no axes are listed, all axes of length 1 are removed."""
    x, axes = call.value(0), call.option("axes")
    shape = b.shape(x)
    rank = len(shape) - call.is_complex(0)
    if not axes:
        axes = tuple(axis for axis in range(rank) if shape[axis] == 1)
    return b.add("Squeeze", x, [normal_axis(axis, rank) for axis in axes])


def _expand_dims(call: Call, b: Builder) -> str:
    x = call.value(0)
    (axis,) = call.ints(1)
    rank = len(b.shape(x)) - call.is_complex(0)
    return b.add("Unsqueeze", x, [normal_axis(axis, rank + 1)])


def _transpose(call: Call, b: Builder) -> str:
    x, perm = call.value(0), call.ints(1)
    rank = len(b.shape(x))
    if call.is_complex(0):
        perm = [*perm, rank - 1]
    if sorted(perm) != list(range(rank)):
        raise Mismatch(f"{perm} is no order of the {rank} axes")
    return b.add("Transpose", x, perm=tuple(perm))


def _shape(call: Call, b: Builder) -> str:
    to = DTYPES[call.option("output_type") or INT32]
    return b.add("Cast", b.add("Shape", call.value(0)), to=str(to))


def _rank(call: Call, b: Builder) -> str:
    return b.constant(np.array(len(b.shape(call.value(0))), np.int32))


def _broadcast(call: Call, b: Builder) -> str:
    return b.add("Expand", call.value(0), as_index(b, call.value(1)))


def _identity(call: Call, b: Builder) -> str:
    return call.value(0)


def _blocks(call: Call, b: Builder, *, op: str) -> str:
    """Convert DEPTH_TO_SPACE and SPACE_TO_DEPTH, in which channels are the last axis and vary
    fastest within a block."""
    size = int(call.option("block_size"))
    if size <= 0:
        raise Mismatch(f"its block size is {size}")
    x = b.add("Transpose", call.value(0), perm=(0, 3, 1, 2))
    return b.add("Transpose", b.add(op, x, blocksize=size), perm=(0, 2, 3, 1))


RULES: dict[str, Rule] = {
    "BROADCAST_TO": _broadcast,
    "DEPTH_TO_SPACE": functools.partial(_blocks, op="DepthToSpace"),
    "EXPAND_DIMS": _expand_dims,
    "RANK": _rank,
    "RESHAPE": _reshape,
    "SHAPE": _shape,
    "SPACE_TO_DEPTH": functools.partial(_blocks, op="SpaceToDepth"),
    "SQUEEZE": _squeeze,
    "TRANSPOSE": _transpose,
}
