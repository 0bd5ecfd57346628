"""The selection of Gather nodes that are computed within the kernel of a Transpose."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.graph import Graph, Node
from farrier.ops import lookup
from farrier.ops.traits import Moves


def gathered_lines(graph: Graph) -> Mapping[int, Node]:
    """Find Gather nodes whose only reader is a Transpose. Return a mapping from the id of each
    Gather to the Transpose, whose kernel shall read the chosen elements where they are."""
    readers, returned = graph.consumers(), {value.name for value in graph.outputs}
    taken: dict[int, Node] = {}
    for node in graph.nodes:
        if lookup(node.op).moved(node) is not Moves.REPEATED or node.outputs[0].name in returned:
            continue
        of_it = readers.get(node.outputs[0].name, [])
        if len(of_it) == 1 and _is_permutation(of_it[0]):
            taken[id(node)] = of_it[0]
    return taken


def _is_permutation(node: Node) -> bool:
    """Check whether a node moves each element of its only operand to one place."""
    return len(node.inputs) == 1 and lookup(node.op).moved(node) is Moves.ONCE
