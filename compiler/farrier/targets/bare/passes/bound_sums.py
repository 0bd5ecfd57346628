"""The pass `bound-sums`, which marks integer sums that are known to be small."""

from __future__ import annotations

import dataclasses

from farrier.ir.graph import Graph, Node, attributes
from farrier.ops.bounds import largest
from farrier.ops.fixed_point import IS_SMALL, LARGEST_SUM, SHIFTS, rounds_twice
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings


def bound_sums(graph: Graph, settings: Settings) -> Graph:
    """Set the attribute `is_small` of each Requantize (which scales an integer sum to a byte) if
    the constant weights prove that its sums have at most 30 bits. The multiplication by the scale
    then takes a third of the instructions.

    before:  y = MatMul(x, w, accumulator='i32')
             z = Requantize(y, m, r, rounding='twice', …)
    after:   y = MatMul(x, w, accumulator='i32')
             z = Requantize(y, m, r, rounding='twice', is_small=1, …)
    """
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.emit(_stated(node, rewriter))
    return rewriter.finish()


def _stated(node: Node, rewriter: Rewriter) -> Node:
    if not rounds_twice(node) or len(node.inputs) > 3:
        return node
    x, _, right = node.inputs
    places, most = rewriter.data(right), largest(x, rewriter.data, rewriter.producer)
    if places is None or most is None or most > LARGEST_SUM:
        return node
    low, high = SHIFTS
    if not (low <= places.min() and places.max() <= high):
        return node
    return dataclasses.replace(node, attrs=attributes(**dict(node.attrs), **{IS_SMALL: 1}))
