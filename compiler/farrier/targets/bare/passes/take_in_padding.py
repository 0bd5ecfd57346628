"""The selection of Pad nodes that are computed within the kernel of a convolution."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.graph import Graph, Node
from farrier.ops import Product, product_of
from farrier.ops.pad import adds_border

_BYTES = 1  # The size of an element.


def padded_windows(graph: Graph) -> Mapping[int, Node]:
    """Find Pad nodes on bytes whose only reader is a convolution. Return a mapping from the id of
    each Pad to the convolution, whose kernel shall add the padding. The kernel copies only the
    padded lines that a tile reads, so a second, padded image is never stored."""
    readers, returned = graph.consumers(), {value.name for value in graph.outputs}
    constants = {constant.value.name for constant in graph.constants}
    taken: dict[int, Node] = {}
    for node in graph.nodes:
        if not adds_border(node):
            continue
        (padded,) = node.outputs
        of_it = readers.get(padded.name, [])
        is_read = len(of_it) == 1 and of_it[0].inputs[0] == padded
        knows = all(value is None or value.name in constants for value in node.inputs[1:])
        is_small = padded.type.dtype.nbytes == _BYTES and padded.name not in returned
        if is_read and knows and is_small and product_of(of_it[0]) is Product.CONVOLUTION:
            taken[id(node)] = of_it[0]
    return taken
