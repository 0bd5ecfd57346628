"""Constant folding while a model is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.limits import MAX_FOLDED_BYTES
from farrier.frontends.builder.symbolic import fold, has_dims
from farrier.ir.dim import number
from farrier.ir.graph import Attribute, Value
from farrier.ir.types import TensorType
from farrier.ops import Kind, Operator
from farrier.ops.traits import Trait


def folded(
    operator: Operator,
    inputs: Sequence[Value | None],
    data: Sequence[npt.NDArray[Any] | None],
    kinds: Sequence[TensorType],
    attrs: Mapping[str, Attribute],
) -> Sequence[npt.NDArray[Any]] | None:
    """Return the results of a node as constants, or None if the node has to stay in the graph.
    `data` are the elements of the inputs, None for an input that is not constant; `kinds` are the
    types of the results.

    Results that share memory with the operands, as those of views and fills do, are folded at any
    size, other results only up to `MAX_FOLDED_BYTES`. Dequantization is not folded, because passes
    can multiply quantized tensors as integers. Raises Undecided if a result depends on the value of
    a symbol.
    """
    if all(kind.is_static and not kind.size for kind in kinds):
        return [np.empty(kind.static_shape, kind.dtype.numpy) for kind in kinds]
    if not all(kind.is_static for kind in kinds):
        return None
    is_small = sum(number(kind.nbytes) for kind in kinds) <= MAX_FOLDED_BYTES
    if operator.from_types is not None and is_small:
        types = [None if value is None else value.type for value in inputs]
        return [operator.from_types(types, attrs)]
    if any(value is not None and array is None for value, array in zip(inputs, data, strict=True)):
        return None
    if operator.has(Trait.DEQUANTIZES) and kinds[0].rank:
        return None
    if any(map(has_dims, data)):
        return fold(operator, data, attrs, kinds)
    is_view = operator.kind is Kind.VIEW or operator.has(Trait.SHARES_MEMORY)
    if not is_view and (not is_small or operator.kind is Kind.CONTRACTION):
        return None
    with np.errstate(all="ignore"):
        return operator.evaluate(data, attrs, tuple(kinds))
