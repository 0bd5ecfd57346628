"""Find an operator by its name."""

from __future__ import annotations

import functools

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
from farrier.ops.extension import Imported, Installed, installed
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
    """Return the operator named `op`; raises KeyError where Farrier and other packages have none,
    and UsageError for a package that is broken."""
    operator = _BY_NAME.get(op)
    return _installed().operators[op] if operator is None else operator


def product_of(node: Node) -> Product | None:
    """Return the kind of products that a node sums; None if it sums none of two factors."""
    return lookup(node.op).product


@functools.cache
def names() -> frozenset[str]:
    """Return the names of all operators that can be looked up."""
    return frozenset((*_BY_NAME, *_installed().operators))


def import_of(op: str) -> Imported | None:
    """Return how another package reads the ONNX operator of a qualified name, or None."""
    return _installed().imports.get(op)


@functools.cache
def _installed() -> Installed:
    """The operators of other packages. To look for them reads every installed distribution."""
    return installed(_BY_NAME.keys())
