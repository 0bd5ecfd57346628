"""Indices that are data. A negative one counts from the end; one outside the axis stands for the
nearest element: compiled code must not leave its buffers, whatever the data."""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import Extent
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Array, Mismatch, Types, required
from farrier.ops.scalar import Scalar, cast, maximum, minimum, where


def checked_indices(types: Types, position: int = 1) -> TensorType:
    """The type of an operand that holds indices."""
    indices = required(types, position)
    if indices.dtype not in (DType.I32, DType.I64):
        raise Mismatch(f"indices are {indices.dtype}, and must be i32 or i64")
    return indices


def bounded(indices: Array, extent: int) -> Array:
    """Indices as positions in [0, extent)."""
    return np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)


def position(index: Scalar, extent: Extent) -> Scalar:
    """An index as a position in [0, extent)."""
    wide = cast(index, DType.I64)
    wrapped = where(wide < 0, wide + extent, wide)
    return minimum(maximum(wrapped, 0), extent - 1)
