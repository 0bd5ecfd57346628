"""Recognize nodes that need no code, because their output shares the memory of their input."""

from __future__ import annotations

import dataclasses

from farrier.ir.graph import Node
from farrier.ir.types import Layout, TensorType
from farrier.ops import Kind, lookup
from farrier.ops.shape import TRANSPOSE
from farrier.ops.slicing import ADJOIN, PART
from farrier.passes.rules.shapes import permutation


def is_view(node: Node) -> bool:
    """Check whether the output shares the memory of the first input: row-major with another shape,
    transposed by its layout only, or a part of the input. Adjoin is not a view: its inputs are
    parts of its output."""
    x = node.inputs[0] if node.inputs else None
    if x is None or ADJOIN.matches(node) or node.regions:
        return False
    y = node.outputs[0]
    if TRANSPOSE.matches(node):
        return (y.type.layout or Layout.plain(y.type.rank)) == transposed(x.type, permutation(node))
    plain = x.type.layout is None and y.type.layout is None
    return plain and (lookup(node.op).kind is Kind.VIEW or PART.matches(node))


def transposed(type: TensorType, perm: tuple[int, ...]) -> Layout:
    """Return the layout in which the transposed tensor has the memory of the original, of type
    `type`."""
    layout = type.layout or Layout.plain(type.rank)
    dims = tuple(dataclasses.replace(dim, axis=perm.index(dim.axis)) for dim in layout.dims)
    halo = tuple(layout.halo[axis] for axis in perm) if layout.halo else ()
    return Layout(dims, halo)
