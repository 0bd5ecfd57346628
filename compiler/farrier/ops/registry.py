"""Find an operator by its name."""

from __future__ import annotations

from farrier.ir.graph import Node
from farrier.ops import (
    activation,
    arg,
    bitwise,
    blocks,
    broadcast,
    control,
    conv,
    conv_transpose,
    conversion,
    det,
    einsum,
    elementwise,
    gather,
    logical,
    matmul,
    normalize,
    own,
    pad,
    phases,
    pool,
    quantize,
    random,
    recurrent,
    reduce,
    regions,
    resize,
    response,
    running,
    sampling,
    scatter,
    select,
    shape,
    slicing,
    softmax,
    statics,
    strings,
    suppress,
    top_k,
    trees,
    unpool,
    view,
    winograd,
)
from farrier.ops.operator import Operator
from farrier.ops.traits import Product

_FAMILIES = (
    activation,
    arg,
    bitwise,
    blocks,
    broadcast,
    control,
    conv,
    conv_transpose,
    conversion,
    det,
    einsum,
    elementwise,
    gather,
    logical,
    matmul,
    normalize,
    own,
    pad,
    phases,
    pool,
    quantize,
    recurrent,
    random,
    reduce,
    regions,
    resize,
    response,
    running,
    sampling,
    scatter,
    select,
    shape,
    slicing,
    softmax,
    statics,
    strings,
    suppress,
    top_k,
    trees,
    unpool,
    view,
    winograd,
)
_BY_NAME: dict[str, Operator] = {
    operator.name: operator for family in _FAMILIES for operator in family.OPERATORS
}


def lookup(op: str) -> Operator:
    """The operator named `op`; raises KeyError where Farrier knows none."""
    return _BY_NAME[op]


def product_of(node: Node) -> Product | None:
    """Return the kind of products that a node sums; None if it sums none of two factors."""
    return lookup(node.op).product


def names() -> frozenset[str]:
    """Every operator that can be looked up."""
    return frozenset(_BY_NAME)
