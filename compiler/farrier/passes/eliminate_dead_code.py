"""Drops nodes and constants that no output depends on."""

from __future__ import annotations

from farrier.ir.graph import Graph, Node


def eliminate_dead_code(graph: Graph) -> Graph:
    """Drops nodes and constants that no output depends on; inputs stay, being the signature.

    before:
        @graph
        def g(x: f32[4]):
            c: f32[1] = constant([2.0])
            unused: f32[4] = Mul(x, c)
            y: f32[4] = Relu(x)
            return y

    after:
        @graph
        def g(x: f32[4]):
            y: f32[4] = Relu(x)
            return y
    """
    used = {value.name for value in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value.name in used for value in node.outputs):
            kept.append(node)
            used |= _read(node)
    constants = tuple(c for c in graph.constants if c.value.name in used)
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return Graph(graph.name, graph.inputs, constants, tuple(reversed(kept)), graph.outputs)


def _read(node: Node) -> set[str]:
    """Names that a node reads; its regions may read values of the graph around them."""
    names = {value.name for value in node.inputs if value is not None}
    for region in node.regions:
        names |= {value.name for value in region.outputs}
        for inner in region.nodes:
            names |= _read(inner)
    return names
