"""The passes that suit a graph to an accelerator: products of integers of its types, blocks of
channels, and padding in the kernel that reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.errors import CompilerError
from farrier.ir.graph import Graph, Node
from farrier.ops import product_of
from farrier.ops.pad import PAD
from farrier.passes.fuse import Home, fuse
from farrier.passes.passes import Pass
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes import PASSES as OF_CPUS
from farrier.targets.dae.unit import UnitTarget

ORDER = (
    "integer-products",
    "fold-constants",
    "eliminate-common-subexpressions",
    "match-signedness",
    "simplify",
    "eliminate-common-subexpressions",
    "fold-batch-norm",
    "recast-convolutions",
    "eliminate-dead-code",
    "widen-floats",
    "fold-constants",
    "assign-layouts",
    "split-resizes",
    "eliminate-dead-code",
    "transpose-in-place",
    "fuse",
)


def _for_unit(name: str) -> Pass:
    """Return a pass of CPUs that sees the matrix unit as the machine."""

    def run(graph: Graph, settings: Settings) -> Graph:
        from farrier.targets.dae.backend import DaeTarget

        if not isinstance(settings.target, DaeTarget):
            raise CompilerError(f"{settings.target.cpu} is not an accelerator")
        unit = UnitTarget.of(settings.target.accelerator)
        return OF_CPUS[name](graph, dataclasses.replace(settings, target=unit))

    return run


def _fuse(graph: Graph, settings: Settings) -> Graph:
    """Fuse padding with the convolution that reads it: a load pads."""
    return fuse(graph, _pads)


def _pads(graph: Graph, home: Home) -> Mapping[int, Node]:
    readers = graph.consumers()
    returned = {value.name for value in graph.outputs}
    joined: dict[int, Node] = {}
    for node in graph.nodes:
        if not PAD.matches(node) or node.outputs[0].name in returned:
            continue
        reading = readers.get(node.outputs[0].name, [])
        if len(reading) != 1:
            continue
        (reader,) = reading
        product = product_of(reader)
        layout = node.outputs[0].type.layout
        if product is not None and product.is_convolution and layout and not layout.is_plain:
            joined[id(node)] = reader
    return joined


PASSES: Mapping[str, Pass] = {
    "assign-layouts": _for_unit("assign-layouts"),
    "fuse": _fuse,
    "integer-products": _for_unit("integer-products"),
    "match-signedness": _for_unit("match-signedness"),
}
