"""Index tensors. A negative index counts from the end of the axis, and an index outside of the axis
is clamped to it: compiled code must not access memory outside of its buffers for any data.
"""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import Extent
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Array, Mismatch, Types, required
from farrier.ops.scalar import Scalar, cast, maximum, minimum, where


def checked_indices(types: Types, position: int = 1) -> TensorType:
    """Return the type of the index operand at `position`. Raises Mismatch for other dtypes than i32
    and i64.
    """
    indices = required(types, position)
    if indices.dtype not in (DType.I32, DType.I64):
        raise Mismatch(f"indices are {indices.dtype}, and must be i32 or i64")
    return indices


def bounded(indices: Array, extent: int) -> Array:
    """Return indices in numpy as positions in [0, extent): negative ones wrapped once, then
    clamped.
    """
    return np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)


def position(index: Scalar, extent: Extent) -> Scalar:
    """Return an index as a position in [0, extent): a negative one is wrapped once, then
    clamped."""
    wide = cast(index, DType.I64)
    wrapped = where(wide < 0, wide + extent, wide)
    return minimum(maximum(wrapped, 0), extent - 1)
