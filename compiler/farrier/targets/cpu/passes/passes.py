"""The graph passes for CPUs, and the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.graph import Graph
from farrier.passes.algorithm import CHOICE
from farrier.passes.fuse import fuse
from farrier.passes.passes import Pass
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes.assign_layouts import assign_layouts
from farrier.targets.cpu.passes.block_products import block_products
from farrier.targets.cpu.passes.choose_algorithms import choose_algorithms
from farrier.targets.cpu.passes.integer_products import integer_products
from farrier.targets.cpu.passes.inverted_bottlenecks import inverted_bottlenecks
from farrier.targets.cpu.passes.lower_precision import lower_precision
from farrier.targets.cpu.passes.match_signedness import match_signedness
from farrier.targets.cpu.passes.merge_groups import merge_groups
from farrier.targets.cpu.passes.tabulate_bytes import tabulate_bytes
from farrier.targets.cpu.passes.widen_integers import widen_integers


def _fuse(graph: Graph, settings: Settings) -> Graph:
    """Fuse nodes to kernels, including inverted bottlenecks, whose intermediate images stay in a
    core's caches."""
    return fuse(graph, lambda whole, home: inverted_bottlenecks(whole, home, settings))


PASSES: Mapping[str, Pass] = {
    "assign-layouts": assign_layouts,
    "block-products": block_products,
    CHOICE: choose_algorithms,
    "fuse": _fuse,
    "integer-products": integer_products,
    "lower-precision": lower_precision,
    "match-signedness": match_signedness,
    "merge-groups": merge_groups,
    "tabulate-bytes": tabulate_bytes,
    "widen-integers": widen_integers,
}

ORDER: tuple[str, ...] = (
    "block-products",
    "integer-products",
    "fold-constants",
    "eliminate-common-subexpressions",
    "match-signedness",
    "tabulate-bytes",
    "split-products",
    "simplify",
    "eliminate-common-subexpressions",
    "fold-batch-norm",
    "recast-convolutions",
    "merge-groups",
    "eliminate-dead-code",
    "widen-floats",
    "lower-precision",
    "widen-integers",
    "choose-algorithms",
    "fold-constants",
    "assign-layouts",
    "split-resizes",
    "eliminate-dead-code",
    "transpose-in-place",
    "concatenate-in-place",
    "fuse",
)
