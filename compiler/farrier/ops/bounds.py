"""Upper bounds on the magnitudes of integer tensors, derived from constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.graph import Node, Value
from farrier.ir.types import DType
from farrier.ops.broadcast import ADD
from farrier.ops.matmul import MATMUL
from farrier.ops.registry import product_of
from farrier.ops.traits import Product

if TYPE_CHECKING:
    import numpy.typing as npt

Data: TypeAlias = "Callable[[Value | None], npt.NDArray[Any] | None]"
Producer: TypeAlias = Callable[[Value | None], Node | None]


def largest(value: Value | None, data: Data, producer: Producer) -> int | None:
    """Return an upper bound on the magnitudes of a tensor of integers, or None if constants imply
    none. `data(value)` returns the content of a constant (None for other values), and
    `producer(value)` the node that computes a value.
    """
    content = data(value)
    if content is not None:
        return int(np.abs(content.astype(np.int64)).max(initial=0))
    node = producer(value)
    if node is None:
        return None
    if ADD.matches(node):
        sides = [largest(operand, data, producer) for operand in node.inputs]
        return None if None in sides else sum(side for side in sides if side is not None)
    kind = product_of(node)
    if kind is None or MATMUL.matches(node) != (kind is not Product.CONVOLUTION):
        return None
    x, weights, *rest = node.inputs
    factors = data(weights)
    if x is None or factors is None or factors.dtype != np.int8 or x.type.dtype not in LARGEST_BYTE:
        return None
    axes = tuple(range(1, factors.ndim)) if kind is Product.CONVOLUTION else -2
    sums = np.abs(factors.astype(np.int64)).sum(axis=axes).max(initial=0)
    bias = largest(rest[0], data, producer) if rest and rest[0] is not None else 0
    return None if bias is None else int(sums) * LARGEST_BYTE[x.type.dtype] + bias


LARGEST_BYTE = {DType.I8: 128, DType.U8: 255}
"""The largest magnitude of a byte, by its dtype."""
