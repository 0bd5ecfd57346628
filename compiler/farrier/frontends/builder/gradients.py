"""Reverse-mode differentiation, which adds the nodes of the derivative to the graph.

The nodes on paths from sources to a target are visited in reverse order; each operator's rule
(`ops/derivative.py`) maps the gradient by its result to the gradients by its operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from farrier.frontends.builder.symbolic import ints
from farrier.ir.graph import Node, Value
from farrier.ops import NotSupported, lookup
from farrier.ops.derivative import Adjoint

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def gradients(builder: Builder, target: Value, sources: Sequence[Value]) -> list[str]:
    """Return the names of the gradients of `target` by each of `sources`. If the target has several
    elements, these are the gradients of their sum. Raises NotSupported for an operator without a
    rule."""
    path, between = _path(builder, sources)
    by_value: dict[str, str] = {}
    if target.name in between:
        by_value[target.name] = _filled(builder, target, 1)
    for node in reversed(path):
        if not any(value.name in by_value for value in node.outputs):
            continue
        rule = lookup(node.op).derivative
        if rule is None or len(node.outputs) > 1:
            raise NotSupported(f"the gradient of {node.op} ({node.origin!r})")
        adjoint = _adjoint(builder, node, by_value[node.outputs[0].name])
        for value, share in zip(node.inputs, rule(adjoint), strict=False):
            if value is None or share is None or value.name not in between:
                continue
            share = adjoint.summed_to(share, value.type.shape)
            partial = by_value.get(value.name)
            by_value[value.name] = share if partial is None else builder.add("Add", partial, share)
    return [by_value.get(value.name) or _filled(builder, value, 0) for value in sources]


def _path(builder: Builder, sources: Sequence[Value]) -> tuple[list[Node], set[str]]:
    """Return the nodes that depend on the sources, in order, and the names of all values that do:
    the sources themselves and the results of these nodes."""
    between = {value.name for value in sources}
    path = []
    for node in builder.nodes():
        is_new = all(value.name not in between for value in node.outputs)
        if is_new and any(value is not None and value.name in between for value in node.inputs):
            path.append(node)
            between.update(value.name for value in node.outputs)
    return path, between


def _adjoint(builder: Builder, node: Node, by: str) -> Adjoint:
    operands = ["" if value is None else builder.bind("", value) for value in node.inputs]
    return Adjoint(builder, node, operands, builder.bind("", node.outputs[0]), by)


def _filled(builder: Builder, like: Value, number: float) -> str:
    """Return a tensor with the type of `like`, all of whose elements are `number`."""
    element = builder.constant(np.array(number, like.type.dtype.numpy))
    return builder.add("Expand", element, builder.constant(ints(like.type.shape)))
