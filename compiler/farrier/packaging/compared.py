"""Find the numbers with which a graph compares an input."""

from __future__ import annotations

from farrier.ir.graph import Graph, Node, Value
from farrier.ops import Moves, lookup
from farrier.ops.conversion import CAST
from farrier.ops.logical import EQUAL

_MOST = 8  # The limit on numbers for one value.


def compared_with(graph: Graph, value: Value) -> tuple[int, ...]:
    """Return, in order, the integers with which Equal nodes of the graph compare a value of one
    element, directly or after a cast or reshape.

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
    same, numbers = {value.name}, list[int]()
    for node in graph.nodes:
        operands = [operand.name for operand in node.inputs if operand is not None]
        if _keeps_element(node) and operands[0] in same:
            same.update(output.name for output in node.outputs)
        elif EQUAL.matches(node) and not same.isdisjoint(operands):
            for name in operands:
                constant = constants.get(name)
                if constant is not None and constant.value.type.size == 1 and not constant.has_dims:
                    numbers.append(int(constant.data.reshape(-1)[0]))
    return tuple(dict.fromkeys(numbers))[:_MOST]


def _keeps_element(node: Node) -> bool:
    """Check whether a node returns its operand of one element unchanged, except for type and
    shape."""
    if any(value.type.size != 1 for value in node.outputs):
        return False
    return lookup(node.op).moved(node) is Moves.ONCE or CAST.matches(node)
