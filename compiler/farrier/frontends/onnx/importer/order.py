"""Put nodes into an order in which every input is defined before it is read."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from farrier.errors import InvalidModelError
from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.raw import reads_of


def in_order(nodes: Sequence[RawNode], defined: Iterable[str]) -> list[RawNode]:
    """Return `nodes` in topological order; unchanged if already so ordered.

    `defined` are the names of inputs and initializers. Raises InvalidModelError for a value that is
    defined twice or not at all, and for a cycle.
    """
    names = set(defined)
    producers: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in names or name in producers:
                raise InvalidModelError(
                    f"node {node.origin!r} defines {name!r}, which exists already"
                )
            producers[name] = position
    waiting: list[int] = []
    readers: dict[int, list[int]] = collections.defaultdict(list)
    for position, node in enumerate(nodes):
        sources = set()
        for name in reads_of(node):
            if name in producers:
                sources.add(producers[name])
            elif name not in names:
                raise InvalidModelError(
                    f"node {node.origin!r} ({node.op}) reads {name!r}, which nothing defines"
                )
        waiting.append(len(sources))
        for source in sources:
            readers[source].append(position)
    if all(source < reader for source, positions in readers.items() for reader in positions):
        return list(nodes)
    ready = collections.deque(p for p, count in enumerate(waiting) if not count)
    ordered: list[RawNode] = []
    while ready:
        position = ready.popleft()
        ordered.append(nodes[position])
        for reader in readers[position]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(ordered) < len(nodes):
        stuck = [node.origin for node, count in zip(nodes, waiting, strict=True) if count]
        raise InvalidModelError(f"the graph has a cycle through {', '.join(map(repr, stuck[:5]))}")
    return ordered
