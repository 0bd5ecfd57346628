"""Read the elements of constants."""

from __future__ import annotations

import math

import numpy as np

from farrier.frontends.tflite.schema import COMPLEX64, DTYPES, INT4, TYPE_NAMES, Array, Tensor
from farrier.ops import NotSupported


def elements(tensor: Tensor) -> Array:
    """Return a constant's elements as a view of the file. Complex numbers are pairs along a last
    axis; a sparse tensor's stored elements are a vector."""
    if tensor.type not in DTYPES and tensor.type != COMPLEX64:
        raise NotSupported(f"a constant of {TYPE_NAMES[tensor.type]}")
    data = tensor.data if tensor.data is not None else memoryview(b"")
    if tensor.type == INT4:
        return _nibbles(data, math.prod(tensor.shape)).reshape(tensor.shape)
    is_complex = tensor.type == COMPLEX64
    dtype = np.dtype("<f4") if is_complex else DTYPES[tensor.type].numpy
    if tensor.sparsity is not None:
        return np.frombuffer(data, dtype, len(data) // dtype.itemsize)
    shape = (*tensor.shape, 2) if is_complex else tensor.shape
    return np.frombuffer(data, dtype, math.prod(shape)).reshape(shape)


def _nibbles(data: memoryview, count: int) -> Array:
    """Return signed integers of four bits, two in a byte with the low nibble first."""
    pairs = np.frombuffer(data, np.uint8)
    nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8)
