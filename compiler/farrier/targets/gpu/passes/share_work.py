"""The pass `share-work`, which selects parallel loops for sorts, scans and scatters."""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import typical
from farrier.ir.graph import Graph, Node, attributes
from farrier.ops import lookup
from farrier.ops.operator import THREADED
from farrier.passes.rewriting import Rewriter

_ENOUGH = 4096  # Threads that keep most GPUs busy.


def share_work(graph: Graph) -> Graph:
    """Set `threaded` on operators whose usual loops run on few threads, and which have alternative
    loops for many threads.

    before:
        @graph
        def g(x: f32[4, 1000]):
            axis: i64[()] = constant(1)
            y: f32[4, 1000] = CumSum(x, axis)
            return y

    after:
        @graph
        def g(x: f32[4, 1000]):
            axis: i64[()] = constant(1)
            y: f32[4, 1000] = CumSum(x, axis, threaded=1)
            return y
    """
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        rewriter.emit(_marked(rewriter.resolve_inputs(original), rewriter))
    return rewriter.finish()


def _marked(node: Node, rewriter: Rewriter) -> Node:
    threaded = lookup(node.op).threaded
    if threaded is None or typical(threaded.lines(node, rewriter.data)) >= _ENOUGH:
        return node
    return dataclasses.replace(node, attrs=attributes(**{**dict(node.attrs), THREADED: 1}))
