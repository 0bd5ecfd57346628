"""Merge nodes that compute the same, and equal constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from farrier.ir.graph import Constant, Derived, Graph, Node
from farrier.passes.rewriting import Rewriter

_SAMPLE_BYTES = 256


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Merge nodes that have the same operator, inputs and attributes, and constants of the same
    content.

    before:
        @graph
        def g(x: f32[4]):
            one: f32[1] = constant([1.0])
            eins: f32[1] = constant([1.0])
            a: f32[4] = Add(x, one)
            b: f32[4] = Add(x, eins)
            y: f32[4] = Mul(a, b)
            return y

    after:
        @graph
        def g(x: f32[4]):
            one: f32[1] = constant([1.0])
            eins: f32[1] = constant([1.0])
            a: f32[4] = Add(x, one)
            y: f32[4] = Mul(a, a)
            return y
    """
    rewriter = Rewriter(graph)
    _merge_constants(graph, rewriter)
    seen: dict[Hashable, Node] = {}
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        inputs = tuple(value.name if value is not None else None for value in node.inputs)
        types = tuple(value.type for value in node.outputs)
        twin = seen.setdefault((node.op, inputs, types, node.attrs, node.regions), node)
        if twin is node:
            rewriter.emit(node)
            continue
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            rewriter.replace(old, new)
    return rewriter.finish()


def _merge_constants(graph: Graph, rewriter: Rewriter) -> None:
    """Replace each constant that equals an earlier one.

    The complete content is hashed only for constants that agree in type and in a sample of
    elements.
    """
    alike: dict[Hashable, list[Constant]] = defaultdict(list)
    for constant in graph.constants:
        alike[constant.value.type, _sample(constant)].append(constant)
    for group in alike.values():
        first: dict[str, Constant] = {}
        for constant in group if len(group) > 1 else ():
            twin = first.setdefault(constant.digest, constant)
            if twin is not constant:
                rewriter.replace(constant.value, twin.value)


def _sample(constant: Constant) -> Hashable:
    content = constant.content
    if isinstance(content, Derived):
        return content.key, *map(_sample, content.operands)
    return content.ravel()[: _SAMPLE_BYTES // content.itemsize].tobytes()
