"""Finds an operator by its name."""

from __future__ import annotations

from farrier.ops import (
    activation,
    broadcast,
    conv,
    einsum,
    elementwise,
    gather,
    logical,
    matmul,
    normalize,
    own,
    pool,
    reduce,
    resize,
    shape,
    slicing,
    softmax,
    statics,
)
from farrier.ops.operator import Operator

_FAMILIES = (
    activation,
    broadcast,
    conv,
    einsum,
    elementwise,
    gather,
    logical,
    matmul,
    normalize,
    own,
    pool,
    reduce,
    resize,
    shape,
    slicing,
    softmax,
    statics,
)
_BY_NAME: dict[str, Operator] = {
    operator.name: operator for family in _FAMILIES for operator in family.OPERATORS
}


def lookup(op: str) -> Operator:
    """The operator named `op`; raises KeyError where Farrier knows none."""
    return _BY_NAME[op]


def names() -> frozenset[str]:
    """Every operator that can be looked up."""
    return frozenset(_BY_NAME)
