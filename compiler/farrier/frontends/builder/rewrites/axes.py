"""Rewrite CumSum and CumProd along an axis that is known only at run time to a branch for each
axis."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from farrier.frontends.builder.branches import chosen
from farrier.frontends.builder.names import Entry
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.slices import along
from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import number, product
from farrier.ir.sizes import Demand

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def running(node: RawNode, builder: Builder) -> RawNode:
    """Add a chain of conditionals that compare the axis with 0, 1, …, and return the last node of
    it."""
    x, axis = node.inputs
    rank = len(builder.shape(x))
    if builder.data(axis) is not None or rank < 1:
        return node
    count = number(product(builder.shape(axis)))
    for demands, limit in ((Demand.LEAST, -rank), (Demand.MOST, rank - 1)):
        builder.require(axis, [limit] * count, demands, f"it is an axis of {rank}")
    front = along(axis, rank, builder)
    tests = [builder.add("Equal", front, each) for each in range(rank - 1)]

    def along_one(place: int) -> list[Entry]:
        at = builder.constant(ints(place))
        return [builder.entry(builder.add(node.op, x, at, **node.attrs))]

    def from_axis(first: int) -> list[Entry]:
        if first == rank - 1:
            return along_one(first)
        ways = (functools.partial(along_one, first), functools.partial(from_axis, first + 1))
        return chosen(builder, tests[first], ways)

    (result,) = from_axis(0)
    return RawNode("Identity", [builder.bind("", result)], node.outputs, {}, node.origin)
