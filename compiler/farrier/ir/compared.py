"""The numbers that a graph tells apart from others: what its conditions are about."""

from __future__ import annotations

from farrier.ir.graph import Graph, Value

_SAME_ELEMENT = frozenset(("Cast", "Reshape", "Squeeze", "Unsqueeze", "Relayout"))
_MOST = 8  # numbers of one value


def compared_with(graph: Graph, value: Value) -> tuple[int, ...]:
    """The integers that nodes Equal of the graph hold a value of one element against, as it is or
    under another type or shape, in their order.

    before:
        @graph
        def g(rate: i64[()], x: f32[4]):
            known: i64[()] = constant(16000)
            is_known: bool[()] = Equal(rate, known)

    after, of `rate`: (16000,)
    """
    if value.type.dtype.is_float or value.type.size != 1:
        return ()
    constants = {constant.value.name: constant for constant in graph.constants}
    same, found = {value.name}, list[int]()
    for node in graph.nodes:
        given = [operand.name for operand in node.inputs if operand is not None]
        if node.op in _SAME_ELEMENT and given[0] in same:
            same.update(output.name for output in node.outputs)
        elif node.op == "Equal" and not same.isdisjoint(given):
            for name in given:
                constant = constants.get(name)
                if constant is not None and constant.value.type.size == 1 and not constant.has_dims:
                    found.append(int(constant.data.reshape(-1)[0]))
    return tuple(dict.fromkeys(found))[:_MOST]
