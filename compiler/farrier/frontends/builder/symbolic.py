"""The evaluation, at import, of nodes whose operands are sizes that are known only at run time.

Such values are small arrays of numpy's object dtype, which hold what `farrier.ops.symbolic` calls
sizes.
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
    """Return whether a constant depends on sizes that are known only when the model runs."""
    return array is not None and array.dtype == object


def parts(array: Array) -> tuple[Array, Array | None]:
    """Return the dividends of shares, with other elements as they are, and the divisors, or None if
    the array has no shares."""
    elements = array.reshape(-1).tolist()
    if not any(isinstance(element, Share) for element in elements):
        return array, None
    whole = np.empty(len(elements), object)
    whole[:] = [each.extent if isinstance(each, Share) else each for each in elements]
    below = np.empty(len(elements), object)
    below[:] = [each.denominator if isinstance(each, Share) else 1 for each in elements]
    return whole.reshape(array.shape), below.reshape(array.shape)


def as_array(values: Any, dtype: DType) -> Array:
    """Numbers and dims as an array: of `dtype`, or of objects where there are dims among them."""
    array = np.array(values, object)
    if any(isinstance(value, Dim | Share) for value in array.reshape(-1).tolist()):
        return array
    return array.astype(dtype.numpy)


def ints(values: Any) -> Array:
    """Return integers and dims as the operators take them."""
    return as_array(values, DType.I64)


def fold(
    op: Operator,
    arrays: Sequence[Array | None],
    attrs: Mapping[str, Attribute],
    kinds: Sequence[TensorType],
) -> list[Array] | None:
    """Return the results of a node with sizes among its operands, or None if the model must compute
    them.

    Raises Undecided if a result depends on which of its values a symbol has.
    """
    results: Sequence[Array] | None = None
    if op.symbolic is not None:
        results = op.symbolic(arrays, attrs, kinds)
    elif op.moves_elements and (op.has(Trait.JOINS) or not any(map(has_dims, arrays[1:]))):
        results = op.reference(arrays, attrs)
    if results is None or any(value is None for result in results for value in result.reshape(-1)):
        return None
    return [as_array(result, kind.dtype) for result, kind in zip(results, kinds, strict=False)]
