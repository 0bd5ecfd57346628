"""Rewrite If to a conditional of the builder."""

from __future__ import annotations

import functools

from farrier.frontends.builder.branches import chosen
from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.regions import bind
from farrier.frontends.onnx.importer.scope import ImportScope


def rewrite_if(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Add a conditional for the node, and bind the node's outputs to its results. Return [], since
    no node remains."""
    graphs = (node.attrs["then_branch"], node.attrs["else_branch"])
    builds = [functools.partial(scope.nested, graph, {}, opset) for graph in graphs]
    bind(node.outputs, chosen(scope, node.inputs[0], builds), scope)
    return []
