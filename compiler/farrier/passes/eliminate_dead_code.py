"""Drop nodes and constants that no output depends on."""

from __future__ import annotations

import dataclasses
import itertools

from farrier.ir.control import If, Loop, control_of, make_if, make_loop
from farrier.ir.graph import Graph, Node
from farrier.ir.liveness import Liveness


def eliminate_dead_code(graph: Graph) -> Graph:
    """Drop nodes and constants that no output depends on; unused inputs stay, as part of the
    signature.

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
    sizes = {
        constant.value.name: constant.data for constant in graph.constants if constant.has_dims
    }
    used = Liveness(graph.outputs, sizes.get)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if used.needs(node):
            live = _pruned(node, used)
            kept.append(live)
            used.add(live)
    constants = tuple(c for c in graph.constants if c.value.name in used.values)
    nodes = tuple(reversed(kept))
    if nodes == graph.nodes and len(constants) == len(graph.constants):
        return graph
    return Graph(graph.name, graph.inputs, constants, nodes, graph.outputs)


def _pruned(node: Node, used: Liveness) -> Node:
    """Return a control-flow node without its unused results and without captured values that its
    regions do not read; return any other node unchanged."""
    match control_of(node):
        case If() as branch:
            return _pruned_if(branch, used, node.origin)
        case Loop() as loop:
            return _pruned_loop(loop, used, node.origin)
        case None:
            return node


def _pruned_if(node: If, used: Liveness, origin: str) -> Node:
    live = list(map(used.is_live, node.results))
    branches = []
    read = [False] * len(node.captured)
    for region in node.branches:
        outputs = tuple(itertools.compress(region.outputs, live))
        branch = eliminate_dead_code(dataclasses.replace(region, outputs=outputs))
        reads = _read(branch)
        read = [old or v.name in reads for old, v in zip(read, branch.inputs, strict=True)]
        branches.append(branch)
    then, otherwise = (
        dataclasses.replace(branch, inputs=tuple(itertools.compress(branch.inputs, read)))
        for branch in branches
    )
    return make_if(
        dataclasses.replace(
            node,
            captured=tuple(itertools.compress(node.captured, read)),
            results=tuple(itertools.compress(node.results, live)),
            branches=(then, otherwise),
        ),
        origin,
    )


def _pruned_loop(node: Loop, used: Liveness, origin: str) -> Node:
    """Return the Loop without the carried values that neither a used result nor another remaining
    carried value depends on."""
    stacked = list(map(used.is_live, node.stacks))
    parts = tuple(itertools.compress(node.parts, stacked))
    again = () if node.again is None else (node.again,)
    needed = {v.name for v, r in zip(node.current, node.results, strict=True) if used.is_live(r)}
    while True:
        carried = [value.name in needed for value in node.current]
        dropped = {value.name for value in node.current} - needed
        outputs = (*again, *itertools.compress(node.next, carried), *parts)
        body = eliminate_dead_code(dataclasses.replace(node.body, outputs=outputs))
        reads = _read(body)
        if not dropped & reads:
            break
        needed |= reads
    scanned = [value.name in reads for value in node.slices]
    seen = [value.name in reads for value in node.seen]
    return make_loop(
        dataclasses.replace(
            node,
            carried=tuple(itertools.compress(node.carried, carried)),
            scanned=tuple(itertools.compress(node.scanned, scanned)),
            captured=tuple(itertools.compress(node.captured, seen)),
            results=tuple(itertools.compress(node.results, carried)),
            stacks=tuple(itertools.compress(node.stacks, stacked)),
            body=body,
            current=tuple(itertools.compress(node.current, carried)),
            slices=tuple(itertools.compress(node.slices, scanned)),
            seen=tuple(itertools.compress(node.seen, seen)),
            next=tuple(itertools.compress(node.next, carried)),
            parts=parts,
        ),
        origin,
    )


def _read(region: Graph) -> set[str]:
    """Return the names of the values that the nodes of a region read, or that the region
    returns."""
    names = {v.name for node in region.nodes for v in node.inputs if v is not None}
    return names | {value.name for value in region.outputs}
