"""Report all unsupported operators of a model in a single error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from farrier.errors import UnsupportedOperatorError
from farrier.frontends.onnx.importer.functions import is_function
from farrier.frontends.onnx.importer.limits import DOMAINS
from farrier.frontends.onnx.importer.raw import describe, graphs_of, nodes_in, qualified_name
from farrier.frontends.onnx.importer.rewrites.microsoft import OUT_OF_SCOPE
from farrier.frontends.onnx.importer.upgrade import READABLE
from farrier.ops import import_of, names


def version_of(node: onnx.NodeProto, opsets: Mapping[str, int]) -> int:
    """Return the version of the node's operator, according to the model's opset imports."""
    return opsets.get("" if node.domain in DOMAINS else node.domain, 1)


def check_known(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> None:
    """Raise UnsupportedOperatorError if the graph always executes an unsupported operator. The
    message lists for each such operator the number of nodes, and the first of them.

    An unsupported operator that occurs only in branches is an error when the branch is taken, but
    is also listed here.
    """
    if not any(is_unknown(node, opsets) for node in _always_run(graph)):
        return
    missing: dict[str, list[str]] = {}
    for node in nodes_in(graph):
        if is_unknown(node, opsets):
            missing.setdefault(qualified_name(node), []).append(describe(node))
    lines = (f"{op} ×{len(nodes)} (first: {nodes[0]!r})" for op, nodes in missing.items())
    raise UnsupportedOperatorError(
        f"{len(missing)} operators are not supported: {', '.join(lines)}",
        hint=next(
            (hint for op in missing if (hint := OUT_OF_SCOPE.get(op))),
            "docs/reference/operators.md lists what Farrier compiles; leave this part out of the "
            "model, or install a package with the operator (docs/develop/custom_operators.md)",
        ),
    )


def _always_run(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its nested graphs, except the nodes in branches of
    conditionals."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node) if node.op_type != "If" else ():
            yield from _always_run(inner)


def is_unknown(node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    """Check whether Farrier does not support the node's operator."""
    op = qualified_name(node)
    if op in names() or op in READABLE or import_of(op) is not None:
        return False
    return not is_function(op, version_of(node, opsets))
