"""Evaluate nodes at import whose operands are symbolic sizes, known only at run time.

Such operands are small numpy arrays of object dtype, whose elements are numbers, dims and quotients
of dims (`farrier.ops.symbolic`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from farrier.ir.dim import Dim
from farrier.ir.graph import Attribute
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Array, Operator
from farrier.ops.symbolic import Share
from farrier.ops.traits import Trait


def has_dims(array: Array | None) -> bool:
    """Check whether a constant contains symbolic sizes."""
    return array is not None and array.dtype == object


def parts(array: Array) -> tuple[Array, Array | None]:
    """Split an array with quotients of dims (`Share`) into numerators and denominators. Without
    quotients, the array is returned unchanged, with None as denominators."""
    elements = array.reshape(-1).tolist()
    if not any(isinstance(element, Share) for element in elements):
        return array, None
    whole = np.empty(len(elements), object)
    whole[:] = [each.extent if isinstance(each, Share) else each for each in elements]
    below = np.empty(len(elements), object)
    below[:] = [each.denominator if isinstance(each, Share) else 1 for each in elements]
    return whole.reshape(array.shape), below.reshape(array.shape)


def as_array(values: Any, dtype: DType) -> Array:
    """Return numbers and dims as an array of `dtype`, or of object dtype if dims are among them."""
    array = np.array(values, object)
    if any(isinstance(value, Dim | Share) for value in array.reshape(-1).tolist()):
        return array
    return array.astype(dtype.numpy)


def ints(values: Any) -> Array:
    """Return integers and dims as an i64 array, or as one of object dtype if dims are among
    them."""
    return as_array(values, DType.I64)


def fold(
    op: Operator,
    arrays: Sequence[Array | None],
    attrs: Mapping[str, Attribute],
    kinds: Sequence[TensorType],
) -> list[Array] | None:
    """Return the results of a node with symbolic sizes among its operands, or None if they must be
    computed at run time.

    Raises Undecided if a result depends on the value of a symbol.
    """
    results: Sequence[Array] | None = None
    if op.symbolic is not None:
        results = op.symbolic(arrays, attrs, kinds)
    elif op.moves_elements and (op.has(Trait.JOINS) or not any(map(has_dims, arrays[1:]))):
        results = op.reference(arrays, attrs)
    if results is None or any(value is None for result in results for value in result.reshape(-1)):
        return None
    return [as_array(result, kind.dtype) for result, kind in zip(results, kinds, strict=False)]
