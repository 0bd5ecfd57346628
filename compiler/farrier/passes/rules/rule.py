"""The type of a rewrite rule, and the function that applies rules to a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from farrier.ir.graph import Graph, Node, Value
from farrier.passes.rewriting import Rewriter

# The replacement of a node's output: another value, or nodes in place of the node, the last of
# which computes the node's outputs.
Replacement: TypeAlias = Value | tuple[Node, ...]
# It returns None if it does not apply.
Rule: TypeAlias = Callable[[Node, Rewriter], Replacement | None]


def apply_rules(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Replace each node by the result of the first rule that matches, and the resulting nodes
    likewise, until no rule matches."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        _apply(rewriter.resolve_inputs(node), rewriter, rules)
    return rewriter.finish()


def _apply(node: Node, rewriter: Rewriter, rules: Sequence[Rule]) -> None:
    for rule in rules:
        replacement = rule(node, rewriter)
        if isinstance(replacement, Value):
            rewriter.replace(node.outputs[0], replacement)
            return
        if replacement is not None:
            for part in replacement:
                _apply(rewriter.resolve_inputs(part), rewriter, rules)
            return
    rewriter.emit(node)
