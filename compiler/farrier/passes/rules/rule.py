"""What a rule is, and how rules are applied to a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from farrier.ir.graph import Graph, Node, Value
from farrier.passes.rewriting import Rewriter

# What stands for a node's output: another value; or nodes to take the node's place, the last of
# which computes the node's outputs.
Replacement: TypeAlias = Value | tuple[Node, ...]
# None where the rule does not apply.
Rule: TypeAlias = Callable[[Node, Rewriter], Replacement | None]


def apply_rules(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Each node as what it comes down to: the first rule that fits replaces it, until none does."""
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
